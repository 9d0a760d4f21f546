"""Multiply-adds of a traced function: of its matrix products and convolutions, whoever wrote it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params


def multiply_adds(function: Callable[..., Any], *arguments: Any) -> int:
    """Count the multiply-adds of one call; arguments are arrays or `jax.ShapeDtypeStruct`.

    Zeros around a convolution's input count, those between its numbers (of a Deconvolution) do not. Of a branch the
    longest counts, and the body of a loop as often as it surely runs: once, where that depends on data.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Any) -> int:
    return sum(_of_equation(eqn) for eqn in jaxpr.eqns)


def _of_equation(eqn: Any) -> int:
    name, p = eqn.primitive.name, eqn.params
    if name == "dot_general":
        contracted = p["dimension_numbers"][0][0]
        return int(eqn.outvars[0].aval.size * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted))
    if name == "conv_general_dilated":
        return _of_convolution(eqn)
    if name == "cond":
        return max(_of_jaxpr(branch.jaxpr) for branch in p["branches"])
    inner = sum(_of_jaxpr(jaxpr) for jaxpr in jaxprs_in_params(p))
    return int(p["length"]) * inner if name == "scan" else inner


def _of_convolution(eqn: Any) -> int:
    numbers = eqn.params["dimension_numbers"]
    x, weight = (v.aval for v in eqn.invars)
    outputs, inputs, *space = numbers.rhs_spec
    kernel = math.prod(weight.shape[axis] for axis in space)
    if max(eqn.params["lhs_dilation"], default=1) > 1:  # each number of the input meets each of the kernel
        return int(x.size * kernel * weight.shape[outputs] // eqn.params["feature_group_count"])
    return int(eqn.outvars[0].aval.size * kernel * weight.shape[inputs])
