"""Converters for shape operations (reshape, transpose, slice, pad), matrix products, convolutions and windows."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..builder import Shape, Value, constant_value, node_output
from .converters import Equation, cannot, converts

_END = np.iinfo(np.int64).max


@converts("broadcast_in_dim")
def broadcast_in_dim(eqn: Equation) -> Value:
    """Convert a broadcast along new axes. The array is only reshaped; nodes that need the full shape expand it."""
    x, dims = eqn.inputs[0], list(eqn.params["broadcast_dimensions"])
    held = tuple(x.held[dims.index(i)] if i in dims else 1 for i in range(len(eqn.shape)))
    if x.array is not None:
        return Value(eqn.shape, x.dtype, x.array.reshape(held), held)
    name = eqn.builder.name_stored(x)
    return Value(eqn.shape, x.dtype, name if held == x.held else eqn.builder.reshape(name, held), held)


@converts("reshape", "squeeze", "expand_dims")
def reshape(eqn: Equation) -> Value:
    """Convert a reshape."""
    (x,) = eqn.inputs
    if x.shape == eqn.shape:
        return x
    if x.array is not None and x.array.size == 1:
        held = (1,) * len(eqn.shape)
        return Value(eqn.shape, x.dtype, x.array.reshape(held), held)
    return node_output(eqn.builder.reshape(eqn.builder.broadcast(x), eqn.shape), eqn.shape, eqn.dtype)


@converts("transpose")
def transpose(eqn: Equation) -> Value:
    """Convert a transposition."""
    (x,), order = eqn.inputs, [int(i) for i in eqn.params["permutation"]]
    if order == sorted(order):
        return x
    name = eqn.builder.node("Transpose", [eqn.builder.name_stored(x)], perm=order)
    return Value(eqn.shape, x.dtype, name, tuple(x.held[i] for i in order))


@converts("concatenate")
def concatenate(eqn: Equation) -> Value:
    """Convert a concatenation along an axis."""
    return eqn.inputs[0] if len(eqn.inputs) == 1 else eqn.emit("Concat", axis=eqn.params["dimension"])


@converts("stack")
def stack(eqn: Equation) -> Value:
    """Convert a stack along a new axis."""
    b, axis = eqn.builder, int(eqn.params["axis"])
    axes = b.integers([axis])
    names = [b.node("Unsqueeze", [b.broadcast(v), axes]) for v in eqn.inputs]
    return node_output(b.node("Concat", names, axis=axis), eqn.shape, eqn.dtype)


@converts("unstack")
def unstack(eqn: Equation) -> list[Value]:
    """Convert to the list of items along an axis."""
    (x,), b, axis = eqn.inputs, eqn.builder, int(eqn.params["axis"])
    name = b.broadcast(x)
    items = [b.node("Gather", [name, b.constant(np.int64(i))], axis=axis) for i in range(len(eqn.shapes))]
    return [node_output(item, shape, x.dtype) for item, shape in zip(items, eqn.shapes, strict=True)]


@converts("tile")
def tile(eqn: Equation) -> Value:
    """Convert a repetition along each axis."""
    b = eqn.builder
    times = b.sizes.vector(tuple(eqn.params["reps"]))
    return node_output(b.node("Tile", [b.broadcast(eqn.inputs[0]), times]), eqn.shape, eqn.dtype)


@converts("split")
def split(eqn: Equation) -> list[Value]:
    """Convert a split along an axis."""
    (x,), b = eqn.inputs, eqn.builder
    sizes = b.sizes.vector(tuple(eqn.params["sizes"]))
    names = b.node("Split", [b.broadcast(x), sizes], outputs=len(eqn.shapes), axis=eqn.params["axis"])
    names = [names] if isinstance(names, str) else names
    return [node_output(name, shape, x.dtype) for name, shape in zip(names, eqn.shapes, strict=True)]


@converts("slice")
def slice_(eqn: Equation) -> Value:
    """Convert a strided slice."""
    (x,), p = eqn.inputs, eqn.params
    strides = p["strides"] or (1,) * len(x.shape)
    return slice_value(eqn, x, p["start_indices"], p["limit_indices"], strides)


def slice_value(eqn: Equation, x: Value, starts: Sequence[Any], ends: Sequence[Any], steps: Sequence[int]) -> Value:
    """Add a Slice node; return its output. Axes that are not sliced are left out of the node."""
    b, x = eqn.builder, eqn.builder.expand(x)
    shape = eqn.shape
    sliced_axes = [i for i, n in enumerate(x.shape) if not (_is(starts[i], 0) and _same(ends[i], n) and steps[i] == 1)]
    if not sliced_axes:
        return x
    start, end = (b.sizes.vector(tuple(at[i] for i in sliced_axes)) for at in (starts, ends))
    name = b.node(
        "Slice", [b.broadcast(x), start, end, b.integers(sliced_axes), b.integers([steps[i] for i in sliced_axes])]
    )
    return node_output(name, shape, x.dtype)


@converts("rev")
def rev(eqn: Equation) -> Value:
    """Convert a reversal along axes."""
    (x,), b = eqn.inputs, eqn.builder
    axes = [int(i) for i in eqn.params["dimensions"]]
    return node_output(reverse_axes(eqn, b.broadcast(x), axes), eqn.shape, eqn.dtype)


def reverse_axes(eqn: Equation, name: str, axes: Sequence[int]) -> str:
    """Add a Slice that reverses axes; return its name."""
    b, n = eqn.builder, len(axes)
    arguments = (b.integers([-1] * n), b.integers([-_END] * n), b.integers(axes), b.integers([-1] * n))
    output: str = b.node("Slice", [name, *arguments])
    return output


@converts("pad")
def pad(eqn: Equation) -> Value:
    """Convert padding at the edges, between elements, and with negative widths, which crop."""
    x, value = eqn.inputs
    config = [(low, high, inside) for low, high, inside in eqn.params["padding_config"]]
    shape = x.shape
    for axis, (_, _, inside) in enumerate(config):
        if inside:
            x, shape = _insert_padding(eqn, x, value, shape, axis, inside)
    if not any(low or high for low, high, _ in config):
        return x
    return replace(pad_value(eqn, x, value, [c[0] for c in config], [c[1] for c in config]), shape=eqn.shape)


def pad_value(eqn: Equation, x: Value, value: Value, low: Sequence[Any], high: Sequence[Any]) -> Value:
    """Add a Pad node that pads the edges of `x` by `value`; return its output. Negative widths crop."""
    b = eqn.builder
    filling = b.constant(value.array.reshape(())) if value.array is not None else b.name_stored(value)
    name = b.node("Pad", [b.broadcast(x), b.sizes.vector((*low, *high)), filling])
    shape = tuple(n + a + z for n, a, z in zip(x.shape, low, high, strict=True))
    return node_output(name, shape, x.dtype)


def _insert_padding(eqn: Equation, x: Value, value: Value, shape: Shape, axis: int, inside: int) -> tuple[Value, Shape]:
    """Insert `inside` elements between the elements along an axis; return the padded value and its shape.

    A new axis after `axis` is padded and merged with it, and the end is cropped.
    """
    b, n, rank = eqn.builder, shape[axis], len(shape)
    name = b.reshape(b.broadcast(x), (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    longer = node_output(name, (*shape[: axis + 1], 1, *shape[axis + 1 :]), x.dtype)
    high = [inside if i == axis + 1 else 0 for i in range(rank + 1)]
    longer = pad_value(eqn, longer, value, [0] * (rank + 1), high)
    flat = b.reshape(b.broadcast(longer), (*shape[:axis], n * (inside + 1), *shape[axis + 1 :]))
    end = n * (inside + 1) - inside
    name = b.node("Slice", [flat, b.integers([0]), b.sizes.one(end), b.integers([axis])])
    new = (*shape[:axis], end, *shape[axis + 1 :])
    return node_output(name, new, x.dtype), new


@converts("iota")
def iota(eqn: Equation) -> Value:
    """Convert the indices 0, 1, 2, ... along an axis. The other axes have length 1 in the held shape."""
    axis, n, b = eqn.params["dimension"], eqn.shape[eqn.params["dimension"]], eqn.builder
    held = tuple(n if i == axis else 1 for i in range(len(eqn.shape)))
    if isinstance(n, int):
        return Value(eqn.shape, eqn.dtype, np.arange(n).astype(eqn.dtype).reshape(held), held)
    end = b.node("Squeeze", [b.sizes.one(n)])
    numbers = b.cast(b.node("Range", [b.constant(np.int64(0)), end, b.constant(np.int64(1))]), eqn.dtype)
    return Value(eqn.shape, eqn.dtype, b.reshape(numbers, held), held)


@converts("caffejax_table")
def table(eqn: Equation) -> Value:
    """Return the constant array that the primitive's parameter `make` computes."""
    return constant_value(np.asarray(eqn.params["make"](), eqn.dtype))


@converts("dim_as_value")
def dim_as_value(eqn: Equation) -> Value:
    """Convert a symbolic size to a scalar value."""
    b = eqn.builder
    return node_output(b.cast(b.node("Squeeze", [b.sizes.one(eqn.params["dim"])]), eqn.dtype), (), eqn.dtype)


def _is(n: Any, number: int) -> bool:
    return isinstance(n, int | np.integer) and int(n) == number


def _same(a: Any, b: Any) -> bool:
    return bool(a == b)


@converts("dot_general")
def dot_general(eqn: Equation) -> Value:
    """Convert a contraction to MatMul if it is the product of an array's last axis and a matrix, else to Einsum."""
    (x, y), b = eqn.inputs, eqn.builder
    (over_x, over_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    if not batch_x and tuple(over_x) == (len(x.shape) - 1,) and len(y.shape) == 2 and len(over_y) == 1:
        name = b.broadcast(y) if over_y[0] == 0 else transpose_axes(eqn, y, (1, 0))
        return node_output(b.node("MatMul", [b.broadcast(x), name]), eqn.shape, eqn.dtype)
    letters = iter(string.ascii_letters)
    of_x = [next(letters) for _ in x.shape]
    of_y = [""] * len(y.shape)
    for i, j in [*zip(over_x, over_y, strict=True), *zip(batch_x, batch_y, strict=True)]:
        of_y[j] = of_x[i]
    of_y = [letter or next(letters) for letter in of_y]
    out = [of_x[i] for i in batch_x] + [letter for i, letter in enumerate(of_x) if i not in (*over_x, *batch_x)]
    out += [letter for i, letter in enumerate(of_y) if i not in (*over_y, *batch_y)]
    return eqn.emit("Einsum", equation=f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}")


def transpose_axes(eqn: Equation, x: Value, order: Sequence[int]) -> str:
    """Return the name of a value with its axes in another order."""
    b = eqn.builder
    if tuple(order) == tuple(range(len(order))):
        return b.broadcast(x)
    if x.array is not None and x.is_full_shape:
        return b.constant(x.array.transpose(order))
    name: str = b.node("Transpose", [b.broadcast(x)], perm=list(order))
    return name


@converts("conv_general_dilated")
def convolution(eqn: Equation) -> Value:
    """Convert to Conv, with transpositions if the axes are not in the order (batch, channels, spatial axes)."""
    (x, weight), p, b = eqn.inputs, eqn.params, eqn.builder
    if p["batch_group_count"] != 1:
        raise cannot("computes a convolution with groups of the batch")
    numbers = p["dimension_numbers"]
    n = len(numbers.lhs_spec) - 2
    if n == 0:
        raise cannot("computes a convolution without spatial axes")
    x = node_output(transpose_axes(eqn, x, numbers.lhs_spec), tuple(x.shape[i] for i in numbers.lhs_spec), x.dtype)
    low, high = ([pads[i] for pads in p["padding"]] for i in (0, 1))
    if any(d != 1 for d in p["lhs_dilation"]):
        x = _dilate(eqn, x, p["lhs_dilation"])
    if any(pad < 0 for pad in (*low, *high)):  # Conv does not support negative padding, which crops
        x = pad_value(eqn, x, constant_value(np.zeros((), x.dtype)), [0, 0, *low], [0, 0, *high])
        low, high = [0] * n, [0] * n
    kernel = [int(weight.shape[i]) for i in numbers.rhs_spec[2:]]
    name = b.node(
        "Conv",
        [b.broadcast(x), transpose_axes(eqn, weight, numbers.rhs_spec)],
        kernel_shape=kernel,
        strides=list(p["window_strides"]),
        pads=[*low, *high],
        dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )
    back = np.argsort(numbers.out_spec)
    result = node_output(name, tuple(eqn.shape[i] for i in numbers.out_spec), eqn.dtype)
    return node_output(transpose_axes(eqn, result, [int(i) for i in back]), eqn.shape, eqn.dtype)


def _dilate(eqn: Equation, x: Value, dilation: Sequence[int]) -> Value:
    """Insert zeros between elements along the spatial axes; return the result.

    The zeros are made by a transposed convolution of each channel with a kernel of one element.
    """
    b, channels = eqn.builder, x.shape[1]
    kernel = np.ones((channels, 1, *(1 for _ in dilation)), x.dtype)
    name = b.node(
        "ConvTranspose", [b.broadcast(x), b.constant(kernel)], strides=list(dilation), group=channels,
        kernel_shape=[1] * len(dilation),
    )  # fmt: skip
    sizes = ((n - 1) * d + 1 for n, d in zip(x.shape[2:], dilation, strict=True))
    return node_output(name, (*x.shape[:2], *sizes), x.dtype)


@converts("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def reduce_window(eqn: Equation) -> Value:
    """Convert to pooling over the last axes. A minimum is computed as the maximum of the negated numbers."""
    (x,), p, b = eqn.inputs, eqn.params, eqn.builder
    window, strides, padding = (list(p[k]) for k in ("window_dimensions", "window_strides", "padding"))
    plain = [w == s == 1 and tuple(pads) == (0, 0) for w, s, pads in zip(window, strides, padding, strict=True)]
    first = next((i for i, is_plain in enumerate(plain) if not is_plain), len(plain) - 1)
    if any(d != 1 for d in (*p["base_dilation"], *p["window_dilation"])) or len(plain) - first > 3:
        raise cannot("reduces over dilated windows, or over windows along more than three axes")
    if not np.issubdtype(x.dtype, np.floating):
        raise cannot("reduces over windows of integers")
    low, high = ([pads[i] for pads in padding[first:]] for i in (0, 1))
    space = x.shape[first:]
    name = b.reshape(b.broadcast(x), (_product(x.shape[:first]), 1, *space))
    flat = node_output(name, (_product(x.shape[:first]), 1, *space), x.dtype)
    summed, negative = eqn.name == "reduce_window_sum", eqn.name == "reduce_window_min"
    if negative:
        flat = flat.with_name(b.node("Neg", [b.broadcast(flat)]))
    if any((*low, *high)):
        filling = constant_value(np.asarray(0 if summed else -np.inf, x.dtype))
        flat = pad_value(eqn, flat, filling, [0, 0, *low], [0, 0, *high])
    pool: dict[str, Any] = {"kernel_shape": window[first:], "strides": strides[first:]}
    name = b.node("AveragePool" if summed else "MaxPool", [b.broadcast(flat)], **pool)
    if summed:
        name = b.node("Mul", [name, b.constant(np.asarray(np.prod(window[first:]), x.dtype))])
    if negative:
        name = b.node("Neg", [name])
    return node_output(b.reshape(name, eqn.shape), eqn.shape, eqn.dtype)


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for n in sizes:
        product = product * n
    return product
