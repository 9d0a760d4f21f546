"""Constant arrays that NumPy computes on the host, because XLA's arithmetic would round differently from Caffe's.

A constant depends only on sizes and settings. In a compiled program it is computed when the program is lowered; outside
of a program it is computed at once. Tracing does not compute it, so shapes, memory estimates and counts of operations
cost nothing even for huge constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ...base.errors import LayerError
from ...base.host_memory import find_memory_problem

_host_constant_p = Primitive("caffejax_host_constant")


def host_constant(make: Callable[[], np.ndarray], shape: Sequence[int], dtype: Any) -> Array:
    """Return a constant array whose values the function `make` computes, on the host, when they are needed.

    Args:
        make: a function without arguments that returns a NumPy array of shape `shape`.
        shape: the shape of the result.
        dtype: the dtype of the result, to which the values are converted.

    Raises:
        LayerError: if the machine does not have enough memory for the array.
    """
    shape, dtype = tuple(map(int, shape)), jax.dtypes.canonicalize_dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if problem := find_memory_problem(
        nbytes, f"a constant of shape {shape}", "check the sizes of the layer and its bottoms"
    ):
        raise LayerError(problem)
    result: Array = _host_constant_p.bind(make=make, shape=shape, dtype=dtype)
    return result


def _compute_values(make: Callable[[], np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    result = np.asarray(make(), dtype)
    assert result.shape == shape, f"a constant has shape {result.shape}, but was declared with shape {shape}"
    return result


_host_constant_p.def_impl(lambda **params: jax.device_put(_compute_values(**params)))
_host_constant_p.def_abstract_eval(lambda *, make, shape, dtype: jax.core.ShapedArray(shape, dtype))
mlir.register_lowering(_host_constant_p, lambda ctx, **params: [mlir.ir_constant(_compute_values(**params))])
