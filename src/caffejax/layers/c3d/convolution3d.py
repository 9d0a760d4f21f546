"""Convolution3D and Deconvolution3D: windows over time and the plane."""

from __future__ import annotations

from typing import Any

import jax

from ...errors import require
from ..context import Context, ParamSpec, Shape
from ..convolution import Correlation
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .windows import TEMPORAL, volume_param, volume_size, volume_window

Arrays = tuple[jax.Array, ...]


def convolution3d(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """Cross-correlation of (N, C, length, height, width) with a weight (num_output, C, depth, size, size).

    Its settings are those of convolution3d_param, or as in C3D 1.0 of convolution_param with kernel_depth,
    temporal_stride and temporal_pad. The bias has shape (1, 1, 1, 1, num_output).
    """
    weight, *bias = blobs
    return volume_correlation(ctx, x)(x, weight, *(b.reshape(-1) for b in bias))


def convolution3d_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p, c = _param(ctx), volume_correlation(ctx, x)
    return _weight_and_bias(p, (p.num_output, x.shape[1], *c.window.kernel), p.bias_term)


def convolution3d_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, jax.Array]:
    weight, *bias = blobs
    c = volume_correlation(ctx, x)
    d_bias = (c.bias_diff(dy).reshape(b.shape) for b in bias)
    return (c.weight_diff(x, dy), *d_bias), c.spread(dy, weight, c.size(x))


def deconvolution3d(ctx: Context, blobs: Arrays, x: jax.Array) -> jax.Array:
    """Numbers times the kernel, added up where they overlap: Convolution3D's bottom gradient.

    The weight is (C, num_output, depth, size, size); a size n becomes stride * (n - 1) + kernel - 2 * pad. As in C3D,
    there is a bias unless convolution_param, and not convolution3d_param, says otherwise.
    """
    weight, *bias = blobs
    c = volume_correlation(ctx, x)
    return c.add_bias(c.spread(x, weight, _spread_size(c, x)), *(b.reshape(-1) for b in bias))


def deconvolution3d_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p, c = _param(ctx), volume_correlation(ctx, x)
    return _weight_and_bias(p, (x.shape[1], p.num_output, *c.window.kernel), ctx.param.bias_term)


def deconvolution3d_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Arrays, jax.Array]:
    weight, *bias = blobs
    c = volume_correlation(ctx, x)
    d_bias = (c.bias_diff(dy).reshape(b.shape) for b in bias)
    return (c.weight_diff(dy, x), *d_bias), c(dy, weight)


_RESTRICTIONS = "No groups. filter_group, which only divides the work, changes nothing."

register(
    LayerType(
        Signature("Convolution3D", param="convolution_param", fork_settings=TEMPORAL),
        Traced(convolution3d, params=convolution3d_params),
        Gradient(convolution3d_backward),
        LayerTraits(row_wise=True, dtype_policy="products", weight_axes=5),
        docs=LayerDocs(origin="C3D", restrictions=_RESTRICTIONS),
    )
)
register(
    LayerType(
        Signature("Deconvolution3D", param="convolution_param", fork_settings=TEMPORAL),
        Traced(deconvolution3d, params=deconvolution3d_params),
        Gradient(deconvolution3d_backward),
        LayerTraits(row_wise=True, dtype_policy="products", weight_axes=5),
        docs=LayerDocs(origin="C3D", restrictions=_RESTRICTIONS),
    )
)


def _param(ctx: Context) -> Any:
    return volume_param(ctx, "convolution3d_param")


def volume_correlation(ctx: Context, x: Any) -> Correlation:
    """Return what slides over a bottom of five axes.

    Raises:
        LayerError: for settings that do not go together, and other shapes.
    """
    p = _param(ctx)
    volume_size(x)
    require(p.num_output > 0, "num_output must be positive")
    require(p.group == 1, f"takes no groups of channels, but group is {p.group}")
    return Correlation(volume_window(p), axis=1, group=1, fast=ctx.fast)


def _weight_and_bias(p: Any, shape: Shape, biased: bool) -> list[ParamSpec]:
    bias = ParamSpec((1, 1, 1, 1, p.num_output), p.bias_filler)
    return [ParamSpec(shape, p.weight_filler), *([bias] if biased else [])]


def _spread_size(c: Correlation, x: jax.Array) -> Shape:
    w = c.window
    axes = zip(c.size(x), w.stride, w.kernel, w.low, strict=True)
    size = tuple(stride * (n - 1) + kernel - 2 * pad for n, stride, kernel, pad in axes)
    require(all(n > 0 for n in size), f"nothing is left: input {c.size(x)}, kernel {w.kernel}, pad {w.low}")
    return size
