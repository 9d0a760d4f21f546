"""Interp, ResizeBilinear and Padding, which resize maps by bilinear interpolation, and pad or crop them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.types import SecondReading
from ...core.ops.custom_gradient import make_differentiable
from ...core.ops.host_constant import host_constant
from ...core.schema.caffe_pb2 import InterpParameter, LayerParameter, PaddingParameter, ResizeBilinearParameter
from ..general.settings_checks import check_plane_size


class SamplePositions(NamedTuple):
    """Positions in the bottom at which the cells of the top are sampled, along one axis.

    Attributes:
        low: (cells,), the index of the bottom's cell at or before each position.
        fraction: (cells,), the distance of the position from that cell, at least 0 and below 1.
    """

    low: np.ndarray
    fraction: np.ndarray


def interpolate(x: jax.Array, positions: Sequence[SamplePositions], *, fast: bool) -> jax.Array:
    """Interpolate x bilinearly at all pairs of positions along height and width; return (N, C, rows, columns).

    Integers become float32.

    Args:
        x: (N, C, H, W).
        positions: the positions along the height and along the width.
        fast: whether the gradient is computed by a product with a matrix of weights instead of a scatter.
    """
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    size = (x.shape[2], x.shape[3])

    def forward(x: jax.Array) -> tuple[jax.Array, tuple[()]]:
        y = promote(x)
        for axis in _axis_order(size, positions):
            y = _interpolate_axis(y, axis, positions[axis - 2])
        return y.astype(dtype), ()

    def backward(_: Any, dy: jax.Array, needed: Any) -> tuple[jax.Array]:
        return (interpolate_diff(dy, positions, size).astype(dtype),)

    if not fast or not jnp.issubdtype(x.dtype, jnp.floating):
        return forward(x)[0]
    y: jax.Array = make_differentiable(forward, backward)(x)
    return y


def interpolate_diff(dy: jax.Array, positions: Sequence[SamplePositions], size: Sequence[int]) -> jax.Array:
    """Return the gradient of `interpolate` with respect to x, (N, C, *size); dy is the gradient of its result."""
    diff = promote(dy)
    for axis in reversed(_axis_order(size, positions)):
        axis_positions, n = positions[axis - 2], size[axis - 2]
        weights = host_constant(partial(_weight_matrix, axis_positions, n), (len(axis_positions.low), n), diff.dtype)
        diff = jnp.moveaxis(jnp.tensordot(diff, weights, (axis, 0)), -1, axis)
    return diff


def _axis_order(size: Sequence[int], positions: Sequence[SamplePositions]) -> list[int]:
    """Return the axes (2, 3) that interpolation changes, in the order in which they are interpolated.

    The axis that grows less comes first, because this needs fewer operations.
    """
    growth = {axis: len(p.low) / n for axis, n, p in zip((2, 3), size, positions, strict=True)}
    is_changed = {2: _is_changed(positions[0], size[0]), 3: _is_changed(positions[1], size[1])}
    return [axis for axis in sorted(growth, key=growth.__getitem__) if is_changed[axis]]


def _is_changed(positions: SamplePositions, n: int) -> bool:
    return len(positions.low) != n or bool(np.any(positions.fraction)) or bool(np.any(positions.low != np.arange(n)))


def _interpolate_axis(x: jax.Array, axis: int, positions: SamplePositions) -> jax.Array:
    low, fraction = positions
    steps = np.diff(low)
    if not np.any(fraction) and np.all(steps > 0) and np.all(steps == steps[:1]):  # a strided slice suffices
        return lax.slice_in_dim(x, int(low[0]), int(low[-1]) + 1, int(steps[0]) if len(steps) else 1, axis)
    broadcast_shape = (-1, *(1,) * (x.ndim - axis - 1))
    broadcast_fraction = jnp.asarray(fraction, x.dtype).reshape(broadcast_shape)
    low_values = jnp.take(x, low, axis=axis)
    return (
        low_values * (1 - broadcast_fraction)
        + jnp.take(x, _next_cells(low, x.shape[axis]), axis=axis) * broadcast_fraction
    )


def _next_cells(low: np.ndarray, n: int) -> np.ndarray:
    return np.minimum(low + 1, n - 1)


def _weight_matrix(positions: SamplePositions, n: int) -> np.ndarray:
    """Return the weight of each of the bottom's n cells in each cell of the top along an axis, (top, n)."""
    rows, matrix = np.arange(len(positions.low)), np.zeros((len(positions.low), n))
    np.add.at(matrix, (rows, positions.low), 1 - positions.fraction)
    np.add.at(matrix, (rows, _next_cells(positions.low, n)), positions.fraction)
    return matrix


def _read_as_openvino(layer: LayerParameter) -> bool:
    """Set full_zoom_factor instead of zoom_factor; return whether a layer had this.

    OpenVINO multiplies the size n by the factor. DeepLab's Interp computes n + (n - 1) * (factor - 1) instead.
    """
    p = layer.interp_param
    if not p.HasField("zoom_factor"):
        return False
    p.full_zoom_factor = p.zoom_factor
    p.ClearField("zoom_factor")
    return True


@register(
    "Interp",
    bottoms=(1, 2),
    param="interp_param",
    in_place=False,
    aliases=("INTERP",),
    second_reading=SecondReading(
        _read_as_openvino,
        "Interp's zoom_factor is read as a factor of sizes, as in OpenVINO, because otherwise the shapes would not fit",
    ),
    row_wise=True,
    row_bottoms=(0,),
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="DeepLab, PSPNet",
    restrictions="No padding: pad_beg and pad_end must be 0 or negative, as in the fork.",
)
def interp(p: InterpParameter, x: jax.Array, *reference: jax.Array, fast: bool) -> jax.Array:
    """Resize (N, C, H, W) by bilinear interpolation with aligned corners.

    A second bottom (.., .., height, width) gives the size of the top. Its values are not used, and it allows no size
    settings. With one bottom it is `height` x `width` if both are set, and neither or both of shrink_factor and
    a zoom factor are set. Otherwise a size n becomes (n - 1) / shrink_factor + 1 with a shrink_factor, then n + (n - 1)
    * (zoom_factor - 1) with a zoom_factor, or n * full_zoom_factor with a full_zoom_factor. As in OpenVINO, a
    zoom_factor is read as a full_zoom_factor if the shapes of the net's blobs fit only that. Negative pad_beg and
    pad_end first crop the bottom.
    """
    (begin, end), size = _interp_crop(p, x), _interp_size(p, x, *reference)
    cropped = lax.slice(x, (0, 0, begin, begin), (*x.shape[:2], *end))
    return interpolate(cropped, _interp_positions(p, x, size), fast=fast)


@interp.backward
def interp_backward(
    p: InterpParameter, x: jax.Array, *reference: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    (begin, end), size = _interp_crop(p, x), _interp_size(p, x, *reference)
    d_cropped = interpolate_diff(dy, _interp_positions(p, x, size), (end[0] - begin, end[1] - begin))
    borders = [(0, 0), (0, 0), *((begin, n - stop) for n, stop in zip(x.shape[2:], end, strict=True))]
    return jnp.pad(d_cropped, borders).astype(x.dtype), *(None for _ in reference)


def _interp_crop(p: InterpParameter, x: Any) -> tuple[int, Shape]:
    """Return the first row and column (one index) that remain after cropping, and the (row, column) after the last."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    require(
        p.pad_beg <= 0 and p.pad_end <= 0,
        f"pad_beg {p.pad_beg} and pad_end {p.pad_end} must not be positive: they only crop",
    )
    end = tuple(n + p.pad_end for n in x.shape[2:])
    require(min(end) > -p.pad_beg, f"pad_beg {p.pad_beg} and pad_end {p.pad_end} crop all of the plane {x.shape[2:]}")
    return -p.pad_beg, end


_INTERP_SIZE_FIELDS = ("height", "width", "shrink_factor", "zoom_factor", "full_zoom_factor")


def _interp_size(p: InterpParameter, x: Any, *reference: Any) -> Shape:
    if reference:
        shape, fields = tuple(reference[0].shape), [name for name in _INTERP_SIZE_FIELDS if p.HasField(name)]
        require(len(shape) == 4, f"needs a second bottom with 4 axes (num, channels, height, width), not {shape}")
        require(not fields, f"the second bottom gives the size; remove it, or remove {', '.join(fields)}")
        return shape[2:]
    begin, end = _interp_crop(p, x)
    cropped_size = tuple(n - begin for n in end)
    for name in ("shrink_factor", "zoom_factor", "full_zoom_factor"):
        require(getattr(p, name) >= 1, f"{name} must be at least 1, not {getattr(p, name)}")
    has_shrink, has_zoom = p.HasField("shrink_factor"), p.HasField("zoom_factor") or p.HasField("full_zoom_factor")
    if p.HasField("height") and p.HasField("width") and has_shrink == has_zoom:
        require(p.height > 0 and p.width > 0, f"height {p.height} and width {p.width} must be positive")
        return p.height, p.width
    require(has_shrink or has_zoom, "needs height and width, a shrink_factor, a zoom_factor or a second bottom")
    shrunk_size = tuple((n - 1) // p.shrink_factor + 1 for n in cropped_size)
    return tuple((n + (n - 1) * (p.zoom_factor - 1)) * p.full_zoom_factor for n in shrunk_size)


def _interp_positions(p: InterpParameter, x: Any, size: Shape) -> tuple[SamplePositions, SamplePositions]:
    check_plane_size(size, x.shape)
    begin, end = _interp_crop(p, x)
    rows, columns = (_align_corners_positions(stop - begin, n) for stop, n in zip(end, size, strict=True))
    return rows, columns


def _align_corners_positions(n: int, output_length: int) -> SamplePositions:
    num_intervals = max(output_length - 1, 1)
    low, remainder = np.divmod(np.arange(output_length) * (n - 1 if output_length > 1 else 0), num_intervals)
    return SamplePositions(low, remainder / num_intervals)


_QUANTIZATION_FIELDS = ("input_scale", "output_scale", "input_zero_point", "output_zero_point", "saturate")
_HEIGHT_AXES = {"NHWC": 1, "NCHW": 2}  # the axis of the height, by data_format


@register(
    "ResizeBilinear",
    param="resize_bilinear_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="synopsys-caffe",
    restrictions="NCHWD and quantized values are not supported. No recorded case.",
)
def resize_bilinear(p: ResizeBilinearParameter, x: jax.Array, *, fast: bool) -> jax.Array:
    """Resize images bilinearly to output_height x output_width, or by the factors scale_height and scale_width.

    The bottom is (N, H, W, C) with data_format NHWC, or (N, C, H, W) with NCHW. Row or column i of the top is sampled
    at position i * size / output size of the bottom. With align_corners, the position is i * (size - 1) / (output size
    - 1). With half_pixel_centers or pytorch_half_pixel, it is (i + 0.5) * size / output size - 0.5. Positions outside
    the map get the first or last pixel.
    """
    is_channels_last = _HEIGHT_AXES[_read_format(p, x)] == 1
    planes = x.transpose(0, 3, 1, 2) if is_channels_last else x
    top = interpolate(planes, _resize_positions(p, x), fast=fast)
    return top.transpose(0, 2, 3, 1) if is_channels_last else top


@resize_bilinear.backward
def resize_bilinear_backward(p: ResizeBilinearParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    height_axis = _HEIGHT_AXES[_read_format(p, x)]
    planes = dy.transpose(0, 3, 1, 2) if height_axis == 1 else dy
    diff = interpolate_diff(planes, _resize_positions(p, x), x.shape[height_axis : height_axis + 2])
    return (diff.transpose(0, 2, 3, 1) if height_axis == 1 else diff).astype(x.dtype)


def _read_format(p: ResizeBilinearParameter, x: Any) -> str:
    require(p.data_format in _HEIGHT_AXES, f"data_format '{p.data_format}' is not supported; use NHWC or NCHW")
    require(len(x.shape) == 4, f"needs a bottom with 4 axes, {p.data_format}, not shape {x.shape}")
    quantization_fields = [
        name for name in _QUANTIZATION_FIELDS if getattr(p, name) != p.DESCRIPTOR.fields_by_name[name].default_value
    ]
    require(not quantization_fields, f"{', '.join(quantization_fields)}: quantized values are not supported")
    modes = [name for name in ("align_corners", "half_pixel_centers", "pytorch_half_pixel") if getattr(p, name)]
    require(len(modes) <= 1, f"{' and '.join(modes)} cannot be combined; set only one of them")
    return str(p.data_format)


def _resize_positions(p: ResizeBilinearParameter, x: Any) -> tuple[SamplePositions, SamplePositions]:
    height_axis = _HEIGHT_AXES[_read_format(p, x)]
    input_size, channels = x.shape[height_axis : height_axis + 2], x.shape[3 if height_axis == 1 else 1]
    output_size = _output_side(p, "height", input_size[0]), _output_side(p, "width", input_size[1])
    check_plane_size(output_size, (x.shape[0], channels))
    rows, columns = (
        _resize_axis_positions(p, n, output_length) for n, output_length in zip(input_size, output_size, strict=True)
    )
    return rows, columns


def _output_side(p: Any, name: str, n: int) -> int:
    if p.HasField(f"output_{name}"):
        side = getattr(p, f"output_{name}")
    else:
        scale = getattr(p, f"scale_{name}")
        require(np.isfinite(scale), f"scale_{name} must be a number, not {scale}")
        side = int(np.floor(np.float32(n) * np.float32(scale)))
    require(side > 0, f"output_{name}, or scale_{name} of a size of {n}, must give 1 pixel or more, not {side}")
    return int(side)


def _resize_axis_positions(p: Any, n: int, output_length: int) -> SamplePositions:
    index = np.arange(output_length, dtype=np.float32)
    aligns_corners = p.align_corners and output_length > 1
    step = (
        np.float32(n - 1) / np.float32(output_length - 1)
        if aligns_corners
        else np.float32(n) / np.float32(output_length)
    )
    half = np.float32(0.5)
    if p.half_pixel_centers or (p.pytorch_half_pixel and output_length > 1):
        position = (index + half) * step - half
    else:
        position = np.zeros_like(index) if p.pytorch_half_pixel else index * step
    low = np.floor(position)
    return SamplePositions(np.clip(low, 0, n - 1).astype(int), np.where(position < 0, 0, position - low))


@register(
    "Padding",
    param="padding_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    accepts_integers=True,
    origin="DeepLab",
)
def padding(p: PaddingParameter, x: jax.Array) -> jax.Array:
    """Pad (N, C, H, W) with zeros: pad_beg rows and columns at the start, pad_end at the end. Negative values crop."""
    return _pad(x, *_read_padding(p, x))


@padding.backward
def padding_backward(p: PaddingParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    pad_begin, pad_end = _read_padding(p, x)
    return _pad(dy, -pad_begin, -pad_end)


def _read_padding(p: PaddingParameter, x: jax.Array) -> tuple[int, int]:
    pad_begin, pad_end = p.pad_beg, p.pad_end
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    cropped_size = [n + min(pad_begin, 0) + min(pad_end, 0) for n in x.shape[2:]]
    require(min(cropped_size) > 0, f"pad_beg {pad_begin} and pad_end {pad_end} crop all of the plane {x.shape[2:]}")
    return pad_begin, pad_end


def _pad(x: jax.Array, pad_begin: int, pad_end: int) -> jax.Array:
    return lax.pad(x, x.dtype.type(0), [(0, 0, 0)] * 2 + [(pad_begin, pad_end, 0)] * 2)
