"""The product of rows with a weight, as an InnerProduct layer has it."""

from __future__ import annotations

from functools import partial

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


def _by_onednn_forward(rows: jax.Array, weight: jax.Array, transpose: bool) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _by_onednn(rows, weight, transpose), (rows, weight)


def _by_onednn_backward(transpose: bool, kept: tuple[jax.Array, ...], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, weight = kept
    left, right = (rows, dy) if transpose else (dy, rows)
    return onednn.matmul(dy, weight, transpose_b=transpose), onednn.matmul(left, right, transpose_a=True)


_by_onednn.defvjp(_by_onednn_forward, _by_onednn_backward)
