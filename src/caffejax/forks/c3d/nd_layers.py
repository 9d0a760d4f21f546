"""NdConvolution and NdPooling of video-caffe, with windows over any number of spatial axes."""

from __future__ import annotations

import math
from typing import Any

import jax

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Shape
from ...core.layers.convolution import ConvolutionOp
from ...core.layers.declaration import register
from ...core.layers.weight_and_bias import weight_and_bias_specs
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import ConvolutionParameter, PoolingParameter
from ..general.settings_checks import reject_fields
from .c3d_layers import UNREAD_FIELDS, pool_windows, pool_windows_diff

Arrays = tuple[jax.Array, ...]

_SHAPE_FIELDS = ("kernel_shape", "stride_shape", "pad_shape")


@register(
    "NdConvolution",
    param="convolution_param",
    fork_settings=_SHAPE_FIELDS,
    row_wise=True,
    dtype_policy="products",
    weight_axes=5,
    blob_names=("weight", "bias"),
    origin="video-caffe",
    restrictions="Axes of size 1 remain in the top; video-caffe drops them. No recorded case.",
)
def nd_convolution(params: Params, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Cross-correlate (N, C, *spatial) with a kernel over all spatial axes. The top is (N, num_output, *spatial').

    kernel_shape, stride_shape and pad_shape have one value for each spatial axis. The weight has shape (num_output, C /
    group, *kernel_shape), and the bias has shape (num_output,).
    """
    return nd_convolution_op(ctx, x)(x, *params.values())


@nd_convolution.params
def nd_convolution_params(p: ConvolutionParameter, x: Any, *, ctx: Context) -> list[ParamSpec]:
    c = nd_convolution_op(ctx, x)
    return weight_and_bias_specs(p, (p.num_output, x.shape[1] // p.group, *c.window.kernel))


@nd_convolution.backward
def nd_convolution_backward(
    params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Arrays, jax.Array]:
    c, (weight, *bias) = nd_convolution_op(ctx, x), params.values()
    return (c.weight_diff(x, dy), *(c.bias_diff(dy) for _ in bias)), c.transpose(dy, weight, c.spatial_shape(x))


@register(
    "NdPooling",
    param="pooling_param",
    fork_settings=_SHAPE_FIELDS,
    overrides_autodiff=True,
    row_wise=True,
    dtype_policy="bottoms",
    origin="video-caffe",
    restrictions="STOCHASTIC is not supported. No recorded case.",
)
def nd_pooling(p: PoolingParameter, x: jax.Array) -> jax.Array:
    """Compute the maxima (MAX) or averages (AVE) over windows of all spatial axes.

    The bottom has shape (N, C, *spatial), and the top (N, C, *spatial'). kernel_shape, stride_shape and pad_shape have
    one value for each spatial axis. The sizes of the top are rounded up, so the last window may extend beyond the
    bottom. AVE divides by the number of cells of the window inside the padded volume, including the padding. With MAX,
    every position equal to the maximum of a window gets the full gradient of that window.
    """
    return pool_windows(x, *read_nd_pooling(p, x))


@nd_pooling.backward
def nd_pooling_backward(p: PoolingParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return pool_windows_diff(x, y, dy, *read_nd_pooling(p, x))


def nd_convolution_op(ctx: Context, x: Any) -> ConvolutionOp:
    """Return the cross-correlation that the layer's settings define for a bottom (N, C, *spatial).

    Raises:
        LayerError: if settings are invalid, or do not match the axes or channels of the bottom.
    """
    p = ctx.param
    window = _read_window(p, _spatial_size(x))
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(
        p.group > 0 and x.shape[1] % p.group == 0 and p.num_output % p.group == 0,
        f"group {p.group} must divide the {x.shape[1]} channels and num_output {p.num_output}",
    )
    return ConvolutionOp(window, axis=1, group=p.group, fast=ctx.fast)


def read_nd_pooling(p: PoolingParameter, x: Any) -> tuple[str, Window, Shape]:
    """Return the method ("MAX" or "AVE"), the window, and the spatial shape of the top.

    The window's padding at the end of each axis is large enough for the last window.

    Raises:
        LayerError: if settings are invalid, or do not match the axes of the bottom.
    """
    size = _spatial_size(x)
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE"), f"pool: {method} is not supported; use MAX or AVE")
    window = _read_window(p, size, size if p.global_pooling else None)
    axes = list(zip(size, window.kernel, window.stride, window.low, strict=True))
    require(
        all(pad < kernel for _, kernel, _, pad in axes), f"pad {window.low} must be less than kernel {window.kernel}"
    )
    rounded_sizes = [math.ceil((n + 2 * pad - kernel) / stride) + 1 for n, kernel, stride, pad in axes]
    # As in Caffe, if there is padding, a last window that would start after the bottom is dropped.
    is_too_late = [
        pad > 0 and (o - 1) * stride >= n + pad for o, (n, _, stride, pad) in zip(rounded_sizes, axes, strict=True)
    ]
    output_size = tuple(o - int(is_dropped) for o, is_dropped in zip(rounded_sizes, is_too_late, strict=True))
    require(
        all(o > 0 for o in output_size),
        f"the kernel {window.kernel} does not fit the volume {size} with pad {window.low}",
    )
    starts = [(o - 1) * stride - pad for o, (_, _, stride, pad) in zip(output_size, axes, strict=True)]
    require(
        all(start < n for start, n in zip(starts, size, strict=True)),
        f"the last window begins beyond the volume {size}: kernel {window.kernel}, stride {window.stride}",
    )
    return method, window.fit_padding(size, output_size).drop_negative_padding(size), output_size


def _read_window(p: Any, size: Shape, kernel: Shape | None = None) -> Window:
    """Return the window over the axes of `size` that the settings `p` define.

    If `kernel` is not None, it replaces kernel_shape.
    """
    reject_fields(
        p, (*UNREAD_FIELDS, "kernel_size", "stride", "pad"), "set kernel_shape, stride_shape and pad_shape instead"
    )
    n = len(size)
    kernel = kernel or _read_dims(p, "kernel_shape", n, None)
    stride, pad = _read_dims(p, "stride_shape", n, 1), _read_dims(p, "pad_shape", n, 0)
    are_valid = all(k > 0 for k in (*kernel, *stride)) and all(k >= 0 for k in pad)
    require(
        are_valid, f"kernel_shape {kernel} and stride_shape {stride} must be positive, pad_shape {pad} not negative"
    )
    return Window.symmetric(kernel, stride, pad)


def _read_dims(p: Any, name: str, n: int, default: int | None) -> Shape:
    if not p.HasField(name) and default is not None:
        return (default,) * n
    dims = tuple(getattr(p, name).dim)
    require(
        len(dims) == n, f"{name} must have {n} values of dim, one for each axis after the channels, not {len(dims)}"
    )
    return dims


def _spatial_size(x: Any) -> Shape:
    require(len(x.shape) > 2, f"needs a bottom with 3 axes or more (number, channels, and others), not shape {x.shape}")
    return tuple(x.shape[2:])
