"""Converters for primitives that move values: reshape, transpose, concatenate, slice, reverse and pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..onnx_builder import OnnxValue, Shape, constant_value, node_output
from .converters import Equation, register_converter

_INT64_MAX = np.iinfo(np.int64).max


@register_converter("broadcast_in_dim")
def broadcast_in_dim(eqn: Equation) -> OnnxValue:
    """Convert a broadcast to a reshape that adds axes of length 1. Only nodes that need the full shape expand them."""
    x, dims = eqn.inputs[0], list(eqn.params["broadcast_dimensions"])
    stored_shape = tuple(x.stored_shape[dims.index(i)] if i in dims else 1 for i in range(len(eqn.shape)))
    if x.array is not None:
        return OnnxValue(eqn.shape, x.dtype, x.array.reshape(stored_shape), stored_shape)
    name = eqn.builder.add_stored(x)
    return OnnxValue(
        eqn.shape,
        x.dtype,
        name if stored_shape == x.stored_shape else eqn.builder.reshape(name, stored_shape),
        stored_shape,
    )


@register_converter("reshape", "squeeze", "expand_dims")
def reshape(eqn: Equation) -> OnnxValue:
    """Convert a reshape."""
    (x,) = eqn.inputs
    if x.shape == eqn.shape:
        return x
    if x.array is not None and x.array.size == 1:
        stored_shape = (1,) * len(eqn.shape)
        return OnnxValue(eqn.shape, x.dtype, x.array.reshape(stored_shape), stored_shape)
    return node_output(eqn.builder.reshape(eqn.builder.add_broadcast(x), eqn.shape), eqn.shape, eqn.dtype)


@register_converter("transpose")
def transpose(eqn: Equation) -> OnnxValue:
    """Convert a transposition."""
    (x,), order = eqn.inputs, [int(i) for i in eqn.params["permutation"]]
    if order == sorted(order):
        return x
    name = eqn.builder.add_node("Transpose", [eqn.builder.add_stored(x)], perm=order)
    return OnnxValue(eqn.shape, x.dtype, name, tuple(x.stored_shape[i] for i in order))


@register_converter("concatenate")
def concatenate(eqn: Equation) -> OnnxValue:
    """Convert a concatenation along an axis."""
    return eqn.inputs[0] if len(eqn.inputs) == 1 else eqn.emit("Concat", axis=eqn.params["dimension"])


@register_converter("stack")
def stack(eqn: Equation) -> OnnxValue:
    """Convert a stack along a new axis."""
    b, axis = eqn.builder, int(eqn.params["axis"])
    axes = b.add_int64_vector([axis])
    names = [b.add_node("Unsqueeze", [b.add_broadcast(v), axes]) for v in eqn.inputs]
    return node_output(b.add_node("Concat", names, axis=axis), eqn.shape, eqn.dtype)


@register_converter("unstack")
def unstack(eqn: Equation) -> list[OnnxValue]:
    """Convert to one Gather for each index along the axis, as `[x[i] for i in range(n)]` for axis 0."""
    (x,), b, axis = eqn.inputs, eqn.builder, int(eqn.params["axis"])
    name = b.add_broadcast(x)
    items = [b.add_node("Gather", [name, b.add_constant(np.int64(i))], axis=axis) for i in range(len(eqn.shapes))]
    return [node_output(item, shape, x.dtype) for item, shape in zip(items, eqn.shapes, strict=True)]


@register_converter("tile")
def tile(eqn: Equation) -> OnnxValue:
    """Convert a repetition along each axis."""
    b = eqn.builder
    repeats = b.sizes.add_shape_vector(tuple(eqn.params["reps"]))
    return node_output(b.add_node("Tile", [b.add_broadcast(eqn.inputs[0]), repeats]), eqn.shape, eqn.dtype)


@register_converter("split")
def split(eqn: Equation) -> list[OnnxValue]:
    """Convert a split along an axis."""
    (x,), b = eqn.inputs, eqn.builder
    sizes = b.sizes.add_shape_vector(tuple(eqn.params["sizes"]))
    names = b.add_node("Split", [b.add_broadcast(x), sizes], num_outputs=len(eqn.shapes), axis=eqn.params["axis"])
    names = [names] if isinstance(names, str) else names
    return [node_output(name, shape, x.dtype) for name, shape in zip(names, eqn.shapes, strict=True)]


@register_converter("slice")
def slice_(eqn: Equation) -> OnnxValue:
    """Convert a strided slice."""
    (x,), p = eqn.inputs, eqn.params
    strides = p["strides"] or (1,) * len(x.shape)
    return add_slice(eqn, x, p["start_indices"], p["limit_indices"], strides)


def add_slice(
    eqn: Equation, x: OnnxValue, starts: Sequence[Any], ends: Sequence[Any], steps: Sequence[int]
) -> OnnxValue:
    """Add a Slice node for the axes that are sliced; return its output, or `x` if no axis is sliced."""
    b, x = eqn.builder, eqn.builder.expand(x)
    shape = eqn.shape
    sliced_axes = [
        i for i, n in enumerate(x.shape) if not (_equals(starts[i], 0) and _is_same_size(ends[i], n) and steps[i] == 1)
    ]
    if not sliced_axes:
        return x
    start, end = (b.sizes.add_shape_vector(tuple(indices[i] for i in sliced_axes)) for indices in (starts, ends))
    name = b.add_node(
        "Slice",
        [
            b.add_broadcast(x),
            start,
            end,
            b.add_int64_vector(sliced_axes),
            b.add_int64_vector([steps[i] for i in sliced_axes]),
        ],
    )
    return node_output(name, shape, x.dtype)


@register_converter("rev")
def rev(eqn: Equation) -> OnnxValue:
    """Convert a reversal along axes."""
    (x,), b = eqn.inputs, eqn.builder
    axes = [int(i) for i in eqn.params["dimensions"]]
    return node_output(reverse_axes(eqn, b.add_broadcast(x), axes), eqn.shape, eqn.dtype)


def reverse_axes(eqn: Equation, name: str, axes: Sequence[int]) -> str:
    """Add a Slice node that reverses axes of the value `name`; return the name of the result."""
    b, n = eqn.builder, len(axes)
    arguments = (
        b.add_int64_vector([-1] * n),
        b.add_int64_vector([-_INT64_MAX] * n),
        b.add_int64_vector(axes),
        b.add_int64_vector([-1] * n),
    )
    output: str = b.add_node("Slice", [name, *arguments])
    return output


@register_converter("pad")
def pad(eqn: Equation) -> OnnxValue:
    """Convert padding at the edges and between elements, where negative widths crop the array."""
    x, value = eqn.inputs
    config = [(low, high, interior) for low, high, interior in eqn.params["padding_config"]]
    shape = x.shape
    for axis, (_, _, interior) in enumerate(config):
        if interior:
            x, shape = _insert_padding(eqn, x, value, shape, axis, interior)
    if not any(low or high for low, high, _ in config):
        return x
    return replace(add_pad(eqn, x, value, [c[0] for c in config], [c[1] for c in config]), shape=eqn.shape)


def add_pad(eqn: Equation, x: OnnxValue, value: OnnxValue, low: Sequence[Any], high: Sequence[Any]) -> OnnxValue:
    """Add a Pad node that pads the edges of `x` with `value`; return its output. Negative widths crop `x`."""
    b = eqn.builder
    fill_value = b.add_constant(value.array.reshape(())) if value.array is not None else b.add_stored(value)
    name = b.add_node("Pad", [b.add_broadcast(x), b.sizes.add_shape_vector((*low, *high)), fill_value])
    shape = tuple(n + a + z for n, a, z in zip(x.shape, low, high, strict=True))
    return node_output(name, shape, x.dtype)


def _insert_padding(
    eqn: Equation, x: OnnxValue, value: OnnxValue, shape: Shape, axis: int, interior: int
) -> tuple[OnnxValue, Shape]:
    """Insert `interior` copies of `value` between elements along an axis; return the padded value and its shape.

    For this, a new axis after `axis` is padded and merged with `axis`. Then the padding at the end is cropped.
    """
    b, n, rank = eqn.builder, shape[axis], len(shape)
    name = b.reshape(b.add_broadcast(x), (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    padded = node_output(name, (*shape[: axis + 1], 1, *shape[axis + 1 :]), x.dtype)
    high = [interior if i == axis + 1 else 0 for i in range(rank + 1)]
    padded = add_pad(eqn, padded, value, [0] * (rank + 1), high)
    flat_name = b.reshape(b.add_broadcast(padded), (*shape[:axis], n * (interior + 1), *shape[axis + 1 :]))
    end = n * (interior + 1) - interior
    name = b.add_node(
        "Slice", [flat_name, b.add_int64_vector([0]), b.sizes.add_size_vector(end), b.add_int64_vector([axis])]
    )
    new_shape = (*shape[:axis], end, *shape[axis + 1 :])
    return node_output(name, new_shape, x.dtype), new_shape


@register_converter("iota")
def iota(eqn: Equation) -> OnnxValue:
    """Convert to a constant with the indices 0, 1, 2, ... along an axis, stored with length 1 along the other axes."""
    axis, n, b = eqn.params["dimension"], eqn.shape[eqn.params["dimension"]], eqn.builder
    stored_shape = tuple(n if i == axis else 1 for i in range(len(eqn.shape)))
    if isinstance(n, int):
        return OnnxValue(eqn.shape, eqn.dtype, np.arange(n).astype(eqn.dtype).reshape(stored_shape), stored_shape)
    end = b.add_node("Squeeze", [b.sizes.add_size_vector(n)])
    indices = b.cast(b.add_node("Range", [b.add_constant(np.int64(0)), end, b.add_constant(np.int64(1))]), eqn.dtype)
    return OnnxValue(eqn.shape, eqn.dtype, b.reshape(indices, stored_shape), stored_shape)


@register_converter("caffejax_host_constant")
def host_constant(eqn: Equation) -> OnnxValue:
    """Return the constant array that the primitive's parameter `make` computes."""
    return constant_value(np.asarray(eqn.params["make"](), eqn.dtype))


@register_converter("dim_as_value")
def dim_as_value(eqn: Equation) -> OnnxValue:
    """Convert a symbolic size to a scalar that is computed at run time."""
    b = eqn.builder
    return node_output(
        b.cast(b.add_node("Squeeze", [b.sizes.add_size_vector(eqn.params["dim"])]), eqn.dtype), (), eqn.dtype
    )


def _equals(n: Any, number: int) -> bool:
    return isinstance(n, int | np.integer) and int(n) == number


def _is_same_size(a: Any, b: Any) -> bool:
    return bool(a == b)
