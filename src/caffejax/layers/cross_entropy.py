"""Losses by log-probability: MultinomialLogisticLoss, InfogainLoss and SigmoidCrossEntropyLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..schema.blobs import read_blob_proto
from .axes import canonical_axis, four_axes, outer_inner
from .context import Context
from .loss import (
    class_numbers,
    label_shape_problem,
    loss_divisor,
    nan_if_unlabelled,
    own_classes,
    replaced,
    require_one_batch,
    valid_labels,
)
from .precision import wide
from .registry import register

_LEAST = 1e-20  # no logarithm is taken of less
_LOG_LEAST = math.log(_LEAST)


@register("MultinomialLogisticLoss", bottoms=2, loss=True, index_bottoms=(1,), prefer_rule=True)
def multinomial_logistic_loss(ctx: Context, prob: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean of -log of the labels' probabilities, which are held at 1e-20 or more.

    The gradient is -1/probability with the value so held: large, not 0, where the probability is 0.
    """
    own, held = _labelled(prob, labels)
    return nan_if_unlabelled(own, -jnp.sum(jnp.where(own, jnp.log(held), 0)) / prob.shape[0])


@multinomial_logistic_loss.backward
def _(ctx: Context, prob: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[jax.Array, None]:
    own, held = _labelled(prob, labels)
    return jnp.where(own, -dy / prob.shape[0] / held, 0).reshape(prob.shape), None


def _labelled(prob: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where each example's label is, and the probabilities held above the least. Both (batch, classes)."""
    four_axes(prob.shape)
    require_one_batch(prob.shape, labels.shape)
    require(
        four_axes(labels.shape, "bottom 1")[1:] == (1, 1, 1),
        f"needs one label per example, not labels of shape {labels.shape}",
    )
    rows = wide(prob).reshape(prob.shape[0], -1)
    own = own_classes(labels, rows.shape)
    return own, jnp.maximum(rows, _LEAST)


@register(
    "InfogainLoss",
    bottoms=(2, 3),
    tops=(1, 2),
    param="infogain_loss_param",
    loss=True,
    index_bottoms=(1, 2),
    reads_files=True,
)
def infogain_loss(ctx: Context, scores: jax.Array, labels: jax.Array, *matrix: jax.Array) -> object:
    """Mean over labels k of -sum_l H[k, l] * log softmax(scores)[l].

    H is the third bottom, or else read from the file `source`. Probabilities are held at 1e-20 or more, which
    leaves the gradient alone. A second top is the softmax; nothing comes back from it.
    """
    axis = canonical_axis(ctx.param.axis, scores.shape)
    _, weights, divisor = _infogain_weights(ctx, axis, scores, labels, matrix)
    log_prob = jax.nn.log_softmax(wide(scores), axis)
    held = replaced(log_prob, jnp.maximum(log_prob, _LOG_LEAST))
    loss = -jnp.sum(weights * held) / divisor
    if ctx.n_tops < 2:
        return loss
    return loss, jax.lax.stop_gradient(jnp.exp(log_prob)).astype(scores.dtype)


@infogain_loss.backward
def _(
    ctx: Context, scores: jax.Array, labels: jax.Array, *matrix: jax.Array, y: Any, dy: Any
) -> tuple[jax.Array | None, ...]:
    d_loss = dy[0] if isinstance(dy, tuple) else dy
    axis = canonical_axis(ctx.param.axis, scores.shape)
    total, weights, divisor = _infogain_weights(ctx, axis, scores, labels, matrix)
    diff = jax.nn.softmax(wide(scores), axis) * total - weights
    return d_loss * diff / divisor, None, *(None for _ in matrix)


def _infogain_weights(
    ctx: Context, axis: int, scores: jax.Array, labels: jax.Array, matrix: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array, jax.Array | float]:
    """The sum of each label's row of H, the rows along the scores' `axis`, and the divisor. Ignored labels: 0."""
    loss_param, classes = ctx.layer.loss_param, scores.shape[axis]
    require(not loss_param.HasField("normalize"), 'normalize is deprecated here; use "normalization"')
    require_one_batch(scores.shape, labels.shape)
    problem = label_shape_problem(scores.shape, labels.shape, axis)
    require(problem is None, problem or "")
    h = jax.lax.stop_gradient(wide(matrix[0] if matrix else _stored_matrix(ctx)))
    require(h.size == classes**2, f"the infogain matrix must be {classes} x {classes}, not of shape {h.shape}")
    h = h.reshape(classes, classes)
    outer, inner = outer_inner(scores.shape, axis)
    valid = valid_labels(loss_param, labels.reshape(outer, inner))
    index = jnp.where(valid, class_numbers(labels, classes).reshape(outer, inner), 0)
    found = jnp.take(h, index, 0, mode="fill", fill_value=jnp.nan)  # (outer, inner, classes)
    rows = jnp.where(valid[:, :, None], found, 0)
    weights = rows.swapaxes(1, 2).reshape(scores.shape)
    return weights.sum(axis, keepdims=True), weights, loss_divisor(loss_param, valid, "VALID")


def _stored_matrix(ctx: Context) -> jax.Array:
    require(ctx.param.source, "the infogain matrix is missing: give source, or a third bottom")
    return jnp.asarray(read_blob_proto(ctx.path(ctx.param.source)))


@register("SigmoidCrossEntropyLoss", bottoms=2, loss=True, index_bottoms=(1,))
def sigmoid_cross_entropy_loss(ctx: Context, scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Sum of -t * log p - (1 - t) * log(1 - p) with p = sigmoid(scores), over the batch size by default.

    `ignore_label` is compared with targets cut to whole numbers: 0 drops 0.75 as well.
    """
    x, t, valid, divisor = _targets(ctx, scores, targets)
    positive = x >= 0
    term = x * (positive - t) + jnp.log1p(jnp.exp(jnp.where(positive, -x, x)))
    return jnp.sum(jnp.where(valid, term, 0)) / divisor


@sigmoid_cross_entropy_loss.backward
def _(ctx: Context, scores: jax.Array, targets: jax.Array, *, y: jax.Array, dy: jax.Array) -> tuple[jax.Array, None]:
    x, t, valid, divisor = _targets(ctx, scores, targets)
    return (dy / divisor * jnp.where(valid, jax.nn.sigmoid(x) - t, 0)).reshape(scores.shape), None


def _targets(
    ctx: Context, scores: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | float]:
    """Scores, targets and which of them count, all (batch, the rest); and the divisor."""
    require_one_batch(scores.shape, targets.shape)
    require(
        scores.size == targets.size,
        f"inputs must have the same count: scores {scores.shape}, {scores.size}; targets {targets.shape}, "
        f"{targets.size}",
    )
    x, t = (wide(a).reshape(scores.shape[0], -1) for a in (scores, jax.lax.stop_gradient(targets)))
    valid = valid_labels(ctx.layer.loss_param, t)
    return x, t, valid, loss_divisor(ctx.layer.loss_param, valid, "BATCH_SIZE")
