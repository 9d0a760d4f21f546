"""The product of rows with a weight, as an InnerProduct layer has it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from . import onednn


def rows_times(rows: jax.Array, weight: jax.Array, transpose: bool = False) -> jax.Array:
    """(rows, inputs) with a weight (outputs, inputs), or (inputs, outputs) if `transpose`, to (rows, outputs)."""
    if len(rows) == 1:  # a product with a vector reads the weight as it lies; as one of matrices it would be packed
        return (rows[0] @ weight if transpose else weight @ rows[0])[None]
    if onednn.suits(rows, weight):
        return _by_onednn(rows, weight, transpose)
    return rows @ (weight if transpose else weight.T)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _by_onednn(rows: jax.Array, weight: jax.Array, transpose: bool) -> jax.Array:
    return onednn.matmul(rows, weight, transpose_b=not transpose)


def _by_onednn_forward(rows: Any, weight: Any, transpose: bool) -> Any:
    arrays = rows.value, weight.value
    return _by_onednn(*arrays, transpose), (*arrays, onednn.Wanted(rows.perturbed, weight.perturbed))


def _by_onednn_backward(transpose: bool, saved: Any, dy: jax.Array) -> tuple[jax.Array | None, jax.Array | None]:
    rows, weight, wanted = saved
    return onednn.matmul_diffs(rows, dy, weight, wanted, transpose=transpose)


_by_onednn.defvjp(_by_onednn_forward, _by_onednn_backward, symbolic_zeros=True)
