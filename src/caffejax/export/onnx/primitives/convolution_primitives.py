"""Converters for matrix products, convolutions and reductions over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..onnx_builder import OnnxValue, constant_value, node_output
from .converters import Equation, register_converter, unsupported_error
from .shape_primitives import add_pad


@register_converter("dot_general")
def dot_general(eqn: Equation) -> OnnxValue:
    """Convert to MatMul, with the axes of each operand merged to (*batch, free, contracted) where they are others."""
    (x, y), b = eqn.inputs, eqn.builder
    (contract_x, contract_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    if not batch_x and tuple(contract_x) == (len(x.shape) - 1,) and len(y.shape) == 2 and len(contract_y) == 1:
        name = b.add_broadcast(y) if contract_y[0] == 0 else transpose_axes(eqn, y, (1, 0))
        return node_output(b.add_node("MatMul", [b.add_broadcast(x), name]), eqn.shape, eqn.dtype)
    free_x, free_y = (
        [i for i in range(len(v.shape)) if i not in (*contracted, *batch)]
        for v, contracted, batch in ((x, contract_x, batch_x), (y, contract_y, batch_y))
    )
    left, right = _merge_axes(eqn, x, batch_x, free_x, contract_x), _merge_axes(eqn, y, batch_y, contract_y, free_y)
    product = b.add_node("MatMul", [left, right])
    is_complete = len(free_x) == len(free_y) == 1
    return node_output(product if is_complete else b.reshape(product, eqn.shape), eqn.shape, eqn.dtype)


def _merge_axes(eqn: Equation, x: OnnxValue, batch: Sequence[int], *groups: Sequence[int]) -> str:
    """Return the name of `x` with the axes `batch` first, then one axis for the axes of each group."""
    name = transpose_axes(eqn, x, [*batch, *(i for group in groups for i in group)])
    if all(len(group) == 1 for group in groups):
        return name
    sizes = [_product(tuple(x.shape[i] for i in group)) for group in groups]
    return eqn.builder.reshape(name, (*(x.shape[i] for i in batch), *sizes))


def transpose_axes(eqn: Equation, x: OnnxValue, order: Sequence[int]) -> str:
    """Return the name of `x` with its axes in `order`, after adding a Transpose node if needed."""
    b = eqn.builder
    if tuple(order) == tuple(range(len(order))):
        return b.add_broadcast(x)
    if x.array is not None and x.has_full_shape:
        return b.add_constant(x.array.transpose(order))
    name: str = b.add_node("Transpose", [b.add_broadcast(x)], perm=list(order))
    return name


@register_converter("conv_general_dilated")
def convolution(eqn: Equation) -> OnnxValue:
    """Convert to Conv, with transpositions if the axes are not in the order (batch, channels, spatial axes)."""
    (x, weight), p, b = eqn.inputs, eqn.params, eqn.builder
    if p["batch_group_count"] != 1:
        raise unsupported_error("it uses a convolution with groups of the batch (batch_group_count)")
    dimension_numbers = p["dimension_numbers"]
    n = len(dimension_numbers.lhs_spec) - 2
    if n == 0:
        raise unsupported_error("it uses a convolution without spatial axes")
    x = node_output(
        transpose_axes(eqn, x, dimension_numbers.lhs_spec),
        tuple(x.shape[i] for i in dimension_numbers.lhs_spec),
        x.dtype,
    )
    low, high = ([pads[i] for pads in p["padding"]] for i in (0, 1))
    if any(d != 1 for d in p["lhs_dilation"]):
        x = _dilate(eqn, x, p["lhs_dilation"])
    is_pointwise = all(weight.shape[i] == 1 for i in dimension_numbers.rhs_spec[2:])
    pads_itself = is_pointwise and not b.engine.pads_pointwise and any((*low, *high))
    if pads_itself or any(pad < 0 for pad in (*low, *high)):  # Conv does not support negative padding, which crops
        x = add_pad(eqn, x, constant_value(np.zeros((), x.dtype)), [0, 0, *low], [0, 0, *high])
        low, high = [0] * n, [0] * n
    kernel = [int(weight.shape[i]) for i in dimension_numbers.rhs_spec[2:]]
    name = b.add_node(
        "Conv",
        [b.add_broadcast(x), transpose_axes(eqn, weight, dimension_numbers.rhs_spec)],
        kernel_shape=kernel,
        strides=list(p["window_strides"]),
        pads=[*low, *high],
        dilations=list(p["rhs_dilation"]),
        group=p["feature_group_count"],
    )
    inverse = np.argsort(dimension_numbers.out_spec)
    result = node_output(name, tuple(eqn.shape[i] for i in dimension_numbers.out_spec), eqn.dtype)
    return node_output(transpose_axes(eqn, result, [int(i) for i in inverse]), eqn.shape, eqn.dtype)


def _dilate(eqn: Equation, x: OnnxValue, dilation: Sequence[int]) -> OnnxValue:
    """Insert zeros between the elements of `x` along the spatial axes; return the result.

    The node is a transposed convolution of each channel with a kernel that has one element.
    """
    b, channels = eqn.builder, x.shape[1]
    kernel = np.ones((channels, 1, *(1 for _ in dilation)), x.dtype)
    name = b.add_node(
        "ConvTranspose", [b.add_broadcast(x), b.add_constant(kernel)], strides=list(dilation), group=channels,
        kernel_shape=[1] * len(dilation),
    )  # fmt: skip
    sizes = ((n - 1) * d + 1 for n, d in zip(x.shape[2:], dilation, strict=True))
    return node_output(name, (*x.shape[:2], *sizes), x.dtype)


@register_converter("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def reduce_window(eqn: Equation) -> OnnxValue:
    """Convert to pooling over the last axes. A minimum becomes the negated maximum of the negated values."""
    (x,), p, b = eqn.inputs, eqn.params, eqn.builder
    window, strides, padding = (list(p[k]) for k in ("window_dimensions", "window_strides", "padding"))
    is_unpooled = [w == s == 1 and tuple(pads) == (0, 0) for w, s, pads in zip(window, strides, padding, strict=True)]
    first_axis = next((i for i, is_plain in enumerate(is_unpooled) if not is_plain), len(is_unpooled) - 1)
    if any(d != 1 for d in (*p["base_dilation"], *p["window_dilation"])) or len(is_unpooled) - first_axis > 3:
        raise unsupported_error("it reduces over dilated windows, or over windows along more than three axes")
    if not np.issubdtype(x.dtype, np.floating):
        raise unsupported_error("it reduces over windows of integers")
    low, high = ([pads[i] for pads in padding[first_axis:]] for i in (0, 1))
    spatial_shape = x.shape[first_axis:]
    name = b.reshape(b.add_broadcast(x), (_product(x.shape[:first_axis]), 1, *spatial_shape))
    flat = node_output(name, (_product(x.shape[:first_axis]), 1, *spatial_shape), x.dtype)
    is_sum, is_minimum = eqn.name == "reduce_window_sum", eqn.name == "reduce_window_min"
    if is_minimum:
        flat = flat.with_name(b.add_node("Neg", [b.add_broadcast(flat)]))
    if any((*low, *high)):
        fill_value = constant_value(np.asarray(0 if is_sum else -np.inf, x.dtype))
        flat = add_pad(eqn, flat, fill_value, [0, 0, *low], [0, 0, *high])
    pool: dict[str, Any] = {"kernel_shape": window[first_axis:], "strides": strides[first_axis:]}
    name = b.add_node("AveragePool" if is_sum else "MaxPool", [b.add_broadcast(flat)], **pool)
    if is_sum:
        name = b.add_node("Mul", [name, b.add_constant(np.asarray(np.prod(window[first_axis:]), x.dtype))])
    if is_minimum:
        name = b.add_node("Neg", [name])
    return node_output(b.reshape(name, eqn.shape), eqn.shape, eqn.dtype)


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for n in sizes:
        product = product * n
    return product
