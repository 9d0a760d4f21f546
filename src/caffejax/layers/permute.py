"""Permute and Transpose: the axes in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..kernels.window import Window
from .axes import canonical_axis
from .context import Context, Shape
from .registry import register
from .sight import own_pixel
from .types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def permute(ctx: Context, x: jax.Array) -> jax.Array:
    """The bottom's axes in the order that `order` lists them; those it does not list follow as they were."""
    return jnp.transpose(x, permuted_axes(ctx, x.shape))


def permute_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _transposed_back(dy, permuted_axes(ctx, x.shape))


def permutes_rows(ctx: Context) -> bool:
    return not ctx.param.order or ctx.param.order[0] == 0


register(
    LayerType(
        Signature("Permute", param="permute_param", in_place=False),
        Traced(permute, top_shapes=lambda ctx, x: [tuple(x.shape[i] for i in permuted_axes(ctx, x.shape))]),
        Gradient(permute_backward),
        LayerTraits(
            row_wise=permutes_rows,
            data_movement="whole",
            dtype_policy="bottoms",
            accepts_integers=True,
            receptive_window=lambda ctx, bottom: _sees(ctx, bottom, permuted_axes),
        ),
        docs=LayerDocs(origin="SSD"),
    )
)


def permuted_axes(ctx: Context, shape: Shape) -> tuple[int, ...]:
    """Return the bottom's axes in the order of the top's."""
    given = list(ctx.param.order)
    require(
        len(set(given)) == len(given) and all(axis < len(shape) for axis in given),
        f"order must list axes of the bottom, shape {shape}, each at most once, not {given}",
    )
    return (*given, *(axis for axis in range(len(shape)) if axis not in given))


def transpose(ctx: Context, x: jax.Array) -> jax.Array:
    """The bottom's axes in the order that `dim` lists them, all of them; negative ones count from the end."""
    return jnp.transpose(x, transposed_axes(ctx, x.shape))


def transpose_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return _transposed_back(dy, transposed_axes(ctx, x.shape))


def transposes_rows(ctx: Context) -> bool:
    return bool(ctx.param.dim) and ctx.param.dim[0] == 0


register(
    LayerType(
        Signature("Transpose", param="transpose_param", in_place=False),
        Traced(transpose),
        Gradient(transpose_backward),
        LayerTraits(
            row_wise=transposes_rows,
            data_movement="whole",
            dtype_policy="bottoms",
            accepts_integers=True,
            receptive_window=lambda ctx, bottom: _sees(ctx, bottom, transposed_axes),
        ),
        docs=LayerDocs(origin="CTPN"),
    )
)


def transposed_axes(ctx: Context, shape: Shape) -> tuple[int, ...]:
    """Return likewise those of Transpose."""
    axes = tuple(canonical_axis(axis, shape, name="dim") for axis in ctx.param.dim)
    require(
        sorted(axes) == list(range(len(shape))),
        f"transpose_param's dim must list each axis of the bottom, shape {shape}, once, not {list(ctx.param.dim)}",
    )
    return axes


def _sees(ctx: Context, bottom: Any, order: Callable[[Context, Shape], tuple[int, ...]]) -> Window | None:
    """Return the own pixel where height and width stay in their places."""
    axes = order(ctx, bottom.shape)
    return own_pixel(ctx, bottom) if axes[2:] == tuple(range(2, len(axes))) else None


def _transposed_back(dy: jax.Array, order: tuple[int, ...]) -> jax.Array:
    return jnp.transpose(dy, [order.index(axis) for axis in range(len(order))])
