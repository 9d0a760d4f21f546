"""EuclideanDistance and WeightedEuclideanLoss."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import batch_size, num_items, require_same_batch_size, sum_rows


@register("EuclideanDistance", bottoms=2, differentiable=False, counts_rows=True, origin="cbfinn/caffe")
def euclidean_distance(a: jax.Array, b: jax.Array, *, ctx: Context) -> jax.Array:
    """Return the mean distance between the 3D points of two bottoms (N, 3 * points), as (1, 1, 1, 1)."""
    difference = _subtract_rows(a, b)
    num_columns = difference.shape[1]
    require(num_columns % 3 == 0, f"each row must have 3 numbers for each point, but has {num_columns} numbers")
    points = difference.reshape(a.shape[0], -1, 3)
    distances = jnp.sqrt(jnp.sum(jnp.square(points), axis=2))
    mean = cross_replica.pmean(ctx, sum_rows(ctx, distances) / num_items(ctx, distances.shape))
    return mean.reshape(1, 1, 1, 1).astype(a.dtype)


@register(
    "WeightedEuclideanLoss", bottoms=3, loss=True, overrides_autodiff=True, counts_rows=True, origin="cbfinn/caffe"
)
def weighted_euclidean_loss(a: jax.Array, b: jax.Array, weights: jax.Array, *, ctx: Context) -> jax.Array:
    """Return the sum of d' P d, divided by twice the batch size, a scalar, where d is the difference of two rows.

    Bottoms: a and b, (N, K), and a matrix P for each row, (N, K, K) or (N, K * K). The gradient of a is P d, divided
    by the batch size, as if P were symmetric; the gradient of b is the negative of the gradient of a.
    """
    difference = _subtract_rows(a, b)
    return jnp.sum(difference * _apply_weights(difference, weights)) / (2 * batch_size(ctx, a))


@weighted_euclidean_loss.backward
def weighted_euclidean_loss_backward(
    a: jax.Array, b: jax.Array, weights: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, jax.Array, jax.Array]:
    difference, d_loss = _subtract_rows(a, b), dy / batch_size(ctx, a)
    diff = d_loss * _apply_weights(difference, weights)
    d_weights = d_loss / 2 * difference[:, :, None] * difference[:, None, :]
    return diff.reshape(a.shape), -diff.reshape(b.shape), d_weights.reshape(weights.shape)


def _subtract_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b as (batch, elements)."""
    require_same_batch_size(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"bottoms 0 and 1 must have rows of the same length, but have shapes {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], math.prod(a.shape[1:]))


def _apply_weights(difference: jax.Array, weights: jax.Array) -> jax.Array:
    num_rows, n = difference.shape
    require(
        weights.shape[:1] == (num_rows,) and math.prod(weights.shape[1:]) == n * n,
        f"bottom 2 must hold a matrix of {n} x {n} for each row, but has shape {weights.shape}",
    )
    return jnp.einsum("bij,bj->bi", promote(weights).reshape(num_rows, n, n), difference)
