"""Counts of the multiply-adds in the matrix products and convolutions of a function, from its jaxpr."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params


def count_multiply_adds(function: Callable[..., Any], *arguments: Any, padding: bool = True) -> int:
    """Count the multiply-adds of one call of a function.

    A conditional counts as its most expensive branch. The body of a `scan` is counted once for each iteration, and the
    body of a loop with an unknown number of iterations is counted once.

    Args:
        function: the function.
        arguments: its arguments, as arrays or `jax.ShapeDtypeStruct`.
        padding: whether products with the zeros around a convolution's input are counted. Products with the zeros
            between the input's elements, as in a Deconvolution, are never counted.
    """
    return _count_jaxpr(
        jax.make_jaxpr(function)(*arguments).jaxpr, _count_convolution if padding else _count_without_padding
    )


def _count_jaxpr(jaxpr: Any, count_convolution: Callable[[Any], int]) -> int:
    return sum(_count_equation(eqn, count_convolution) for eqn in jaxpr.eqns)


def _count_equation(eqn: Any, count_convolution: Callable[[Any], int]) -> int:
    name, p = eqn.primitive.name, eqn.params
    if name == "dot_general":
        contracted_axes = p["dimension_numbers"][0][0]
        return int(eqn.outvars[0].aval.size * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted_axes))
    if name == "conv_general_dilated":
        return count_convolution(eqn)
    if name == "cond":
        return max(_count_jaxpr(branch.jaxpr, count_convolution) for branch in p["branches"])
    inner_count = sum(_count_jaxpr(jaxpr, count_convolution) for jaxpr in jaxprs_in_params(p))
    return int(p["length"]) * inner_count if name == "scan" else inner_count


def _count_convolution(eqn: Any) -> int:
    dimension_numbers = eqn.params["dimension_numbers"]
    x, weight = (v.aval for v in eqn.invars)
    output_axis, input_axis, *spatial_axes = dimension_numbers.rhs_spec
    kernel = math.prod(weight.shape[axis] for axis in spatial_axes)
    # a transposed convolution multiplies each element of the input by each element of the kernel
    if max(eqn.params["lhs_dilation"], default=1) > 1:
        return int(x.size * kernel * weight.shape[output_axis] // eqn.params["feature_group_count"])
    return int(eqn.outvars[0].aval.size * kernel * weight.shape[input_axis])


def _count_without_padding(eqn: Any) -> int:
    """Count the multiply-adds of a convolution, without products with padding."""
    p, dimension_numbers = eqn.params, eqn.params["dimension_numbers"]
    x, weight, y = (v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    count = y[dimension_numbers.out_spec[0]] * y[dimension_numbers.out_spec[1]] * weight[dimension_numbers.rhs_spec[1]]
    axes = zip(
        dimension_numbers.lhs_spec[2:], dimension_numbers.rhs_spec[2:], dimension_numbers.out_spec[2:], strict=True
    )
    for i, (x_axis, weight_axis, y_axis) in enumerate(axes):
        starts = np.arange(y[y_axis])[:, None] * p["window_strides"][i] - p["padding"][i][0]
        positions, dilation = starts + np.arange(weight[weight_axis]) * p["rhs_dilation"][i], p["lhs_dilation"][i]
        is_input = (positions >= 0) & (positions <= (x[x_axis] - 1) * dilation) & (positions % dilation == 0)
        count *= int(is_input.sum())
    return int(count)
