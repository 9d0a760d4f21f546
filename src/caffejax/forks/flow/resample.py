"""Resample, Downsample and Accum, which resize maps by one matrix for the rows and one matrix for the columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.ops.host_constant import host_constant
from ...core.schema.caffe_pb2 import AccumParameter, DownsampleParameter, ResampleParameter
from ..general.settings_checks import check_plane_size

Coefficients = Callable[[np.ndarray], np.ndarray]


class ResizeMatrix(NamedTuple):
    """The interpolation weights along one axis, (out_size, in_size), computed by `make_weights`."""

    out_size: int
    in_size: int
    make_weights: Callable[[int, int], np.ndarray]


def apply_matrices(x: jax.Array, rows: ResizeMatrix, columns: ResizeMatrix) -> jax.Array:
    """Return maps (N, C, H, W) resized to (N, C, H', W').

    Args:
        x: the maps.
        rows: the matrix for the rows, (H', H).
        columns: the matrix for the columns, (W', W).
    """
    return _apply_matrices(promote(x), _make_array(rows, x), _make_array(columns, x))


def apply_transposed_matrices(x: jax.Array, dy: jax.Array, rows: ResizeMatrix, columns: ResizeMatrix) -> jax.Array:
    """Return the gradient of `apply_matrices` with respect to x. dy is the gradient of the resized maps."""
    return _apply_matrices(promote(dy), _make_array(rows, x).T, _make_array(columns, x).T)


def corner_aligned_weights(out_size: int, in_size: int) -> np.ndarray:
    """Return the weights (out_size, in_size) of linear interpolation at `out_size` positions with aligned corners.

    Aligned corners mean that the first and the last position are at the first and the last cell.
    """
    position = np.arange(out_size) * ((in_size - 1) / max(out_size - 1, 1))
    return triangle(position[:, None] - np.arange(in_size))


def averaging_weights(out_size: int, in_size: int) -> np.ndarray:
    """Return triangular weights (out_size, in_size) for averages around `out_size` positions with aligned corners.

    The weights of a position decrease to 0 at the neighbouring positions.
    """
    step = (in_size - 1) / (out_size - 1)
    return triangle((np.arange(out_size)[:, None] * step - np.arange(in_size)) / step)


def filter_weights(
    out_size: int, in_size: int, offset: float, filter_: tuple[Coefficients, int], antialias: bool
) -> np.ndarray:
    """Return the weights (out_size, in_size) of a filter that is centred at evenly spaced positions.

    The weights of each position sum to 1, or are all 0.

    Args:
        out_size: the number of positions.
        in_size: the number of cells.
        offset: the first position, in cells.
        filter_: a function that maps distances in cells to weights, and the width of the filter in cells.
        antialias: whether to stretch the filter by in_size / out_size.
    """
    coefficients, width = filter_
    ratio = in_size / out_size
    position = np.arange(out_size) * ratio + offset
    stretch = ratio if antialias else 1.0
    radius = 2 if ratio < 1 else int(np.ceil(width * stretch))
    sources = np.arange(in_size)
    weights = coefficients((position[:, None] - sources) / stretch)
    weights = np.where(np.abs(round_half_away(position)[:, None] - sources) <= radius, weights, 0)
    total = weights.sum(1, keepdims=True)
    return np.where(total == 0, 0, weights / np.where(total == 0, 1, total))


def nearest_weights(out_size: int, in_size: int, offset: float) -> np.ndarray:
    """Return weights (out_size, in_size) that are 1 for the cell nearest to a position, and otherwise 0."""
    position = np.clip(round_half_away(np.arange(out_size) * (in_size / out_size) + offset), 0, in_size - 1)
    return (position[:, None] == np.arange(in_size)).astype(float)


def round_half_away(x: np.ndarray) -> np.ndarray:
    """Round to integers; halves are rounded away from 0."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def triangle(x: np.ndarray) -> np.ndarray:
    """Return the weights of linear interpolation for cells at distances x."""
    return np.maximum(1 - np.abs(x), 0)


def cubic(x: np.ndarray) -> np.ndarray:
    """Return the weights of cubic convolution interpolation (a = -0.5) for cells at distances x."""
    x = np.abs(x)
    return np.where(x <= 1, (1.5 * x - 2.5) * x**2 + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0))


def _apply_matrices(x: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    # the batch is the first axis of each product, so a sharded batch stays on its devices
    resized_columns = jnp.tensordot(x, columns, ([3], [1]))  # n, c, h, j
    return jnp.moveaxis(jnp.tensordot(resized_columns, rows, ([2], [1])), 3, 2)


def _make_array(matrix: ResizeMatrix, x: jax.Array) -> jax.Array:
    out_size, in_size, make_weights = matrix
    return host_constant(partial(make_weights, out_size, in_size), (out_size, in_size), promote(x).dtype)


_FILTERS = {"LINEAR": (triangle, 2), "CUBIC": (cubic, 4)}


@register(
    "Resample",
    bottoms=(1, 2),
    param="resample_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    origin="FlowNet 2",
    restrictions="AREA is an error, as in FlowNet 2.",
)
def resample(p: ResampleParameter, x: jax.Array, *reference: jax.Array) -> jax.Array:
    """Resize (N, C, H, W) to height x width, or to the size of a second bottom, by a NEAREST, LINEAR or CUBIC filter.

    If the map shrinks, the filter is stretched by the ratio of the sizes, unless antialias is false. As in FlowNet 2,
    the offset of the columns is computed from the ratio of the heights, and the offset of the rows from the ratio of
    the widths.
    """
    return apply_matrices(x, *_make_matrices(p, x, *reference)).astype(x.dtype)


@resample.backward
def resample_backward(
    p: ResampleParameter, x: jax.Array, *reference: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[Any, ...]:
    return apply_transposed_matrices(x, dy, *_make_matrices(p, x, *reference)), *(None for _ in reference)


@register(
    "Downsample",
    bottoms=(1, 2),
    param="downsample_param",
    in_place=False,
    stops_gradient=True,
    row_wise=True,
    origin="FlowNet 2",
)
def downsample(p: DownsampleParameter, x: jax.Array, *reference: jax.Array) -> jax.Array:
    """Resize (N, C, H, W) to top_height x top_width, or to the size of a second bottom, by averages that ignore NaNs.

    Weights are triangular, and corners are aligned. A position is NaN if the total weight of its NaNs is more than half
    the total weight of its other values.
    """
    size = _output_size(p, ("top_height", "top_width"), x, *reference)
    if size == tuple(x.shape[2:]):
        return x
    require(all(n > 1 for n in size), f"the new size must be 2 or more in both directions, not {size}")
    matrices = [
        ResizeMatrix(out_size, in_size, averaging_weights) for out_size, in_size in zip(size, x.shape[2:], strict=True)
    ]
    is_nan = jnp.isnan(x)
    values, weight, nan_weight = (
        apply_matrices(maps, matrices[0], matrices[1])
        for maps in (jnp.where(is_nan, 0, x), (~is_nan).astype(x.dtype), is_nan.astype(x.dtype))
    )
    mean = values / jnp.where(weight > 0, weight, 1)
    return jnp.where((nan_weight > 0.5 * weight) | (weight <= 0), jnp.nan, mean).astype(x.dtype)


@register(
    "Accum",
    bottoms=(1, None),
    param="accum_param",
    in_place=False,
    row_wise=True,
    dtype_policy="bottoms",
    origin="FlowNet 2",
)
def accum(p: AccumParameter, *bottoms: jax.Array) -> jax.Array:
    """Resize all bottoms (N, C, H, W) to one size with aligned corners, and concatenate them along the channels.

    With have_reference, the last bottom determines the size and is not concatenated. Otherwise the size is the largest
    height and the largest width of the bottoms. It is top_height x top_width instead if both are larger. With
    size_divisible_by, top_height and top_width are replaced by the largest height and the largest width, each rounded
    up to a multiple of size_divisible_by.
    """
    inputs, size = _read_inputs_and_size(p, bottoms)
    matrices = [_make_aligned_matrices(x, size) for x in inputs]
    resized = [apply_matrices(x, *m).astype(bottoms[0].dtype) for x, m in zip(inputs, matrices, strict=True)]
    return jnp.concatenate(resized, axis=1)


@accum.backward
def accum_backward(p: AccumParameter, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    inputs, size = _read_inputs_and_size(p, bottoms)
    ends = np.cumsum([x.shape[1] for x in inputs])
    top_diffs = jnp.split(promote(dy), ends[:-1], axis=1)
    diffs = (
        apply_transposed_matrices(x, d, *_make_aligned_matrices(x, size))
        for x, d in zip(inputs, top_diffs, strict=True)
    )
    return *diffs, *(None for _ in bottoms[len(inputs) :])


def _output_size(p: Any, names: tuple[str, str], x: Any, *reference: Any) -> Shape:
    for i, shape in enumerate(b.shape for b in (x, *reference)):
        require(len(shape) == 4, f"bottom {i} needs 4 axes (number, channels, height, width), not shape {shape}")
    size = tuple(reference[0].shape[2:]) if reference else tuple(getattr(p, name) for name in names)
    require(
        all(n > 0 for n in size),
        f"the top would have size {size}: set {names[0]} and {names[1]} to positive values, or add a second bottom",
    )
    check_plane_size(size, x.shape)
    return size


def _make_matrices(p: ResampleParameter, x: Any, *reference: Any) -> tuple[ResizeMatrix, ResizeMatrix]:
    method = str(p.ResampleType.Name(p.type))
    require(method in ("NEAREST", *_FILTERS), f"type: {method} is not supported; use NEAREST, LINEAR or CUBIC")
    size, in_size = _output_size(p, ("height", "width"), x, *reference), x.shape[2:]
    ratios = [old / new for old, new in zip(in_size, size, strict=True)]
    offsets = [ratio / 2 - 0.5 for ratio in reversed(ratios)]
    make_weights: Callable[..., np.ndarray]
    if method == "NEAREST":
        make_weights = nearest_weights
    else:
        make_weights = partial(filter_weights, filter_=_FILTERS[method], antialias=p.antialias and max(ratios) > 1)
    rows, columns = (
        ResizeMatrix(new, old, partial(make_weights, offset=offset))
        for new, old, offset in zip(size, in_size, offsets, strict=True)
    )
    return rows, columns


def _make_aligned_matrices(x: Any, size: Shape) -> tuple[ResizeMatrix, ResizeMatrix]:
    return ResizeMatrix(size[0], x.shape[2], corner_aligned_weights), ResizeMatrix(
        size[1], x.shape[3], corner_aligned_weights
    )


def _read_inputs_and_size(p: AccumParameter, bottoms: tuple[Any, ...]) -> tuple[tuple[Any, ...], Shape]:
    """Return the bottoms that are resized, and (height, width) of the top."""
    for i, shape in enumerate(b.shape for b in bottoms):
        require(len(shape) == 4, f"bottom {i} needs 4 axes (number, channels, height, width), not shape {shape}")
        require(
            shape[0] == bottoms[0].shape[0], f"bottoms need equal numbers of images, not {bottoms[0].shape} and {shape}"
        )
    if p.have_reference:
        require(len(bottoms) > 1, "have_reference: true needs two bottoms or more; the last determines the size")
        return bottoms[:-1], tuple(bottoms[-1].shape[2:])
    largest_size = tuple(max(b.shape[axis] for b in bottoms) for axis in (2, 3))
    target_size = (p.top_height, p.top_width)
    if p.HasField("size_divisible_by"):
        require(p.size_divisible_by > 0, f"size_divisible_by must be positive, not {p.size_divisible_by}")
        target_size = tuple(math.ceil(n / p.size_divisible_by) * p.size_divisible_by for n in largest_size)
    size = target_size if all(w > n for w, n in zip(target_size, largest_size, strict=True)) else largest_size
    check_plane_size(size, bottoms[0].shape)
    return bottoms, size
