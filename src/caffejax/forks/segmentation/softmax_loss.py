"""Variants of SoftmaxWithLoss: with the loss of each label (R-FCN), and with weights of classes (SegNet)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.helpers import first_top
from ...core.layers.loss_helpers import in_valid_rows, straight_through
from ...core.layers.registry import register_variants
from ...core.layers.softmax import (
    LOG_FLT_MIN,
    select_label_log_probs,
    softmax_loss_parts,
    softmax_with_loss,
    softmax_with_loss_backward,
)


@softmax_with_loss.variant(
    tops=3,
    overrides_autodiff=True,
    deviation="The gradient ignores that probabilities are clamped to FLT_MIN; other tops have no gradient.",
    row_tops=(1, 2),
    origin="R-FCN",
)
def softmax_with_losses(scores: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array | tuple[jax.Array, ...]:
    """Return the loss of SoftmaxWithLoss, the probabilities, and the loss of each label.

    The probabilities and the losses of the labels pass no gradient. The losses of the labels have the shape of the
    labels, and are 0 where a label is ignored.
    """
    loss = softmax_with_loss(scores, labels, ctx=ctx)
    if ctx.num_tops < 2:
        return loss
    axis, log_prob, is_label, valid, _ = softmax_loss_parts(ctx, scores, labels)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    label_losses = -jnp.where(valid, jnp.maximum(label_log_prob, LOG_FLT_MIN), 0).reshape(labels.shape)
    return loss, *map(lax.stop_gradient, (jnp.exp(log_prob), label_losses)[: ctx.num_tops - 1])


@softmax_with_losses.backward
def softmax_with_losses_backward(
    scores: jax.Array, labels: jax.Array, *, y: Any, dy: Any, ctx: Context
) -> tuple[jax.Array, None]:
    return softmax_with_loss_backward(scores, labels, y=first_top(y), dy=first_top(dy), ctx=ctx)


@softmax_with_loss.variant(fork_settings=("weight_by_label_freqs", "class_weighting"), origin="SegNet")
def weighted_softmax_loss(scores: jax.Array, labels: jax.Array, *, ctx: Context) -> jax.Array:
    """Return the loss of SoftmaxWithLoss, where each label's loss is multiplied by the `class_weighting` of its class.

    This variant is used with `weight_by_label_freqs`. Without `class_weighting` each loss is divided by the number of
    occurrences of its label in the batch. The divisor counts labels and ignores the weights.
    """
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = _label_weights(ctx, is_label, axis)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    clamped_log_prob = straight_through(label_log_prob, jnp.maximum(label_log_prob, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, clamped_log_prob * weights, 0)) / divisor


@weighted_softmax_loss.backward
def weighted_softmax_loss_backward(
    scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = jnp.where(valid, _label_weights(ctx, is_label, axis), 0)
    diff = (jnp.exp(log_prob) - is_label) * jnp.expand_dims(weights, axis)
    return (dy * jnp.where(jnp.expand_dims(valid, axis), diff, 0) / divisor).astype(scores.dtype), None


def _label_weights(ctx: Context, is_label: jax.Array, axis: int) -> jax.Array:
    """Return the weight of each label, in the shape of the scores without the class axis.

    Without weighting, the result is the scalar 1.
    """
    num_classes, class_weighting = is_label.shape[axis], ctx.layer.loss_param.class_weighting
    if not ctx.layer.loss_param.weight_by_label_freqs:
        return jnp.ones((), jnp.float32)
    require(
        len(class_weighting) in (0, num_classes),
        f"loss_param.class_weighting must have one number for each of the {num_classes} classes, not "
        f"{len(class_weighting)}",
    )
    other_axes = tuple(k for k in range(is_label.ndim) if k != axis)
    if class_weighting:
        class_weights = jnp.asarray(list(class_weighting), jnp.float32)
    else:
        class_weights = 1 / jnp.maximum(_count_labels(ctx, is_label, other_axes), 1)
    return jnp.sum(is_label * class_weights.reshape(-1, *(1,) * (is_label.ndim - axis - 1)), axis)


def _count_labels(ctx: Context, is_label: jax.Array, other_axes: tuple[int, ...]) -> jax.Array:
    return cross_replica.psum(ctx, jnp.sum(in_valid_rows(ctx, is_label), other_axes))


def _softmax_loss_variant(layer: Any) -> str | None:
    if len(layer.top) == 3:
        return "with each label's loss"
    return "of weighted classes" if layer.loss_param.HasField("weight_by_label_freqs") else None


register_variants(
    "SoftmaxWithLoss",
    _softmax_loss_variant,
    {"with each label's loss": softmax_with_losses.type, "of weighted classes": weighted_softmax_loss.type},
    "The number of tops and `weight_by_label_freqs` in the loss_param select the variant.",
)
