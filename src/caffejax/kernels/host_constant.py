"""Tables: numbers that follow from sizes and settings alone.

NumPy computes them where XLA's arithmetic would round otherwise, or could not decide what has to be known. They are
constants of a program, made when it is lowered, or at once outside of one. While shapes are found out, memory is
estimated or operations are counted there are none: sizes of billions cost nothing until something is to be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ..errors import LayerError
from ..host_memory import memory_problem

_table = Primitive("caffejax_table")


def table(make: Callable[[], np.ndarray], shape: Sequence[int], dtype: Any) -> jax.Array:
    """Return an array of that shape and dtype, whose numbers `make` gives when they are needed.

    Raises:
        LayerError: if the machine has no memory for it.
    """
    shape, dtype = tuple(map(int, shape)), jax.dtypes.canonicalize_dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if problem := memory_problem(size, f"a table of shape {shape}", "check the layer's sizes and its bottoms'"):
        raise LayerError(problem)
    found: jax.Array = _table.bind(make=make, shape=shape, dtype=dtype)
    return found


def _made(make: Callable[[], np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    found = np.asarray(make(), dtype)
    assert found.shape == shape, f"a table of shape {found.shape} was said to be of shape {shape}"
    return found


_table.def_impl(lambda **what: jax.device_put(_made(**what)))
_table.def_abstract_eval(lambda *, make, shape, dtype: jax.core.ShapedArray(shape, dtype))
mlir.register_lowering(_table, lambda ctx, **what: [mlir.ir_constant(_made(**what))])
