"""MaskResize: masks at another size, by bilinear samples."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ...kernels.table import table
from ..axes import possible_plane
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced


def mask_resize(ctx: Context, x: jax.Array) -> jax.Array:
    """Bilinear samples at index * size / output size: N x C x output_height x output_width.

    A sample more than half a cell behind the last is 0. The gradient of a cell comes from two places of the top along
    either axis, and is no derivative where a mask grows.
    """
    rows, columns = _weights(ctx, x, of_gradient=False)
    return jnp.einsum("ih,nchw,jw->ncij", rows, promote(x), columns).astype(x.dtype)


def mask_resize_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    rows, columns = _weights(ctx, x, of_gradient=True)
    return jnp.einsum("ih,ncij,jw->nchw", rows, promote(dy), columns).astype(x.dtype)


register(
    LayerType(
        Signature("MaskResize", param="mask_resize_param", in_place=False),
        Traced(mask_resize),
        Gradient(mask_resize_backward, overrides_autodiff=True),
        LayerTraits(row_wise=True, dtype_policy="bottoms"),
        docs=LayerDocs(origin="MNC"),
    )
)


def _weights(ctx: Context, x: jax.Array, of_gradient: bool) -> tuple[jax.Array, jax.Array]:
    require(len(x.shape) == 4, f"the bottom must be N x C x H x W, not of shape {x.shape}")
    sizes = ctx.param.output_height, ctx.param.output_width
    require(min(sizes) > 0, f"output_height and output_width must be > 0, not {sizes}")
    possible_plane(sizes, x.shape)
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    rows, columns = (
        table(partial(_along, n, m, of_gradient), (m, n), dtype) for n, m in zip(x.shape[2:], sizes, strict=True)
    )
    return rows, columns


def _along(n: int, to: int, of_gradient: bool) -> np.ndarray:
    """Return the weights, (to, n), of n cells in each of `to` samples; for the gradient, in two for each cell."""
    cell, sample = np.arange(n), np.arange(to)[:, None]
    position = sample * n / to
    weights = np.maximum(0, 1 - np.abs(np.minimum(position, n - 1) - cell)) * (position <= n - 0.5)
    first = cell * to // n
    return weights * ((sample == first) | (sample == first + 1)) if of_gradient else weights
