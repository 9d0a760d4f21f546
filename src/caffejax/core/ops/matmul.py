"""Matrix products of rows and a weight, for InnerProduct layers, by oneDNN on CPUs and by XLA elsewhere.

The rows may have several axes: (*rows, inputs). On CPUs the axes are merged into one. On other platforms they stay
separate, because XLA cannot partition the second of two merged axes over several devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from .batch_axis import merge_into_rows, move_to_front, split_from_rows
from .custom_gradient import NeededDiffs, make_differentiable
from .implementations import cpu_form
from .platform_dispatch import PlatformOp

Arrays = tuple[jax.Array, ...]
Axes = Sequence[int | None]


@partial(jax.jit, static_argnames=("transpose", "fast"))
def matmul_rows(rows: jax.Array, weight: jax.Array, transpose: bool = False, fast: bool = True) -> jax.Array:
    """Return the matrix product of rows and a weight, (*rows, outputs).

    Args:
        rows: (*rows, inputs).
        weight: (outputs, inputs), or (inputs, outputs) if `transpose`.
        transpose: whether the weight's first axis is the inputs.
        fast: whether CPUs run the implementation that is tuned for them.
    """
    return _make_matmul(transpose)(rows, weight) if fast else multiply(rows, weight, transpose=transpose)[0]


def _make_matmul(transpose: bool) -> Any:
    def forward(rows: jax.Array, weight: jax.Array) -> tuple[jax.Array, Any]:
        return _matmul_operation(transpose)(rows, weight)[0], (rows, weight)

    def backward(residuals: Any, dy: jax.Array, needed: Sequence[bool]) -> list[jax.Array | None]:
        rows, weight = residuals
        diffs = iter(_diffs_operation(transpose, NeededDiffs(*needed))(rows, dy, weight))
        return [next(diffs) if is_needed else None for is_needed in needed]

    return make_differentiable(forward, backward)


def _matmul_operation(transpose: bool) -> PlatformOp:
    options: Any = {"transpose": transpose}
    return PlatformOp(
        partial(multiply, **options),
        cpu_form("matmul", multiply, **options),
        differentiable=False,
        batch_rule=partial(_matmul_batch_rule, **options),
    )


def multiply(rows: jax.Array, weight: jax.Array, *, transpose: bool) -> Arrays:
    """Return the product of `matmul_rows` by XLA, as a tuple."""
    return (rows @ (weight if transpose else weight.T),)


def _matmul_batch_rule(arrays: Sequence[jax.Array], axes: Axes, *, transpose: bool) -> Arrays | None:
    (rows, weight), (axis, weight_axis) = arrays, axes
    if axis is None or weight_axis is not None:
        return None  # XLA computes a batch of matrix products
    size = rows.shape[axis]
    return (
        split_from_rows(
            _matmul_operation(transpose)(merge_into_rows(move_to_front(rows, axis, size)), weight)[0], size
        ),
    )


def _diffs_operation(transpose: bool, needed: NeededDiffs) -> PlatformOp:
    """Return the operation that maps `(rows, dy, weight)` to the needed diffs of rows and weight."""
    options: Any = {"transpose": transpose, "needed": needed}
    return PlatformOp(
        partial(_compute_diffs, **options),
        cpu_form("matmul_diffs", _compute_diffs, **options),
        differentiable=False,
        batch_rule=partial(_diffs_batch_rule, **options),
    )


def _compute_diffs(
    rows: jax.Array, dy: jax.Array, weight: jax.Array, *, transpose: bool, needed: NeededDiffs
) -> Arrays:
    return diffs_by_linear_transpose(multiply, rows, dy, weight, transpose, needed)


def diffs_by_linear_transpose(
    matmul_fn: Any, rows: jax.Array, dy: jax.Array, weight: jax.Array, transpose: bool, needed: NeededDiffs
) -> Arrays:
    """Return the needed diffs of a product that `matmul_fn` computes, by JAX's transposition."""
    diffs = []
    if needed.x:
        diffs += jax.linear_transpose(lambda rows: matmul_fn(rows, weight, transpose=transpose), rows)((dy,))
    if needed.weight:
        diffs += jax.linear_transpose(lambda weight: matmul_fn(rows, weight, transpose=transpose), weight)((dy,))
    return tuple(diffs)


def _diffs_batch_rule(
    arrays: Sequence[jax.Array], axes: Axes, *, transpose: bool, needed: NeededDiffs
) -> Arrays | None:
    (rows, dy, weight), (_, dy_axis, weight_axis) = arrays, axes
    if needed.weight or weight_axis is not None or dy_axis is None:
        return None
    size = dy.shape[dy_axis]
    rows, dy = (merge_into_rows(move_to_front(a, axis, size)) for a, axis in zip((rows, dy), axes[:2], strict=True))
    return tuple(split_from_rows(d, size) for d in _diffs_operation(transpose, needed)(rows, dy, weight))
