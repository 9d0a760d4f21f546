"""Converters for gather, scatter and dynamic slices.

Most converters compute indices into the flattened array. A gather of whole slices along one axis is a single node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..builder import Shape, Value, node_output
from .converters import Equation, cannot, converts
from .shape_primitives import slice_value

_REDUCTIONS = {
    "scatter": "none",
    "scatter-add": "add",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


@converts("gather")
def gather(eqn: Equation) -> Value:
    """Convert a gather of slices at computed indices."""
    (x, indices), p, b = eqn.inputs, eqn.params, eqn.builder
    how, d = out_of_bounds_mode(p["mode"]), p["dimension_numbers"]
    axis = _whole_axis(x.shape, indices.shape, d, p["slice_sizes"])
    if axis is not None and how != "filled":
        return _take(eqn, x, indices, axis, clip=how == "clipped")
    if (corner := _corner(x.shape, indices, d, p["slice_sizes"])) is not None:
        ends = [a + n for a, n in zip(corner, p["slice_sizes"], strict=True)]
        part = slice_value(eqn, x, corner, ends, [1] * len(corner))
        return (
            node_output(b.reshape(b.broadcast(part), eqn.shape), eqn.shape, x.dtype) if d.collapsed_slice_dims else part
        )
    at = Places(eqn, x.shape)
    starts = at.read(indices, d.start_index_map)
    batch = [i for i in range(len(eqn.shape)) if i not in d.offset_dims]
    axes = [i for i in range(len(x.shape)) if i not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    offsets = {axis: at.along(eqn.shape, out) for axis, out in zip(axes, d.offset_dims, strict=True)}
    same = {
        axis: at.along(eqn.shape, _batch_axis(i, len(indices.shape), batch))
        for axis, i in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True)
    }
    starts = {axis: at.align(start, eqn.shape, batch) for axis, start in starts.items()}
    valid = at.clip_or_test(starts, p["slice_sizes"], how)
    flat = at.flat({axis: [v for v in (starts.get(axis), offsets.get(axis), same.get(axis)) if v is not None]
                    for axis in range(len(x.shape))}, eqn.shape)  # fmt: skip
    taken = b.node("Gather", [b.reshape(b.broadcast(x), (_count(x.shape),)), flat], axis=0)
    if valid is not None:
        taken = b.where(valid, taken, b.constant(_fill_value(p["fill_value"], x.dtype)), x.dtype)
    return node_output(taken, eqn.shape, eqn.dtype)


@converts(*_REDUCTIONS)
def scatter(eqn: Equation) -> Value:
    """Convert a scatter of slices. Numbers out of bounds are written to an extra element, which is then removed."""
    (x, indices, updates), p, b = eqn.inputs, eqn.params, eqn.builder
    how, d, reduction = out_of_bounds_mode(p["mode"]), p["dimension_numbers"], _REDUCTIONS[eqn.name]
    if b.opset < 18 and reduction in ("min", "max"):
        raise cannot(f"scatters the {reduction}ima, which needs opset 18")
    at, shape = Places(eqn, x.shape), updates.shape
    batch = [i for i in range(len(shape)) if i not in d.update_window_dims]
    axes = [i for i in range(len(x.shape)) if i not in (*d.inserted_window_dims, *d.operand_batching_dims)]
    offsets = {axis: at.along(shape, dim) for axis, dim in zip(axes, d.update_window_dims, strict=True)}
    same = {
        axis: at.along(shape, _batch_axis(i, len(indices.shape), batch))
        for axis, i in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True)
    }
    starts = at.read(indices, d.scatter_dims_to_operand_dims)
    starts = {axis: at.align(start, shape, batch) for axis, start in starts.items()}
    sizes: list[Any] = [1] * len(x.shape)
    for axis, dim in zip(axes, d.update_window_dims, strict=True):
        sizes[axis] = shape[dim]
    valid = at.clip_or_test(starts, sizes, how)
    flat = at.flat({axis: [v for v in (starts.get(axis), offsets.get(axis), same.get(axis)) if v is not None]
                    for axis in range(len(x.shape))}, shape)  # fmt: skip
    count, dtype = _count(x.shape), np.int32 if x.dtype == bool else x.dtype
    end = b.sizes.one(count)
    if valid is not None:
        flat = b.node("Where", [valid, flat, end])
    numbers, new = (b.broadcast(v) if v.dtype == dtype else b.cast(b.broadcast(v), dtype) for v in (x, updates))
    longer = b.node("Concat", [b.reshape(numbers, (count,)), b.constant(np.zeros(1, dtype))], axis=0)
    lists = [b.reshape(name, (_count(shape),)) for name in (flat, new)]
    put = b.node("ScatterElements", [longer, *lists], axis=0, reduction=reduction if reduction != "none" else None)
    sliced = b.node("Slice", [put, b.integers([0]), end, b.integers([0])])
    result = b.reshape(sliced, x.shape)
    return node_output(result if dtype == eqn.dtype else b.cast(result, eqn.dtype), eqn.shape, eqn.dtype)


@converts("dynamic_slice")
def dynamic_slice(eqn: Equation) -> Value:
    """Convert a slice at computed start indices, which are clipped so that the slice fits."""
    (x, *starts), b = eqn.inputs, eqn.builder
    if all(s.number is not None and isinstance(n, int) for s, n in zip(starts, x.shape, strict=True)):
        first = [int(np.clip(s.number, 0, n - m)) for s, n, m in zip(starts, x.shape, eqn.shape, strict=True)]
        ends = [a + m for a, m in zip(first, eqn.shape, strict=True)]
        return slice_value(eqn, x, first, ends, [1] * len(first))
    sliced_axes = [i for i, (n, m) in enumerate(zip(x.shape, eqn.shape, strict=True)) if not bool(n == m)]
    if not sliced_axes:
        return x
    at = Places(eqn, x.shape)
    first_, last = [], []
    for i in sliced_axes:
        start = at.clip(b.reshape(b.cast(b.broadcast(starts[i]), np.int64), (1,)), x.shape[i] - eqn.shape[i])
        first_.append(start)
        last.append(b.node("Add", [start, b.sizes.one(eqn.shape[i])]))
    begin, end = (b.node("Concat", names, axis=0) if len(sliced_axes) > 1 else names[0] for names in (first_, last))
    return node_output(b.node("Slice", [b.broadcast(x), begin, end, b.integers(sliced_axes)]), eqn.shape, eqn.dtype)


@converts("dynamic_update_slice")
def dynamic_update_slice(eqn: Equation) -> Value:
    """Convert the replacement of a slice at computed start indices."""
    (x, new, *starts), b = eqn.inputs, eqn.builder
    at = Places(eqn, x.shape)
    parts: dict[int, list[str]] = {}
    for i, start in enumerate(starts):
        name = b.reshape(b.cast(b.broadcast(start), np.int64), (1,) * len(x.shape))
        parts[i] = [at.clip(name, x.shape[i] - new.shape[i]), at.along(new.shape, i)]
    flat = at.flat(parts, new.shape)
    dtype = np.dtype(np.int32) if x.dtype == bool else x.dtype
    lists = [b.reshape(flat, (_count(new.shape),))]
    numbers, put = (b.broadcast(v) if v.dtype == dtype else b.cast(b.broadcast(v), dtype) for v in (x, new))
    lists = [b.reshape(numbers, (_count(x.shape),)), *lists, b.reshape(put, (_count(new.shape),))]
    result = b.reshape(b.node("ScatterElements", lists, axis=0), x.shape)
    return node_output(result if dtype == eqn.dtype else b.cast(result, eqn.dtype), eqn.shape, eqn.dtype)


def _whole_axis(shape: Shape, indices: Shape, d: Any, sizes: Sequence[Any]) -> int | None:
    """Return the axis along which whole slices are gathered, one for each index (like `numpy.take`), or None."""
    if d.operand_batching_dims or len(d.start_index_map) != 1 or tuple(d.collapsed_slice_dims) != d.start_index_map:
        return None
    (axis,) = d.start_index_map
    n = len(indices) - 1
    in_place = [*range(axis), *range(axis + n, len(shape) - 1 + n)]
    is_full = all(bool(sizes[i] == size) for i, size in enumerate(shape) if i != axis)
    return int(axis) if is_full and list(d.offset_dims) == in_place else None


def _corner(shape: Shape, indices: Value, d: Any, sizes: Sequence[Any]) -> list[int] | None:
    """Return the start indices of a single gathered slice if they are constant and inside the array, else None."""
    if indices.array is None or len(indices.shape) != 1 or not indices.is_full_shape:
        return None
    corner = [0] * len(shape)
    for axis, start in zip(d.start_index_map, indices.array, strict=True):
        corner[axis] = int(start)
        if not isinstance(shape[axis], int) or not 0 <= start <= shape[axis] - sizes[axis]:
            return None
    return corner


def _take(eqn: Equation, x: Value, indices: Value, axis: int, *, clip: bool) -> Value:
    b = eqn.builder
    if indices.array is not None and indices.is_full_shape and isinstance(x.shape[axis], int):
        positions = indices.array[..., 0].astype(np.int64)
        name = b.constant(np.clip(positions, 0, x.shape[axis] - 1) if clip else positions)
    else:
        name = b.cast(b.reshape(b.broadcast(indices), indices.shape[:-1]), np.int64)
        if clip:
            name = Places(eqn, x.shape).clip(name, x.shape[axis] - 1)
    return node_output(b.node("Gather", [b.broadcast(x), name], axis=axis), eqn.shape, eqn.dtype)


def _batch_axis(i: int, rank: int, batch: Sequence[int]) -> int:
    """Return the axis of the result for batch axis `i` of the indices. Their last axis is the coordinate."""
    return batch[i if i < rank - 1 else i - 1]


def _fill_value(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the number for elements out of bounds: `value`, or if it is None JAX's default for the dtype.

    The default is NaN for floats, True for booleans, the smallest signed or the largest unsigned integer.
    """
    if value is not None:
        return np.asarray(value, dtype)
    if dtype == np.bool_:
        return np.asarray(True)
    if np.issubdtype(dtype, np.inexact):
        return np.asarray(np.nan, dtype)
    info = np.iinfo(dtype)
    return np.asarray(info.min if info.min < 0 else info.max, dtype)


def _count(shape: Shape) -> Any:
    count: Any = 1
    for n in shape:
        count = count * n
    return count


How = Literal["clipped", "filled", "inside"]


def out_of_bounds_mode(mode: Any) -> How:
    """Return the treatment of indices out of bounds in a mode of JAX's gather and scatter.

    It is "clipped", "filled" (dropped in a scatter), or "inside" if the program promises indices in bounds.
    """
    name = str(getattr(mode, "name", mode)).upper()
    return "clipped" if "CLIP" in name else "inside" if "PROMISE" in name else "filled"


class Places:
    """Index arithmetic for an array with a given shape.

    Methods return names of int64 values that broadcast with each other.
    """

    def __init__(self, eqn: Equation, shape: Shape) -> None:
        self._b = eqn.builder
        self._shape = shape

    def read(self, indices: Value, axes: Sequence[int]) -> dict[int, str]:
        """Return the start indices by axis. The last axis of `indices` is the coordinate, in the order of `axes`."""
        b, rank = self._b, len(indices.shape)
        name = b.cast(b.broadcast(indices), np.int64)
        if len(axes) == 1:
            return {int(axes[0]): b.node("Squeeze", [name, b.integers([rank - 1])])}
        return {
            int(axis): b.node("Gather", [name, b.constant(np.int64(i))], axis=rank - 1) for i, axis in enumerate(axes)
        }

    def along(self, shape: Shape, axis: int) -> str:
        """Return the indices 0, 1, 2, ... along an axis of `shape`; the other axes have length 1."""
        n, b = shape[axis], self._b
        held = tuple(n if i == axis else 1 for i in range(len(shape)))
        if isinstance(n, int):
            return b.constant(np.arange(n).reshape(held))
        end = b.node("Squeeze", [b.sizes.one(n)])
        numbers = b.node("Range", [b.constant(np.int64(0)), end, b.constant(np.int64(1))])
        return b.reshape(numbers, held)

    def align(self, start: str, shape: Shape, axes: Sequence[int]) -> str:
        """Reshape indices with extra axes of length 1, so that their axes become these `axes` of `shape`."""
        return self._b.reshape(start, tuple(n if i in axes else 1 for i, n in enumerate(shape)))

    def clip_or_test(self, starts: dict[int, str], sizes: Sequence[Any], how: How) -> str | None:
        """Clip the start indices in the dictionary `starts`, so that slices of these sizes are in bounds.

        With `how` "inside" they stay unchanged. With "filled" return the name of a mask of slices that were in bounds,
        otherwise None.
        """
        b, tests = self._b, list[str]()
        for axis, start in starts.items():
            most = self._shape[axis] - sizes[axis]
            if how == "filled":
                above = b.node("GreaterOrEqual", [start, b.constant(np.int64(0))])
                below = b.node("LessOrEqual", [start, b.node("Squeeze", [b.sizes.one(most)])])
                tests.append(b.node("And", [above, below]))
            if how != "inside":
                starts[axis] = self.clip(start, most)
        for other in tests[1:]:
            tests[0] = b.node("And", [tests[0], other])
        return tests[0] if tests else None

    def clip(self, index: str, most: Any) -> str:
        """Clip the indices `index` to [0, most]; return the name of the result."""
        b = self._b
        name: str = b.node("Max", [b.node("Min", [index, b.sizes.one(most)]), b.integers([0])])
        return name

    def flat(self, parts: Mapping[int, Sequence[str]], shape: Shape) -> str:
        """Return indices into the flattened array, broadcast to `shape`: the sum over axes of index times stride."""
        b, step = self._b, 1
        total = b.constant(np.int64(0))
        for axis in reversed(range(len(self._shape))):
            for part in parts.get(axis, ()):
                scaled = part if isinstance(step, int) and step == 1 else b.node("Mul", [part, b.sizes.one(step)])
                total = b.node("Add", [total, scaled])
            step = step * self._shape[axis]
        expanded: str = b.node("Expand", [total, b.sizes.vector(shape)])
        return expanded
