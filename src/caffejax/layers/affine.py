"""Bias and Scale: a blob added to, or multiplied with, every part of the bottom that has its shape."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import require
from ..kernels.affine import by_channel
from ..schema.caffe_pb2 import FillerParameter
from .axes import canonical_axis
from .context import Context, ParamSpec, Shape
from .dtypes import promote
from .loss import replaced
from .namespace import namespace_of
from .registry import register
from .types import ByChannel, Gradient, LayerTraits, LayerType, Signature, Traced

Arrays = tuple[jax.Array, ...]


def bias(ctx: Context, blobs: Arrays, *bottoms: jax.Array) -> jax.Array:
    """x plus a blob that lies along x's axes from `axis` on: the second bottom, or else a learnable one.

    The learnable one spans `num_axes` axes: -1 for all that follow, 0 for a single number.
    """
    x, added = *bottoms, *blobs
    return _applied(ctx, x, [(operator.add, added)])


def _of_channels(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return bool(ctx.param.axis == axis and set(shapes) == {(channels,)})


def bias_by_channel(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return namespace_of(blobs[0]).ones_like(blobs[0]), blobs[0]


def bias_params(ctx: Context, *bottoms: Any) -> list[ParamSpec]:
    if len(bottoms) == 2:
        return []
    return [ParamSpec(_spanned(ctx.param, bottoms[0].shape), ctx.param.filler)]


def affine_top_shapes(ctx: Context, *bottoms: Any) -> list[Shape] | None:
    return [bottoms[0].shape] if len(bottoms) == 1 else None


def bias_backward(ctx: Context, blobs: Arrays, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    x, added = *bottoms, *blobs
    d_added = _collected(dy, added, x, ctx.param.axis)
    return ((d_added,), dy) if blobs else ((), dy, d_added)


register(
    LayerType(
        Signature("Bias", bottoms=(1, 2), param="bias_param"),
        Traced(bias, params=bias_params, top_shapes=affine_top_shapes),
        Gradient(bias_backward),
        LayerTraits(dtype_policy="bottoms", spatial_map="same", by_channel=ByChannel(_of_channels, bias_by_channel)),
    )
)


def scale(ctx: Context, blobs: Arrays, *bottoms: jax.Array) -> jax.Array:
    """x times a blob that lies along x's axes from `axis` on, as for Bias; with `bias_term` plus another.

    With the factor from a second bottom, the bias is the only blob. `min_value` and `max_value` hold the factor.
    """
    x, factor, *added = *bottoms, *blobs
    factor = _held(ctx, factor)
    return _applied(ctx, x, [(operator.mul, factor), *((operator.add, b) for b in added)])


def scale_by_channel(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    factor, *added = _held(ctx, blobs[0]), *blobs[1:]
    return factor, added[0] if added else namespace_of(factor).zeros_like(factor)


def scale_params(ctx: Context, *bottoms: Any) -> list[ParamSpec]:
    p = ctx.param
    shape = bottoms[1].shape if len(bottoms) == 2 else _spanned(p, bottoms[0].shape)
    filler = p.filler if p.HasField("filler") else FillerParameter(type="constant", value=1)
    factor = [ParamSpec(shape, filler)] if len(bottoms) == 1 else []
    return [*factor, ParamSpec(shape, p.bias_filler)] if p.bias_term else factor


def scale_backward(ctx: Context, blobs: Arrays, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    axis = ctx.param.axis
    x, factor, *added = *bottoms, *blobs
    factor = _held(ctx, factor)
    dx = dy * _along(factor, x, axis)
    d_factor = _collected(promote(dy) * x, factor, x, axis)
    d_added = tuple(_collected(dy, b, x, axis) for b in added)
    return ((d_factor, *d_added), dx) if len(bottoms) == 1 else (d_added, dx, d_factor)


register(
    LayerType(
        Signature("Scale", bottoms=(1, 2), param="scale_param", fork_settings=("min_value", "max_value")),
        Traced(scale, params=scale_params, top_shapes=affine_top_shapes),
        Gradient(scale_backward),
        LayerTraits(dtype_policy="bottoms", spatial_map="same", by_channel=ByChannel(_of_channels, scale_by_channel)),
    )
)


def _held(ctx: Context, factor: Any) -> Any:
    """Hold a Scale's factor between `min_value` and `max_value`, of which the gradient takes no notice."""
    p = ctx.param
    low, high = (getattr(p, f) if p.HasField(f) else None for f in ("min_value", "max_value"))
    if low is None and high is None:
        return factor
    held = namespace_of(factor).clip(factor, low, high)
    return held if isinstance(held, np.ndarray) else replaced(factor, held)


def _spanned(p: Any, shape: Shape) -> Shape:
    """Return the bottom's axes that a learnable blob spans."""
    start = canonical_axis(p.axis, shape)
    require(p.num_axes >= -1, f"num_axes must be -1 (all that follow), 0 or more, not {p.num_axes}")
    if p.num_axes == -1:
        return shape[start:]
    require(
        start + p.num_axes <= len(shape),
        f"the blob extends past the bottom: {p.num_axes} axes from axis {start} on, bottom shape {shape}",
    )
    return shape[start : start + p.num_axes]


def _start(blob: Any, x: Any, axis: int) -> int:
    """Return the axis of `x` at which `blob` begins; a single number begins at 0."""
    start = canonical_axis(axis, x.shape) if blob.shape else 0
    require(
        tuple(x.shape[start : start + len(blob.shape)]) == tuple(blob.shape),
        f"dimension mismatch: shape {blob.shape} does not lie along the bottom's {x.shape} from axis {start} on",
    )
    return start


def _applied(ctx: Context, x: jax.Array, steps: Sequence[tuple[Callable[..., Any], jax.Array]]) -> jax.Array:
    """Apply each step's operation to `x` and its blob, one after the other."""
    if ctx.fast and all(b.ndim == 1 and _start(b, x, ctx.param.axis) == 1 for _, b in steps):
        by = dict(steps)
        return by_channel(x, by.get(operator.mul), by.get(operator.add)).astype(x.dtype)
    y = x
    for operation, blob in steps:
        y = operation(y, _along(blob, x, ctx.param.axis))
    return y.astype(x.dtype)


def _along(blob: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """Append axes of length 1 to `blob` so that it broadcasts along `x`."""
    return blob.reshape(*blob.shape, *(1,) * (x.ndim - _start(blob, x, axis) - blob.ndim))


def _collected(d: jax.Array, blob: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """Sum over all axes that `blob` was broadcast along."""
    start = _start(blob, x, axis)
    return jnp.sum(promote(d), axis=[k for k in range(x.ndim) if not start <= k < start + blob.ndim])
