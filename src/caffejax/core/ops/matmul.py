"""Matrix products of rows and a weight, for InnerProduct layers, by oneDNN on CPUs and by XLA elsewhere.

The rows may have several axes: (*rows, inputs). On CPUs the axes are merged into one. On other platforms they stay
separate, because XLA cannot partition the second of two merged axes over several devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax import Array

from .custom_gradient import NeededDiffs, make_differentiable
from .implementations import cpu_form
from .platform_dispatch import Arrays, Function, PlatformOp, map_rows


@partial(jax.jit, static_argnames=("transpose", "fast"))
def matmul_rows(rows: Array, weight: Array, transpose: bool = False, fast: bool = True) -> Array:
    """Return the matrix product of rows and a weight, (*rows, outputs).

    Args:
        rows: (*rows, inputs).
        weight: (outputs, inputs), or (inputs, outputs) if `transpose`.
        transpose: whether the weight's first axis is the inputs.
        fast: whether CPUs run the implementation that is tuned for them.
    """
    if not fast:
        return multiply(rows, weight, transpose=transpose)[0]

    def forward(rows: Array, weight: Array) -> tuple[Array, Any]:
        operation = PlatformOp(
            partial(multiply, transpose=transpose),
            cpu_form("matmul", multiply, transpose=transpose),
            differentiable=False,
            batch_rule=_batch_rule,
        )
        return operation(rows, weight)[0], (rows, weight)

    def backward(residuals: Any, dy: Array, needed: Sequence[bool]) -> list[Array | None]:
        rows, weight = residuals
        options: Any = {"transpose": transpose, "needed": NeededDiffs(*needed)}
        operation = PlatformOp(
            partial(_compute_diffs, **options),
            cpu_form("matmul_diffs", _compute_diffs, **options),
            differentiable=False,
            batch_rule=None if options["needed"].weight else _batch_rule,
        )
        diffs = iter(operation(rows, dy, weight))
        return [next(diffs) if is_needed else None for is_needed in needed]

    return make_differentiable(forward, backward)(rows, weight)


def multiply(rows: Array, weight: Array, *, transpose: bool) -> Arrays:
    """Return the product of `matmul_rows` by XLA, as a tuple."""
    return (rows @ (weight if transpose else weight.T),)


def _batch_rule(operation: Function, arrays: Sequence[Array], axes: Sequence[int | None]) -> Arrays | None:
    *rows, weight = arrays
    if axes[-1] is not None:
        return None  # XLA computes a batch of matrix products
    return map_rows(lambda *rows: operation(*rows, weight), rows, axes[:-1])


def diffs_by_linear_transpose(
    matmul_fn: Any, rows: Array, dy: Array, weight: Array, transpose: bool, needed: NeededDiffs
) -> Arrays:
    """Return the needed diffs of a product that `matmul_fn` computes, by JAX's transposition."""
    diffs = []
    if needed.x:
        diffs += jax.linear_transpose(lambda rows: matmul_fn(rows, weight, transpose=transpose), rows)((dy,))
    if needed.weight:
        diffs += jax.linear_transpose(lambda weight: matmul_fn(rows, weight, transpose=transpose), weight)((dy,))
    return tuple(diffs)


_compute_diffs = partial(diffs_by_linear_transpose, multiply)
