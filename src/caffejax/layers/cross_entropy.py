"""Losses by log-probability: MultinomialLogisticLoss and SigmoidCrossEntropyLoss."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..errors import require
from .axes import four_axes
from .context import Context
from .dtypes import promote
from .loss import (
    classes_of_rows,
    loss_divisor,
    nan_if_unlabelled,
    own_classes,
    require_one_batch,
    valid_labels,
)
from .registry import register
from .types import Gradient, Indices, LayerType, Signature, Traced

_LEAST = 1e-20  # no logarithm is taken of less


def multinomial_logistic_loss(ctx: Context, prob: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean of -log of the labels' probabilities, which are held at 1e-20 or more.

    The gradient is -1/probability with the value so held: large, not 0, where the probability is 0.
    """
    own, held = _labelled(prob, labels)
    return nan_if_unlabelled(own, -jnp.sum(jnp.where(own, jnp.log(held), 0)) / prob.shape[0])


def multinomial_logistic_loss_backward(
    ctx: Context, prob: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    own, held = _labelled(prob, labels)
    return jnp.where(own, -dy / prob.shape[0] / held, 0).reshape(prob.shape), None


register(
    LayerType(
        Signature("MultinomialLogisticLoss", bottoms=2, loss=True),
        Traced(multinomial_logistic_loss),
        Gradient(
            multinomial_logistic_loss_backward,
            overrides_autodiff=True,
            indices=Indices((1,), classes_of_rows),
            exempt_from_force_backward=(1,),
        ),
    )
)


def _labelled(prob: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where each example's label is, and the probabilities held above the least. Both (batch, classes)."""
    four_axes(prob.shape)
    require_one_batch(prob.shape, labels.shape)
    require(
        four_axes(labels.shape, "bottom 1")[1:] == (1, 1, 1),
        f"needs one label per example, not labels of shape {labels.shape}",
    )
    rows = promote(prob).reshape(prob.shape[0], -1)
    own = own_classes(labels, rows.shape)
    return own, jnp.maximum(rows, _LEAST)


def sigmoid_cross_entropy_loss(ctx: Context, scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Sum of -t * log p - (1 - t) * log(1 - p) with p = sigmoid(scores), over the batch size by default.

    `ignore_label` is compared with targets cut to whole numbers: 0 drops 0.75 as well.
    """
    x, t, valid, divisor = _targets(ctx, scores, targets)
    return jnp.sum(jnp.where(valid, sigmoid_terms(x, t), 0)) / divisor


def sigmoid_terms(x: jax.Array, t: jax.Array) -> jax.Array:
    """Return -t * log p - (1 - t) * log(1 - p) with p = sigmoid(x), without overflow."""
    positive = x >= 0
    return x * (positive - t) + jnp.log1p(jnp.exp(jnp.where(positive, -x, x)))


def sigmoid_cross_entropy_loss_backward(
    ctx: Context, scores: jax.Array, targets: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    x, t, valid, divisor = _targets(ctx, scores, targets)
    return (dy / divisor * jnp.where(valid, jax.nn.sigmoid(x) - t, 0)).reshape(scores.shape), None


SIGMOID_CROSS_ENTROPY_LOSS = LayerType(  # registered with its weighted form
    Signature("SigmoidCrossEntropyLoss", bottoms=2, loss=True),
    Traced(sigmoid_cross_entropy_loss),
    Gradient(sigmoid_cross_entropy_loss_backward, indices=Indices((1,)), exempt_from_force_backward=(1,)),
)


def _targets(
    ctx: Context, scores: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | float]:
    """Return scores, targets and which of them count, all (batch, the rest); and the divisor."""
    require_one_batch(scores.shape, targets.shape)
    require(
        scores.size == targets.size,
        f"inputs must have the same count: scores {scores.shape}, {scores.size}; targets {targets.shape}, "
        f"{targets.size}",
    )
    x, t = (promote(a).reshape(scores.shape[0], -1) for a in (scores, jax.lax.stop_gradient(targets)))
    valid = valid_labels(ctx.layer.loss_param, t)
    return x, t, valid, loss_divisor(ctx, valid, "BATCH_SIZE", valid.shape[0])
