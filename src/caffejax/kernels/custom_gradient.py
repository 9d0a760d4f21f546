"""Functions with a custom gradient that works under every transformation.

`jax.custom_vjp` has no forward mode. Here the forward mode is the transpose of the backward rule, so one rule serves
both modes. Higher derivatives differentiate the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .platform_dispatch import has_tangent
from .vma import vary, varying_axes

Arrays = tuple[jax.Array, ...]
Tree = Any


def with_gradient(
    forward: Callable[..., tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree, Sequence[Tree]], Sequence[Tree]],
    *,
    alone: Callable[..., Tree] | None = None,
) -> Callable[..., Tree]:
    """Return a function of pytrees of arrays with a custom gradient.

    Args:
        forward: `forward(*args)` returns `(result, residuals)`.
        backward: `backward(residuals, diffs, needed)` returns the diff of each argument, or None for zero. `diffs` has
            the structure of the result, with None for integer arrays. `needed` has the structure of the arguments, with
            a bool for each array. `backward` must be linear in `diffs`.
        alone: `alone(*args)` returns the result in calls that are not differentiated. The default calls `forward`.
    """
    precision = jax.config.values["jax_default_matmul_precision"]  # of this call; the derivative may be traced later

    @jax.custom_jvp
    def call(*args: Tree) -> Tree:
        return forward(*args)[0] if alone is None else alone(*args)

    def jvp(primals: Sequence[Tree], tangents: Sequence[Tree]) -> tuple[Tree, Tree]:
        with jax.default_matmul_precision(precision):
            result, residuals = forward(*primals)
        tops, result_tree = _flat(result)
        residuals, residuals_tree = _flat(residuals)
        every = jax.tree.leaves(tangents)
        zero = [isinstance(t, jax.custom_derivatives.SymbolicZero) for t in every]
        needed = _flat(primals)[1].unflatten(not z for z in zero)
        rule = _Rule(backward, residuals_tree, result_tree, tuple(map(has_tangent, tops)), tuple(needed), precision)
        results = iter(_tangents(rule, residuals, [t for t, z in zip(every, zero, strict=True) if not z], tops))
        return result, result_tree.unflatten(
            next(results) if has_tangent(top) else np.zeros(top.shape, jax.dtypes.float0) for top in tops
        )

    call.defjvp(jvp, symbolic_zeros=True)
    return call


@dataclass(frozen=True, eq=False)
class _Rule:
    """The function `backward` on flat lists: residuals and diffs of floating-point results in, needed diffs out."""

    backward: Callable[..., Any]
    residuals: Any
    result: Any
    differ: tuple[bool, ...]
    needed: Sequence[Tree]
    precision: str | None

    def __call__(self, residuals: Sequence[jax.Array], *diffs: jax.Array) -> tuple[jax.Array | None, ...]:
        diffs_left = iter(diffs)
        result = self.result.unflatten(next(diffs_left) if d else None for d in self.differ)
        with jax.default_matmul_precision(self.precision):
            results = self.backward(self.residuals.unflatten(residuals), result, self.needed)
        flat: list[jax.Array | None] = []
        for tree, needed in zip(results, self.needed, strict=True):
            wants, structure = _flat(needed)
            each = [None] * len(wants) if tree is None else structure.flatten_up_to(tree)
            flat += [d for want, d in zip(wants, each, strict=True) if want]
        return tuple(flat)


_tangent = Primitive("caffejax_tangent")
_tangent.multiple_results = True


def _tangents(
    rule: _Rule, residuals: Sequence[jax.Array], tangents: Sequence[jax.Array], tops: Sequence[jax.Array]
) -> Sequence[jax.Array]:
    """Return the tangents of the floating-point tops, from the tangents of the arguments.

    Under `jax.shard_map` all arrays vary over the devices inside the rule. In the transpose, each device then computes
    a part of the diff of a replicated argument, and JAX adds the parts outside of the rule.
    """
    types = tuple(jax.typeof(top) for top in tops if has_tangent(top))
    axes = frozenset[str]().union(*map(varying_axes, types))
    arrays = [vary(a, axes) for a in (*residuals, *tangents)]
    results: Sequence[jax.Array] = _tangent.bind(*arrays, rule=rule, types=types, n_residuals=len(residuals))
    return results


def _evaluate(
    *arrays: jax.Array, rule: Callable[..., Any], types: tuple[Any, ...], n_residuals: int
) -> Sequence[jax.Array]:
    residuals, tangents = arrays[:n_residuals], arrays[n_residuals:]

    def back(*diffs: jax.Array) -> Arrays:
        return tuple(
            jnp.zeros_like(t) if d is None else d for d, t in zip(rule(residuals, *diffs), tangents, strict=True)
        )

    results: Sequence[jax.Array] = jax.linear_transpose(back, *types)(tangents)
    return results


_tangent.def_impl(_evaluate)
_tangent.def_abstract_eval(lambda *_, types, **__: types)
mlir.register_lowering(_tangent, mlir.lower_fun(_evaluate, multiple_results=True))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, n_residuals: int, **how: Any) -> Any:
    run = partial(_tangent.bind, n_residuals=n_residuals, **how)
    tops = run(*primals)
    zero = [type(t) is ad.Zero for t in tangents]
    if all(zero[:n_residuals]):  # the operation is linear in the other arguments
        return tops, run(*primals[:n_residuals], *map(ad.instantiate_zeros, tangents[n_residuals:]))
    which = [i for i, z in enumerate(zero) if not z]

    def function_of_some(*some: jax.Array) -> Sequence[jax.Array]:
        diffs_left = dict(enumerate(primals)) | dict(zip(which, some, strict=True))
        return _evaluate(*diffs_left.values(), n_residuals=n_residuals, **how)

    return tops, jax.jvp(function_of_some, [primals[i] for i in which], [tangents[i] for i in which])[1]


ad.primitive_jvps[_tangent] = _jvp


def _transpose(cotangents: Sequence[Any], *arrays: Any, rule: Callable[..., Any], n_residuals: int, **_: Any) -> Any:
    results = rule(arrays[:n_residuals], *map(ad.instantiate_zeros, cotangents))
    types = [a.aval for a in arrays[n_residuals:]]
    diffs = (ad.Zero(t) if d is None else vary(d, varying_axes(t)) for d, t in zip(results, types, strict=True))
    return [*(None,) * n_residuals, *diffs]


ad.primitive_transposes[_tangent] = _transpose


@dataclass(frozen=True, eq=False)
class _Mapped:
    """A rule under `jax.vmap`: mapped over `axes` of the residuals and the first axis of all diffs."""

    rule: Callable[..., Any]
    axes: tuple[int | None, ...]

    def __call__(self, residuals: Sequence[jax.Array], *diffs: jax.Array) -> Any:
        return jax.vmap(self.rule, (self.axes, *(0,) * len(diffs)))(tuple(residuals), *diffs)


def _batch(
    arrays: Sequence[Any],
    axes: Sequence[int | None],
    *,
    rule: Callable[..., Any],
    types: tuple[Any, ...],
    n_residuals: int,
) -> Any:
    (size,) = {a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None}
    tangents = [
        jnp.broadcast_to(t, (size, *t.shape)) if axis is None else jnp.moveaxis(t, axis, 0)
        for t, axis in zip(arrays[n_residuals:], axes[n_residuals:], strict=True)
    ]
    larger = jax.make_jaxpr(lambda *tops: [jnp.broadcast_to(t, (size, *t.shape)) for t in tops])(*types).out_avals
    mapped = _Mapped(rule, tuple(axes[:n_residuals]))
    results = _tangent.bind(*arrays[:n_residuals], *tangents, rule=mapped, types=tuple(larger), n_residuals=n_residuals)
    return results, (0,) * len(results)


batching.primitive_batchers[_tangent] = _batch


def _flat(tree: Tree) -> tuple[list[Any], Any]:
    return jax.tree.flatten(tree)
