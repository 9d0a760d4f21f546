"""Converters for gather, scatter and dynamic slices.

Most converters compute indices into the flattened array. A gather of full slices along one axis is a single node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..onnx_builder import OnnxValue, Shape, constant_value, node_output
from .converters import Equation, register_converter, unsupported_error
from .shape_primitives import add_slice

_REDUCTIONS = {
    "scatter": "none",
    "scatter-add": "add",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


@register_converter("gather")
def gather(eqn: Equation) -> OnnxValue:
    """Convert a gather of slices at computed indices."""
    (x, indices), p, b = eqn.inputs, eqn.params, eqn.builder
    oob_mode, d = out_of_bounds_mode(p["mode"]), p["dimension_numbers"]
    axis = _find_take_axis(x.shape, indices.shape, d, p["slice_sizes"])
    if axis is not None and oob_mode != "filled":
        return _take(eqn, x, indices, axis, clip=oob_mode == "clipped")
    if (start := _find_constant_start(x.shape, indices, d, p["slice_sizes"])) is not None:
        ends = [a + n for a, n in zip(start, p["slice_sizes"], strict=True)]
        slice_ = add_slice(eqn, x, start, ends, [1] * len(start))
        return (
            node_output(b.reshape(b.add_broadcast(slice_), eqn.shape), eqn.shape, x.dtype)
            if d.collapsed_slice_dims
            else slice_
        )
    index_builder = IndexBuilder(eqn, x.shape)
    starts = index_builder.start_indices(indices, d.start_index_map)
    batch_axes = [i for i in range(len(eqn.shape)) if i not in d.offset_dims]
    axes = [i for i in range(len(x.shape)) if i not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    offsets = {axis: index_builder.iota(eqn.shape, out) for axis, out in zip(axes, d.offset_dims, strict=True)}
    batch_indices = {
        axis: index_builder.iota(eqn.shape, _batch_axis(i, len(indices.shape), batch_axes))
        for axis, i in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True)
    }
    starts = {axis: index_builder.align(start, eqn.shape, batch_axes) for axis, start in starts.items()}
    valid_mask = index_builder.clip_or_mask(starts, p["slice_sizes"], oob_mode)
    terms = {
        axis: [v for v in (starts.get(axis), offsets.get(axis), batch_indices.get(axis)) if v is not None]
        for axis in range(len(x.shape))
    }
    flat_indices = index_builder.flat_indices(terms, eqn.shape)
    gathered_values = b.add_node(
        "Gather", [b.reshape(b.add_broadcast(x), (_num_elements(x.shape),)), flat_indices], axis=0
    )
    if valid_mask is not None:
        gathered_values = b.where(
            valid_mask, gathered_values, b.add_constant(_fill_value(p["fill_value"], x.dtype)), x.dtype
        )
    return node_output(gathered_values, eqn.shape, eqn.dtype)


@register_converter(*_REDUCTIONS)
def scatter(eqn: Equation) -> OnnxValue:
    """Convert a scatter of slices, in which values out of bounds go to an extra element that is removed at the end.

    For engines that take no more indices than values, there are more of these elements.
    """
    (x, indices, updates), p, b = eqn.inputs, eqn.params, eqn.builder
    oob_mode, d, reduction = out_of_bounds_mode(p["mode"]), p["dimension_numbers"], _REDUCTIONS[eqn.name]
    if b.opset < 18 and reduction in ("min", "max"):
        raise unsupported_error(f"it scatters with the reduction {reduction}, which needs opset 18, not {b.opset}")
    index_builder, shape = IndexBuilder(eqn, x.shape), updates.shape
    batch_axes = [i for i in range(len(shape)) if i not in d.update_window_dims]
    axes = [i for i in range(len(x.shape)) if i not in (*d.inserted_window_dims, *d.operand_batching_dims)]
    offsets = {axis: index_builder.iota(shape, dim) for axis, dim in zip(axes, d.update_window_dims, strict=True)}
    batch_indices = {
        axis: index_builder.iota(shape, _batch_axis(i, len(indices.shape), batch_axes))
        for axis, i in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True)
    }
    starts = index_builder.start_indices(indices, d.scatter_dims_to_operand_dims)
    starts = {axis: index_builder.align(start, shape, batch_axes) for axis, start in starts.items()}
    sizes: list[Any] = [1] * len(x.shape)
    for axis, dim in zip(axes, d.update_window_dims, strict=True):
        sizes[axis] = shape[dim]
    valid_mask = index_builder.clip_or_mask(starts, sizes, oob_mode)
    terms = {
        axis: [v for v in (starts.get(axis), offsets.get(axis), batch_indices.get(axis)) if v is not None]
        for axis in range(len(x.shape))
    }
    flat_indices = index_builder.flat_indices(terms, shape)
    num_elements, dtype = _num_elements(x.shape), np.int32 if x.dtype == bool else x.dtype
    end = b.sizes.add_size_vector(num_elements)
    if valid_mask is not None:
        flat_indices = b.add_node("Where", [valid_mask, flat_indices, end])
    values, update_values = (
        b.add_broadcast(v) if v.dtype == dtype else b.cast(b.add_broadcast(v), dtype) for v in (x, updates)
    )
    excess = _num_elements(shape) - num_elements
    num_extra = 1 if b.engine.scatters_into_fewer or not isinstance(excess, int) else max(1, excess)
    extra_values = b.add_broadcast(constant_value(np.zeros(1, dtype), (num_extra,)))
    extended_values = b.add_node("Concat", [b.reshape(values, (num_elements,)), extra_values], axis=0)
    operands = [b.reshape(name, (_num_elements(shape),)) for name in (flat_indices, update_values)]
    scattered_values = b.add_node(
        "ScatterElements", [extended_values, *operands], axis=0, reduction=reduction if reduction != "none" else None
    )
    sliced_values = b.add_node("Slice", [scattered_values, b.add_int64_vector([0]), end, b.add_int64_vector([0])])
    result = b.reshape(sliced_values, x.shape)
    return node_output(result if dtype == eqn.dtype else b.cast(result, eqn.dtype), eqn.shape, eqn.dtype)


@register_converter("dynamic_slice")
def dynamic_slice(eqn: Equation) -> OnnxValue:
    """Convert a slice at computed start indices, which are clipped so that the slice is inside the array."""
    (x, *starts), b = eqn.inputs, eqn.builder
    if all(s.uniform_value is not None and isinstance(n, int) for s, n in zip(starts, x.shape, strict=True)):
        constant_starts = [
            int(np.clip(s.uniform_value, 0, n - m)) for s, n, m in zip(starts, x.shape, eqn.shape, strict=True)
        ]
        ends = [a + m for a, m in zip(constant_starts, eqn.shape, strict=True)]
        return add_slice(eqn, x, constant_starts, ends, [1] * len(constant_starts))
    sliced_axes = [i for i, (n, m) in enumerate(zip(x.shape, eqn.shape, strict=True)) if not bool(n == m)]
    if not sliced_axes:
        return x
    index_builder = IndexBuilder(eqn, x.shape)
    clipped_starts, clipped_ends = [], []
    for i in sliced_axes:
        start = index_builder.clip(
            b.reshape(b.cast(b.add_broadcast(starts[i]), np.int64), (1,)), x.shape[i] - eqn.shape[i]
        )
        clipped_starts.append(start)
        clipped_ends.append(b.add_node("Add", [start, b.sizes.add_size_vector(eqn.shape[i])]))
    begin, end = (
        b.add_node("Concat", names, axis=0) if len(sliced_axes) > 1 else names[0]
        for names in (clipped_starts, clipped_ends)
    )
    return node_output(
        b.add_node("Slice", [b.add_broadcast(x), begin, end, b.add_int64_vector(sliced_axes)]), eqn.shape, eqn.dtype
    )


@register_converter("dynamic_update_slice")
def dynamic_update_slice(eqn: Equation) -> OnnxValue:
    """Convert `dynamic_update_slice`, which overwrites a slice whose start indices are computed at run time."""
    (x, new_slice, *starts), b = eqn.inputs, eqn.builder
    index_builder = IndexBuilder(eqn, x.shape)
    terms: dict[int, list[str]] = {}
    for i, start in enumerate(starts):
        name = b.reshape(b.cast(b.add_broadcast(start), np.int64), (1,) * len(x.shape))
        terms[i] = [index_builder.clip(name, x.shape[i] - new_slice.shape[i]), index_builder.iota(new_slice.shape, i)]
    flat_indices = index_builder.flat_indices(terms, new_slice.shape)
    dtype = np.dtype(np.int32) if x.dtype == bool else x.dtype
    operands = [b.reshape(flat_indices, (_num_elements(new_slice.shape),))]
    values, new_values = (
        b.add_broadcast(v) if v.dtype == dtype else b.cast(b.add_broadcast(v), dtype) for v in (x, new_slice)
    )
    operands = [
        b.reshape(values, (_num_elements(x.shape),)),
        *operands,
        b.reshape(new_values, (_num_elements(new_slice.shape),)),
    ]
    result = b.reshape(b.add_node("ScatterElements", operands, axis=0), x.shape)
    return node_output(result if dtype == eqn.dtype else b.cast(result, eqn.dtype), eqn.shape, eqn.dtype)


def _find_take_axis(shape: Shape, indices: Shape, d: Any, sizes: Sequence[Any]) -> int | None:
    """Return the axis along which a gather takes full slices, like `numpy.take`, or None for other gathers.

    Args:
        shape: the shape of the array.
        indices: the shape of the indices.
        d: the gather's `GatherDimensionNumbers`.
        sizes: the shape of a slice.
    """
    if d.operand_batching_dims or len(d.start_index_map) != 1 or tuple(d.collapsed_slice_dims) != d.start_index_map:
        return None
    (axis,) = d.start_index_map
    n = len(indices) - 1
    expected_offset_dims = [*range(axis), *range(axis + n, len(shape) - 1 + n)]
    is_full = all(bool(sizes[i] == size) for i, size in enumerate(shape) if i != axis)
    return int(axis) if is_full and list(d.offset_dims) == expected_offset_dims else None


def _find_constant_start(shape: Shape, indices: OnnxValue, d: Any, sizes: Sequence[Any]) -> list[int] | None:
    """Return the start indices of a gather that takes one slice inside the array at a constant position.

    Return None for other gathers. For the arguments, see `_find_take_axis`; `indices` is the value of the indices.
    """
    if indices.array is None or len(indices.shape) != 1 or not indices.has_full_shape:
        return None
    start = [0] * len(shape)
    for axis, start_index in zip(d.start_index_map, indices.array, strict=True):
        start[axis] = int(start_index)
        if not isinstance(shape[axis], int) or not 0 <= start_index <= shape[axis] - sizes[axis]:
            return None
    return start


def _take(eqn: Equation, x: OnnxValue, indices: OnnxValue, axis: int, *, clip: bool) -> OnnxValue:
    b = eqn.builder
    if indices.array is not None and indices.has_full_shape and isinstance(x.shape[axis], int):
        constant_indices = indices.array[..., 0].astype(np.int64)
        name = b.add_constant(np.clip(constant_indices, 0, x.shape[axis] - 1) if clip else constant_indices)
    else:
        name = b.cast(b.reshape(b.add_broadcast(indices), indices.shape[:-1]), np.int64)
        if clip:
            name = IndexBuilder(eqn, x.shape).clip(name, x.shape[axis] - 1)
    return node_output(b.add_node("Gather", [b.add_broadcast(x), name], axis=axis), eqn.shape, eqn.dtype)


def _batch_axis(i: int, rank: int, batch_axes: Sequence[int]) -> int:
    """Return the axis of a gather's result that corresponds to axis `i` of its indices.

    Args:
        i: the axis of the indices.
        rank: the number of axes of the array of indices, one of which holds the coordinates.
        batch_axes: the axes of the result that come from the indices, in order.
    """
    return batch_axes[i if i < rank - 1 else i - 1]


def _fill_value(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the value that a gather returns for elements out of bounds, as a scalar array.

    It is `value` or, if `value` is None, JAX's default for the dtype.

    The default is NaN for floats, True for booleans, the smallest integer for signed integers, and the largest integer
    for unsigned integers.
    """
    if value is not None:
        return np.asarray(value, dtype)
    if dtype == np.bool_:
        return np.asarray(True)
    if np.issubdtype(dtype, np.inexact):
        return np.asarray(np.nan, dtype)
    info = np.iinfo(dtype)
    return np.asarray(info.min if info.min < 0 else info.max, dtype)


def _num_elements(shape: Shape) -> Any:
    product: Any = 1
    for n in shape:
        product = product * n
    return product


OutOfBoundsMode = Literal["clipped", "filled", "inside"]


def out_of_bounds_mode(mode: Any) -> OutOfBoundsMode:
    """Return how JAX's gather and scatter treat indices out of bounds in the mode `mode`.

    The result is "clipped" if indices are clipped. It is "filled" if a gather returns a fill value for them and a
    scatter drops their values. It is "inside" if the program promises that all indices are in bounds.
    """
    name = str(getattr(mode, "name", mode)).upper()
    return "clipped" if "CLIP" in name else "inside" if "PROMISE" in name else "filled"


class IndexBuilder:
    """Index arithmetic for an array with a given shape.

    Methods return names of int64 values that broadcast with each other.
    """

    def __init__(self, eqn: Equation, shape: Shape) -> None:
        self._b = eqn.builder
        self._shape = shape

    def start_indices(self, indices: OnnxValue, axes: Sequence[int]) -> dict[int, str]:
        """Return the names of the start indices of slices, by axis of the array.

        The last axis of `indices` contains one coordinate for each of `axes`.
        """
        b, rank = self._b, len(indices.shape)
        name = b.cast(b.add_broadcast(indices), np.int64)
        if len(axes) == 1:
            return {int(axes[0]): b.add_node("Squeeze", [name, b.add_int64_vector([rank - 1])])}
        return {
            int(axis): b.add_node("Gather", [name, b.add_constant(np.int64(i))], axis=rank - 1)
            for i, axis in enumerate(axes)
        }

    def iota(self, shape: Shape, axis: int) -> str:
        """Return the name of the indices 0, 1, 2, ... along `axis` of `shape`, with length 1 along the other axes."""
        n, b = shape[axis], self._b
        stored_shape = tuple(n if i == axis else 1 for i in range(len(shape)))
        if isinstance(n, int):
            return b.add_constant(np.arange(n).reshape(stored_shape))
        end = b.add_node("Squeeze", [b.sizes.add_size_vector(n)])
        indices = b.add_node("Range", [b.add_constant(np.int64(0)), end, b.add_constant(np.int64(1))])
        return b.reshape(indices, stored_shape)

    def align(self, start: str, shape: Shape, axes: Sequence[int]) -> str:
        """Insert axes of length 1 into `start`, so that its axes become `axes` of `shape`; return the result's name."""
        return self._b.reshape(start, tuple(n if i in axes else 1 for i, n in enumerate(shape)))

    def clip_or_mask(self, starts: dict[int, str], sizes: Sequence[Any], oob_mode: OutOfBoundsMode) -> str | None:
        """Clip the start indices in `starts` in place, so that slices of the shape `sizes` are in bounds.

        In the mode "inside", the indices stay unchanged.

        Returns:
            In the mode "filled", the name of a boolean mask that is true for slices that were in bounds. In other
            modes, None.
        """
        b, masks = self._b, list[str]()
        for axis, start in starts.items():
            upper_bound = self._shape[axis] - sizes[axis]
            if oob_mode == "filled":
                is_nonnegative = b.add_node("GreaterOrEqual", [start, b.add_constant(np.int64(0))])
                is_within_bound = b.add_node(
                    "LessOrEqual", [start, b.add_node("Squeeze", [b.sizes.add_size_vector(upper_bound)])]
                )
                masks.append(b.add_node("And", [is_nonnegative, is_within_bound]))
            if oob_mode != "inside":
                starts[axis] = self.clip(start, upper_bound)
        for mask in masks[1:]:
            masks[0] = b.add_node("And", [masks[0], mask])
        return masks[0] if masks else None

    def clip(self, index: str, upper_bound: Any) -> str:
        """Clip the indices `index` to [0, upper_bound]; return the name of the result."""
        b = self._b
        name: str = b.add_node(
            "Max", [b.add_node("Min", [index, b.sizes.add_size_vector(upper_bound)]), b.add_int64_vector([0])]
        )
        return name

    def flat_indices(self, terms: Mapping[int, Sequence[str]], shape: Shape) -> str:
        """Return the name of indices into the flattened array, broadcast to `shape`.

        The index is the sum of term * stride over all axes and the terms of each axis, where `stride` is the distance
        in the flattened array between neighbours along the axis.

        Args:
            terms: for each axis, the names of arrays whose sum is the index along the axis.
            shape: the shape of the result.
        """
        b, stride = self._b, 1
        total = b.add_constant(np.int64(0))
        for axis in reversed(range(len(self._shape))):
            for term in terms.get(axis, ()):
                scaled_term = (
                    term
                    if isinstance(stride, int) and stride == 1
                    else b.add_node("Mul", [term, b.sizes.add_size_vector(stride)])
                )
                total = b.add_node("Add", [total, scaled_term])
            stride = stride * self._shape[axis]
        expanded_name: str = b.add_node("Expand", [total, b.sizes.add_shape_vector(shape)])
        return expanded_name
