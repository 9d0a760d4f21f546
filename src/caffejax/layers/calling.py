"""Calling a layer type's functions the one way nets and checks do: tuples in, tuples out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import LayerError
from ..kernels.elementwise import elementwise
from ..kernels.gradient import with_gradient
from .checking import checked
from .context import Context
from .precision import products_of

Arrays = tuple[jax.Array, ...]
Backward = Literal["autodiff", "rules"]


def forward(ctx: Context, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[Arrays, Arrays]:
    """Tops, and the new values of the blobs that are not learnable (empty unless the type is stateful)."""
    kind = ctx.type
    assert kind.forward is not None, f"{kind.name} does not compute"
    blob_argument = (tuple(blobs),) if kind.declare_blobs else ()
    result = kind.forward(ctx, *blob_argument, *bottoms)
    tops, state = result if kind.stateful else (result, ())
    return _tuple(tops), tuple(state)


def finished(ctx: Context, arrays: Sequence[Any]) -> Arrays:
    """The tops of a layer that is fed, from the arrays it is fed."""
    tops = tuple(map(jnp.asarray, arrays))
    return tops if ctx.type.finish is None else ctx.type.finish(ctx, *tops)


def backward(
    ctx: Context,
    blobs: Sequence[Any],
    bottoms: Sequence[Any],
    tops: Sequence[Any],
    top_diffs: Sequence[Any],
) -> tuple[Arrays, Arrays]:
    """Blob and bottom diffs by the type's hand-written rule; zeros where the rule gives None."""
    kind = ctx.type
    assert kind.rule is not None, f"{kind.name} has no backward rule"
    blob_argument = (tuple(blobs),) if kind.declare_blobs else ()
    # a lone top is passed bare, as forward returned it
    y, dy = (s[0] if len(s) == 1 else tuple(s) for s in (tops, top_diffs))
    diffs = _tuple(kind.rule(ctx, *blob_argument, *bottoms, y=y, dy=dy))
    blob_diffs = _tuple(diffs[0]) if kind.declare_blobs else ()
    bottom_diffs = diffs[1:] if kind.declare_blobs else diffs
    return _like(blob_diffs, blobs), _like(bottom_diffs, bottoms)


@checked
def call(
    ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array], mode: Backward = "autodiff"
) -> tuple[Arrays, Arrays]:
    """`forward`, differentiable as `mode` says: by autodiff, or by the hand-written rule where there is one.

    Types that prefer their rule (`prefer_rule`) use it in either mode.
    """
    kind = ctx.type
    if kind.elementwise and ctx.fast:
        plain = replace(ctx, kernels="reference")
        return elementwise(lambda *bottoms: call(plain, blobs, bottoms, mode)[0], *bottoms), ()
    if kind.host:
        return _call_on_host(ctx, blobs, bottoms)
    if kind.rule is None or not (kind.prefer_rule or mode == "rules"):
        return forward(ctx, blobs, bottoms)
    return _with_rule(ctx, blobs, bottoms)


def _call_on_host(ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array]) -> tuple[Arrays, Arrays]:
    """As `call`, for types that want NumPy arrays: outside of jax.jit there are some, under jax.grad too."""

    def numpy(arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        # a new array is traced as well where nothing is given at all
        if any(isinstance(a, jax.core.Tracer) for a in (*arrays, jnp.zeros(()))):
            raise LayerError("runs on the host and cannot be compiled: call the net outside of jax.jit")
        return tuple(np.asarray(a) for a in arrays)

    def forward_on_host(ctx: Context, blobs: Any, bottoms: Any) -> Any:
        return jax.tree.map(jnp.asarray, forward(ctx, numpy(blobs), numpy(bottoms)))

    def backward_on_host(ctx: Context, *arrays: Any) -> Any:
        return jax.tree.map(jnp.asarray, backward(ctx, *map(numpy, arrays)))

    @jax.custom_vjp
    def run(blobs: Arrays, bottoms: Arrays) -> tuple[Arrays, Arrays]:
        return forward_on_host(ctx, blobs, bottoms)

    def run_forward(blobs: Any, bottoms: Any) -> Any:
        arrays, wanted = tuple(b.value for b in blobs), tuple(b.perturbed for b in bottoms)
        values = tuple(b.value for b in bottoms)
        tops, state = run(arrays, values)
        return (tops, state), (arrays, values, tops, _Wanted(wanted))

    def run_backward(saved: Any, diffs: Any) -> Any:
        blobs, bottoms, tops, wanted = saved
        if ctx.type.rule is None:
            raise LayerError("has no backward pass, but a gradient is asked of it")
        asked = ctx.propagate_down or (False,) * len(bottoms)
        down = replace(ctx, propagate_down=tuple(map(operator.or_, asked, wanted.bottoms)))
        zero = jax.custom_derivatives.SymbolicZero
        top_diffs = [jnp.zeros_like(t) if isinstance(d, zero) else d for d, t in zip(diffs[0], tops, strict=True)]
        return backward_on_host(down, blobs, bottoms, tops, top_diffs)

    run.defvjp(run_forward, run_backward, symbolic_zeros=True)
    result: tuple[Arrays, Arrays] = run(tuple(blobs), tuple(bottoms))
    return result


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    """For which bottoms of a host layer a gradient is taken."""

    bottoms: tuple[bool, ...]


def _with_rule(ctx: Context, blobs: Sequence[jax.Array], bottoms: Sequence[jax.Array]) -> tuple[Arrays, Arrays]:
    """`forward`, differentiated by the hand-written rule."""

    def run(key: Any, blobs: Arrays, bottoms: Arrays) -> Any:
        tops, state = forward(ctx.with_key(key), blobs, bottoms)
        return (tops, state), (key, blobs, bottoms, tops)

    def diffs(saved: Any, diffs: Any, wanted: Any) -> Any:
        key, blobs, bottoms, tops = saved
        with products_of(ctx):  # autodiff may come to this long after the forward pass
            return None, *backward(ctx.with_key(key), blobs, bottoms, tops, diffs[0])

    result: tuple[Arrays, Arrays] = with_gradient(run, diffs)(ctx.base_key, tuple(blobs), tuple(bottoms))
    return result


def _tuple(value: Any) -> Arrays:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _like(diffs: Sequence[Any], arrays: Sequence[jax.Array]) -> Arrays:
    assert len(diffs) == len(arrays), f"{len(diffs)} diffs for {len(arrays)} arrays"
    return tuple(jnp.zeros_like(a) if d is None else d.astype(a.dtype) for d, a in zip(diffs, arrays, strict=True))
