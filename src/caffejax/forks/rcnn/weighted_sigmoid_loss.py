"""MNC's variant of SigmoidCrossEntropyLoss, with a weight for each element."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.cross_entropy import sigmoid_terms
from ...core.layers.declaration import declare
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import require_same_batch_size
from ...core.layers.registry import register_variants
from ...core.layers.types import Indices


@declare(
    "SigmoidCrossEntropyLoss",
    bottoms=3,
    loss=True,
    indices=Indices((1, 2)),
    counts_rows=True,
    origin="MNC",
)
def weighted_sigmoid_loss(scores: jax.Array, targets: jax.Array, weights: jax.Array, *, ctx: Context) -> jax.Array:
    """Return the scalar SigmoidCrossEntropyLoss with a weight for each element, divided by the sum of the weights.

    Bottoms: scores (N, ...), targets and weights with the same number of elements. The loss is 0 if the sum of the
    weights is 0. The loss_param is ignored.
    """
    x, t, w = _flatten_operands(scores, targets, weights)
    return jnp.sum(w * sigmoid_terms(x, t)) / _sum_weights(ctx, w)


@weighted_sigmoid_loss.backward
def weighted_sigmoid_loss_backward(
    scores: jax.Array, targets: jax.Array, weights: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None, None]:
    x, t, w = _flatten_operands(scores, targets, weights)
    return (dy * w * (jax.nn.sigmoid(x) - t) / _sum_weights(ctx, w)).reshape(scores.shape), None, None


def _flatten_operands(scores: jax.Array, *targets_and_weights: jax.Array) -> list[jax.Array]:
    """Return scores, targets and weights as (batch, elements)."""
    for array, name in zip(targets_and_weights, ("targets", "weights"), strict=True):
        require_same_batch_size(scores.shape, array.shape)
        require(
            scores.size == array.size,
            f"scores and {name} must have the same number of elements: scores of shape {scores.shape} have "
            f"{scores.size}, {name} of shape {array.shape} have {array.size}",
        )
    return [promote(a).reshape(scores.shape[0], -1) for a in (scores, *map(lax.stop_gradient, targets_and_weights))]


def _sum_weights(ctx: Context, weights: jax.Array) -> jax.Array:
    total = cross_replica.pmean(ctx, jnp.sum(weights))
    return jnp.where(total > 0, total, 1)


def _sigmoid_loss_variant(layer: Any) -> str | None:
    return "weighted" if len(layer.bottom) == 3 else None


register_variants(
    "SigmoidCrossEntropyLoss",
    _sigmoid_loss_variant,
    {"weighted": weighted_sigmoid_loss.type},
    "The number of bottoms selects the variant.",
)
