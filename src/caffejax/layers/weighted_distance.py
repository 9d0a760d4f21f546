"""EuclideanDistance and WeightedEuclideanLoss: distances of points, and of vectors by a matrix of weights."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from ..errors import require
from . import across
from .context import Context
from .dtypes import promote
from .loss import require_one_batch
from .registry import register
from .types import Gradient, LayerDocs, LayerType, Signature, Traced


def euclidean_distance(ctx: Context, a: jax.Array, b: jax.Array) -> jax.Array:
    """Mean distance of points in space, three numbers of a row each; a top of 1 x 1 x 1 x 1."""
    difference = _difference(a, b)
    require(difference.shape[1] % 3 == 0, f"rows must hold points of 3 numbers each, not {difference.shape[1]} numbers")
    points = difference.reshape(a.shape[0], -1, 3)
    distance = across.mean(ctx, jnp.mean(jnp.sqrt(jnp.sum(jnp.square(points), axis=2))))
    return distance.reshape(1, 1, 1, 1).astype(a.dtype)


register(
    LayerType(
        Signature("EuclideanDistance", bottoms=2),
        Traced(euclidean_distance),
        Gradient(exists=False),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)


def weighted_euclidean_loss(ctx: Context, a: jax.Array, b: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of d' P d over twice the batch size, for rows' differences d and a matrix P for each, the third bottom.

    The gradient of both vectors is P d over the batch size, as if P were symmetric.
    """
    difference = _difference(a, b)
    return jnp.sum(difference * _weighted(difference, weights)) / (2 * max(a.shape[0], 1))


def weighted_euclidean_loss_backward(
    ctx: Context, a: jax.Array, b: jax.Array, weights: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    difference, share = _difference(a, b), dy / max(a.shape[0], 1)
    diff = share * _weighted(difference, weights)
    d_weights = share / 2 * difference[:, :, None] * difference[:, None, :]
    return diff.reshape(a.shape), -diff.reshape(b.shape), d_weights.reshape(weights.shape)


register(
    LayerType(
        Signature("WeightedEuclideanLoss", bottoms=3, loss=True),
        Traced(weighted_euclidean_loss),
        Gradient(weighted_euclidean_loss_backward, overrides_autodiff=True),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)


def _difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b, shape (batch, the rest)."""
    require_one_batch(a.shape, b.shape)
    require(
        math.prod(a.shape[1:]) == math.prod(b.shape[1:]),
        f"bottoms 0 and 1 must have as many numbers in a row: {a.shape} and {b.shape}",
    )
    return (promote(a) - promote(b.reshape(a.shape))).reshape(a.shape[0], math.prod(a.shape[1:]))


def _weighted(difference: jax.Array, weights: jax.Array) -> jax.Array:
    rows, n = difference.shape
    require(
        weights.shape[:1] == (rows,) and math.prod(weights.shape[1:]) == n * n,
        f"bottom 2 must hold a matrix of {n} x {n} for each row, not have shape {weights.shape}",
    )
    return jnp.einsum("bij,bj->bi", promote(weights).reshape(rows, n, n), difference)
