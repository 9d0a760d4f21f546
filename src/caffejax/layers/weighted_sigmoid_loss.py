"""SigmoidCrossEntropyLoss as MNC has it, with a weight for each number. Here the type is registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from . import across
from .context import Context
from .cross_entropy import SIGMOID_CROSS_ENTROPY_LOSS, sigmoid_terms
from .dtypes import promote
from .loss import require_one_batch
from .registry import register
from .types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced, Variants


def weighted_sigmoid_loss(ctx: Context, scores: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
    """SigmoidCrossEntropyLoss, each number's times its weight, over the sum of the weights; 0 where that is 0.

    The loss_param means nothing to it.
    """
    x, t, w = _rows(scores, targets, weights)
    return jnp.sum(w * sigmoid_terms(x, t)) / _sum_of(ctx, w)


def weighted_sigmoid_loss_backward(
    ctx: Context, scores: jax.Array, targets: jax.Array, weights: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None, None]:
    x, t, w = _rows(scores, targets, weights)
    return (dy * w * (jax.nn.sigmoid(x) - t) / _sum_of(ctx, w)).reshape(scores.shape), None, None


def _rows(scores: jax.Array, *others: jax.Array) -> list[jax.Array]:
    """Return all three as (batch, the rest)."""
    for other, what in zip(others, ("targets", "weights"), strict=True):
        require_one_batch(scores.shape, other.shape)
        require(scores.size == other.size, f"scores {scores.shape} and {what} {other.shape} must have the same count")
    return [promote(a).reshape(scores.shape[0], -1) for a in (scores, *map(lax.stop_gradient, others))]


def _sum_of(ctx: Context, weights: jax.Array) -> jax.Array:
    total = across.mean(ctx, jnp.sum(weights))
    return jnp.where(total > 0, total, 1)


def _variant(layer: Any) -> str:
    return "weighted" if len(layer.bottom) == 3 else "BVLC's"


WEIGHTED = LayerType(
    Signature(
        "SigmoidCrossEntropyLoss",
        bottoms=3,
        loss=True,
    ),
    Traced(weighted_sigmoid_loss),
    Gradient(weighted_sigmoid_loss_backward, indices=Indices((1, 2)), exempt_from_force_backward=(1, 2)),
    docs=LayerDocs(origin="MNC"),
)

register(
    replace(
        SIGMOID_CROSS_ENTROPY_LOSS,
        signature=replace(SIGMOID_CROSS_ENTROPY_LOSS.signature, bottoms=(2, 3)),
        implementation=Variants(
            _variant,
            {"BVLC's": SIGMOID_CROSS_ENTROPY_LOSS, "weighted": WEIGHTED},
            selection_doc="They are told apart by the number of bottoms.",
        ),
    )
)
