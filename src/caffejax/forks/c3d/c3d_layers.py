"""Convolution3D, Deconvolution3D, Pooling3D, VoxelSoftmax and VoxelSoftmaxLoss, for (N, C, length, height, width)."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Shape
from ...core.layers.convolution import ConvolutionOp
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import batch_size, one_hot_mask, require_same_batch_size, sum_rows
from ...core.layers.types import Indices
from ...core.ops.host_constant import host_constant
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import ConvolutionParameter
from ..general.settings_checks import reject_fields

TEMPORAL_FIELDS = ("kernel_depth", "temporal_stride", "temporal_pad")  # fields that C3D 1.0 adds to the 2D messages

_AXIS_FIELDS = tuple(f"{setting}_{axis}" for setting in ("kernel", "stride", "pad") for axis in ("h", "w", "d"))
_SIDE_FIELDS = tuple(f"pad_{axis}{side}" for axis in ("h", "w", "d") for side in (0, 1))
UNREAD_FIELDS = (*_AXIS_FIELDS, *_SIDE_FIELDS, "axis", "dilation", "round_mode")


def volume_param(ctx: Context, field: str) -> Any:
    """Return the layer's settings: the 3D parameter message `field` if it is set, otherwise the 2D message.

    For example, if `field` is "convolution3d_param", the 2D message is convolution_param.

    Raises:
        LayerError: if both messages are set. The 2D message may still set bias_term, which Deconvolution3D reads from
            it, and fields that do not change the result.
    """
    if not ctx.layer.HasField(field):
        return ctx.param
    volume_settings = getattr(ctx.layer, field)
    effective_fields = {*volume_settings.DESCRIPTOR.fields_by_name, *TEMPORAL_FIELDS, *UNREAD_FIELDS} - {
        "bias_term",
        "engine",
    }
    ignored_fields = [f.name for f, _ in ctx.param.ListFields() if f.name in effective_fields]
    require(
        not ignored_fields,
        f"{', '.join(ignored_fields)} of {ctx.type.signature.param} has no effect if {field} is set; set it in {field}",
    )
    return volume_settings


def volume_window(p: Any) -> Window:
    """Return the window (kernel, stride and padding) over (length, height, width) that the settings `p` define.

    Raises:
        LayerError: if a size is missing, repeated or not positive, or if a field for 2D windows is set, such as
            kernel_h.
    """
    # C3D ignores the field `group` of the 3D message
    planar_fields = ("group",) if p.DESCRIPTOR.name == "ConvolutionParameter" else ()
    reject_fields(p, (*UNREAD_FIELDS, *planar_fields, "global_pooling"), "set kernel_size, stride and pad instead")
    depth, size = _read_number(p, "kernel_depth"), _read_number(p, "kernel_size")
    stride, pad = _read_number(p, "stride", 1), _read_number(p, "pad", 0)
    temporal_stride = _read_number(p, "temporal_stride", 1)
    temporal_pad = _read_number(p, "temporal_pad", 0) if "temporal_pad" in p.DESCRIPTOR.fields_by_name else 0
    window = Window.symmetric((depth, size, size), (temporal_stride, stride, stride), (temporal_pad, pad, pad))
    for name in ("kernel", "stride"):
        require(all(v > 0 for v in getattr(window, name)), f"{name} must be positive: {getattr(window, name)}")
    return window


def volume_size(x: Any) -> Shape:
    """Return the size (length, height, width) of a bottom (N, C, length, height, width).

    Raises:
        LayerError: if the bottom does not have five axes.
    """
    require(
        len(x.shape) == 5, f"needs a bottom with 5 axes (number, channels, length, height, width), not shape {x.shape}"
    )
    return tuple(x.shape[2:])


def _read_number(p: Any, name: str, default: int | None = None) -> int:
    value = getattr(p, name)
    if not isinstance(value, int):  # in the 2D messages the field is repeated
        require(len(value) <= 1, f"{name} must be set once, not {len(value)} times")
        value = value[0] if value else None
    elif not p.HasField(name):
        value = None
    if value is None:
        require(default is not None, f"{name} must be set")
        return default or 0
    return int(value)


Arrays = tuple[jax.Array, ...]


_RESTRICTIONS = "`group` is ignored, as in the fork. filter_group, which only splits the work, has no effect."


@register(
    "Convolution3D",
    param="convolution_param",
    further_params=("convolution3d_param",),
    fork_settings=TEMPORAL_FIELDS,
    overwrites_diffs=True,
    row_wise=True,
    dtype_policy="products",
    weight_axes=5,
    blob_names=("weight", "bias"),
    origin="C3D",
    restrictions=_RESTRICTIONS,
)
def convolution3d(params: Params, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Cross-correlate (N, C, length, height, width) with a kernel over length, height and width.

    The top is (N, num_output, length', height', width'). A size n becomes (n + 2 * pad - kernel) / stride + 1, rounded
    down. The weight has shape (num_output, C, kernel_depth, kernel_size, kernel_size), and the bias has shape (1, 1, 1,
    1, num_output). Settings are read from convolution3d_param if it is set. Otherwise they are read from
    convolution_param, as in C3D 1.0, with the additional fields kernel_depth, temporal_stride and temporal_pad.
    """
    weight, *bias = params.values()
    return volume_convolution_op(ctx, x)(x, weight, *(b.reshape(-1) for b in bias))


@convolution3d.params
def convolution3d_params(x: Any, *, ctx: Context) -> list[ParamSpec]:
    p, c = _read_param(ctx), volume_convolution_op(ctx, x)
    return _weight_and_bias_specs(p, (p.num_output, x.shape[1], *c.window.kernel), p.bias_term)


@convolution3d.backward
def convolution3d_backward(
    params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Arrays, jax.Array]:
    weight, *bias = params.values()
    c = volume_convolution_op(ctx, x)
    d_bias = (c.bias_diff(dy).reshape(b.shape) for b in bias)
    return (c.weight_diff(x, dy), *d_bias), c.transpose(dy, weight, c.spatial_shape(x))


@register(
    "Deconvolution3D",
    param="convolution_param",
    further_params=("convolution3d_param",),
    fork_settings=TEMPORAL_FIELDS,
    overwrites_diffs=True,
    row_wise=True,
    dtype_policy="products",
    weight_axes=5,
    blob_names=("weight", "bias"),
    origin="C3D",
    restrictions=_RESTRICTIONS,
)
def deconvolution3d(params: Params, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Apply the transpose of Convolution3D: multiply the kernel by each value, and add products where windows overlap.

    The bottom has shape (N, C, length, height, width), and the top (N, num_output, length', height', width'). A size n
    becomes stride * (n - 1) + kernel - 2 * pad. The weight has shape (C, num_output, kernel_depth, kernel_size,
    kernel_size), and the bias has shape (1, 1, 1, 1, num_output). As in C3D, bias_term is read from convolution_param
    even if convolution3d_param contains the other settings.
    """
    weight, *bias = params.values()
    c = volume_convolution_op(ctx, x)
    return c.add_bias(c.transpose(x, weight, _transposed_size(c, x)), *(b.reshape(-1) for b in bias))


@deconvolution3d.params
def deconvolution3d_params(p: ConvolutionParameter, x: Any, *, ctx: Context) -> list[ParamSpec]:
    volume, c = _read_param(ctx), volume_convolution_op(ctx, x)
    return _weight_and_bias_specs(volume, (x.shape[1], volume.num_output, *c.window.kernel), p.bias_term)


@deconvolution3d.backward
def deconvolution3d_backward(
    params: Params, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[Arrays, jax.Array]:
    weight, *bias = params.values()
    c = volume_convolution_op(ctx, x)
    d_bias = (c.bias_diff(dy).reshape(b.shape) for b in bias)
    return (c.weight_diff(dy, x), *d_bias), c(dy, weight)


def _read_param(ctx: Context) -> Any:
    return volume_param(ctx, "convolution3d_param")


def volume_convolution_op(ctx: Context, x: Any) -> ConvolutionOp:
    """Return the cross-correlation that the layer's settings define for a bottom (N, C, length, height, width).

    Raises:
        LayerError: if settings are missing or invalid, or the bottom does not have five axes.
    """
    p = _read_param(ctx)
    volume_size(x)
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    filter_groups = getattr(p, "filter_group", 1)
    require(
        filter_groups > 0 and p.num_output % filter_groups == 0,
        f"num_output {p.num_output} must be a multiple of filter_group {filter_groups}",
    )
    return ConvolutionOp(volume_window(p), axis=1, group=1, fast=ctx.fast)


def _weight_and_bias_specs(p: Any, shape: Shape, has_bias: bool) -> list[ParamSpec]:
    bias = ParamSpec((1, 1, 1, 1, p.num_output), p.bias_filler, name="bias")
    return [ParamSpec(shape, p.weight_filler, name="weight"), *([bias] if has_bias else [])]


def _transposed_size(c: ConvolutionOp, x: jax.Array) -> Shape:
    w = c.window
    axes = zip(c.spatial_shape(x), w.stride, w.kernel, w.low, strict=True)
    size = tuple(stride * (n - 1) + kernel - 2 * pad for n, stride, kernel, pad in axes)
    require(
        all(n > 0 for n in size), f"the top would be empty: input {c.spatial_shape(x)}, kernel {w.kernel}, pad {w.low}"
    )
    return size


@register(
    "Pooling3D",
    param="pooling_param",
    further_params=("pooling3d_param",),
    fork_settings=TEMPORAL_FIELDS,
    overrides_autodiff=True,
    row_wise=True,
    dtype_policy="bottoms",
    origin="C3D",
    restrictions="pad needs AVE and does not apply to time; STOCHASTIC is an error, as in C3D.",
)
def pooling3d(x: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the maxima (MAX) or averages (AVE) over windows of length, height and width.

    The bottom has shape (N, C, length, height, width), and the top (N, C, length', height', width'). The sizes of the
    top are rounded up, so the last window may extend beyond the bottom. AVE divides by the number of cells of the
    window inside the padded volume, including the padding. With MAX, every position equal to the maximum of a window
    gets the full gradient of that window. Settings are read from pooling3d_param if it is set. Otherwise they are read
    from pooling_param, as in C3D 1.0, with the additional fields kernel_depth and temporal_stride.
    """
    return pool_windows(x, *volume_windows(ctx, x))


@pooling3d.backward
def pooling3d_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context) -> jax.Array:
    return pool_windows_diff(x, y, dy, *volume_windows(ctx, x))


def pool_windows(x: jax.Array, method: str, window: Window, output_size: Shape) -> jax.Array:
    """Return the maximum or the average of x in each window, (N, C, *output_size).

    Args:
        x: (N, C, *spatial).
        method: "MAX" or "AVE".
        window: the window over all spatial axes.
        output_size: the number of windows along each spatial axis.
    """
    if method == "MAX":
        return _window_maxima(x, window)
    total = _reduce_windows(lax.add, 0, promote(x), window)
    return (total / _window_volumes(total, x, window, output_size)).astype(x.dtype)


def pool_windows_diff(
    x: jax.Array, y: jax.Array, dy: jax.Array, method: str, window: Window, output_size: Shape
) -> jax.Array:
    """Return the gradient of `pool_windows` with respect to x, (N, C, *spatial).

    Args:
        x: (N, C, *spatial).
        y: the result of `pool_windows`, (N, C, *output_size).
        dy: the gradient with respect to y, (N, C, *output_size).
        method, window, output_size: the arguments of `pool_windows`.
    """
    if method == "AVE":
        return _spread_diffs(promote(dy) / _window_volumes(promote(dy), x, window, output_size), window, x)
    padded_x = lax.pad(x, jnp.asarray(-np.inf, x.dtype), [(0, 0, 0), (0, 0, 0), *((*p, 0) for p in window.padding)])
    size, dx = padded_x.shape[2:], jnp.zeros_like(padded_x)
    # for each cell of the kernel, add the gradients of the windows that have their maximum in this cell
    for cells in window.cells(output_size):
        d_cells = jnp.where(padded_x[(..., *cells)] == y, dy, 0)
        padding = [(c.start, n - c.stop, c.step - 1) for c, n in zip(cells, size, strict=True)]
        dx += lax.pad(d_cells, jnp.zeros((), d_cells.dtype), [(0, 0, 0), (0, 0, 0), *padding])
    return _crop_padding(dx, window, x)


def volume_windows(ctx: Context, x: Any) -> tuple[str, Window, Shape]:
    """Return the method ("MAX" or "AVE"), the window, and the size (length, height, width) of the top.

    The window's padding at the end of each axis is large enough for the last window.

    Raises:
        LayerError: if settings are missing or invalid, or the bottom does not have five axes.
    """
    p, size = volume_param(ctx, "pooling3d_param"), volume_size(x)
    method = str(p.PoolMethod.Name(p.pool))
    require(method in ("MAX", "AVE"), f"pool: {method} is not supported; use MAX or AVE")
    window = volume_window(p)
    (temporal_pad, *pads), kernel, stride = window.low, window.kernel, window.stride
    require(temporal_pad == 0, f"padding in time is not supported, but temporal_pad is {temporal_pad}")
    require(method == "AVE" or not any(pads), f"MAX pooling does not support padding, but pad is {pads[0]}")
    output_size = tuple(
        math.ceil((n + 2 * a - k) / s) + 1 for n, k, s, a in zip(size, kernel, stride, window.low, strict=True)
    )
    require(
        all(o > 0 for o in output_size), f"the kernel {kernel} does not fit the volume {size} with pad {window.low}"
    )
    starts = [(o - 1) * s - a for o, s, a in zip(output_size, stride, window.low, strict=True)]
    require(
        all(start < n for start, n in zip(starts, size, strict=True)),
        f"the last window begins beyond the volume {size}: kernel {kernel}, stride {stride}, pad {window.low}",
    )
    return method, window.fit_padding(size, output_size).drop_negative_padding(size), output_size


def _window_maxima(x: jax.Array, window: Window) -> jax.Array:
    numbers = jnp.where(jnp.isnan(x), -jnp.inf, x)  # C3D compares with `>`, so NaN is never a maximum
    return _reduce_windows(lax.max, -np.inf, numbers, window)


def _reduce_windows(combine: Any, initial: float, x: jax.Array, window: Window) -> jax.Array:
    y: jax.Array = lax.reduce_window(
        x,
        np.array(initial, x.dtype),
        combine,
        (1, 1, *window.kernel),
        (1, 1, *window.stride),
        ((0, 0), (0, 0), *window.padding),
    )
    return y


def _spread_diffs(d_cells: jax.Array, window: Window, x: jax.Array) -> jax.Array:
    """Return the gradient of each cell of x, (N, C, *spatial): the sum over all windows that contain the cell.

    Args:
        d_cells: (N, C, *output_size), for each window the gradient that it passes to each of its cells.
        window: the window over all spatial axes.
        x: (N, C, *spatial).
    """
    size = [n + low + high for n, (low, high) in zip(x.shape[2:], window.padding, strict=True)]
    axes = zip(size, d_cells.shape[2:], window.stride, window.kernel, strict=True)
    padding = [(k - 1, n - 1 - (o - 1) * s, s - 1) for n, o, s, k in axes]
    dilated = lax.pad(d_cells, jnp.zeros((), d_cells.dtype), [(0, 0, 0), (0, 0, 0), *padding])
    n = len(window.kernel)
    dense_window = Window.symmetric(window.kernel, (1,) * n, (0,) * n)
    return _crop_padding(_reduce_windows(lax.add, 0, dilated, dense_window), window, x)


def _crop_padding(dx: jax.Array, window: Window, x: jax.Array) -> jax.Array:
    interior_slices = (slice(low, low + n) for low, n in zip(window.low, x.shape[2:], strict=True))
    return dx[(..., *interior_slices)]


def _window_volumes(reference: jax.Array, x: jax.Array, window: Window, output_size: Shape) -> jax.Array:
    return host_constant(partial(_count_cells, x.shape[2:], window, output_size), output_size, reference.dtype)


def _count_cells(size: Shape, window: Window, output_size: Shape) -> np.ndarray:
    """Return the number of cells in each window that are inside the padded volume, float32 (*output_size,).

    All axes are padded by `window.low` at both ends.
    """
    lengths = []
    for n, kernel, stride, low, o in zip(size, window.kernel, window.stride, window.low, output_size, strict=True):
        start = np.arange(o) * stride - low
        lengths.append(np.minimum(start + kernel, n + low) - start)
    return reduce(np.multiply.outer, lengths).astype(np.float32)


@register("VoxelSoftmax", row_wise=True, origin="C3D")
def voxel_softmax(x: jax.Array) -> jax.Array:
    """Compute the softmax over the C channels at each voxel of (N, C, length, height, width)."""
    volume_size(x)
    return jax.nn.softmax(promote(x), 1).astype(x.dtype)


@voxel_softmax.backward
def voxel_softmax_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return y * (dy - jnp.sum(dy * y, axis=1, keepdims=True))


@register(
    "VoxelSoftmaxLoss",
    bottoms=2,
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,)),
    counts_rows=True,
    origin="C3D",
)
def voxel_softmax_loss(scores: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Compute the mean over all voxels of -log(softmax probability of the voxel's label) as a scalar.

    Bottoms: scores (N, C, length, height, width) and labels (N, 1, length, height, width). A voxel with a label of C or
    more adds nothing to the sum, but is counted in the divisor. A negative label makes the loss NaN. The gradient with
    respect to the scores is the softmax minus the one-hot label, divided by the number of voxels.
    """
    is_label, is_valid, num_voxels = _read_voxels(ctx, scores, labels)
    log_likelihood = sum_rows(ctx, jnp.where(is_label, jax.nn.log_softmax(promote(scores), 1), 0))
    return jnp.where(is_valid, -log_likelihood / num_voxels, jnp.nan)


@voxel_softmax_loss.backward
def voxel_softmax_loss_backward(
    scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    is_label, _, num_voxels = _read_voxels(ctx, scores, labels)
    return dy / num_voxels * (jax.nn.softmax(promote(scores), 1) - is_label), None


def _read_voxels(ctx: Context, scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
    """Return the one-hot mask of the labels, a bool scalar, and the number of voxels.

    The mask has the shape of the scores, (N, C, length, height, width). The scalar is False if any label is negative.
    """
    volume_size(scores)
    require_same_batch_size(scores.shape, labels.shape)
    expected = (scores.shape[0], 1, *scores.shape[2:])
    require(labels.shape == expected, f"needs a label for each voxel, of shape {expected}, not {labels.shape}")
    is_label = one_hot_mask(labels, scores.shape)
    num_voxels = batch_size(ctx, labels) * max(math.prod(labels.shape[1:]), 1)
    return is_label, jnp.all(labels.astype(jnp.int32) >= 0), num_voxels
