"""Constants that NumPy computes on the host from sizes and settings alone.

NumPy computes them if XLA's arithmetic would round differently. In a compiled program they are computed when it is
lowered; outside of a program, at once. Tracing, for shapes, memory estimates or counts of operations, does not compute
them, so even huge sizes cost nothing then.
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
    """Return an array of this shape and dtype; `make` computes its values when they are needed.

    Raises:
        LayerError: if the machine has no memory for it.
    """
    shape, dtype = tuple(map(int, shape)), jax.dtypes.canonicalize_dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if problem := memory_problem(size, f"a table of shape {shape}", "check the layer's sizes and its bottoms'"):
        raise LayerError(problem)
    result: jax.Array = _table.bind(make=make, shape=shape, dtype=dtype)
    return result


def _computed(make: Callable[[], np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    result = np.asarray(make(), dtype)
    assert result.shape == shape, f"a table has shape {result.shape}, but was declared with shape {shape}"
    return result


_table.def_impl(lambda **what: jax.device_put(_computed(**what)))
_table.def_abstract_eval(lambda *, make, shape, dtype: jax.core.ShapedArray(shape, dtype))
mlir.register_lowering(_table, lambda ctx, **what: [mlir.ir_constant(_computed(**what))])
