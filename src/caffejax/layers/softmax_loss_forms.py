"""SoftmaxWithLoss as R-FCN has it, with two tops more, and as SegNet has it, with classes weighted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import require
from . import across
from .context import Context
from .loss import replaced
from .registry import register
from .softmax import (
    LOG_FLT_MIN,
    SOFTMAX_WITH_LOSS,
    logs_of_labels,
    softmax_loss_parts,
    softmax_with_loss,
    softmax_with_loss_backward,
)
from .tops import first
from .types import Gradient, LayerDocs, LayerType, Traced, Variants


def softmax_with_losses(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array | tuple[jax.Array, ...]:
    """SoftmaxWithLoss; further tops, without gradients, are the probabilities, and each label's loss.

    The losses have the labels' shape, with 0 where a label is ignored.
    """
    loss = softmax_with_loss(ctx, scores, labels)
    if ctx.n_tops < 2:
        return loss
    axis, log_prob, own, valid, _ = softmax_loss_parts(ctx, scores, labels)
    picked = logs_of_labels(log_prob, own, axis)
    losses = -jnp.where(valid, jnp.maximum(picked, LOG_FLT_MIN), 0).reshape(labels.shape)
    return loss, *map(lax.stop_gradient, (jnp.exp(log_prob), losses)[: ctx.n_tops - 1])


def softmax_with_losses_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    return softmax_with_loss_backward(ctx, scores, labels, y=first(y), dy=first(dy))


def weighted_softmax_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """SoftmaxWithLoss with `weight_by_label_freqs`: each label's loss times its class's number in `class_weighting`.

    Without such numbers, divided by how often the label occurs in the batch. The divisor counts labels, not weights.
    """
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = _weights(ctx, own, axis)
    picked = logs_of_labels(log_prob, own, axis)
    held = replaced(picked, jnp.maximum(picked, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, held * weights, 0)) / divisor


def weighted_softmax_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = jnp.where(valid, _weights(ctx, own, axis), 0)
    diff = (jnp.exp(log_prob) - own) * jnp.expand_dims(weights, axis)
    return (dy * jnp.where(jnp.expand_dims(valid, axis), diff, 0) / divisor).astype(scores.dtype), None


def _weights(ctx: Context, own: jax.Array, axis: int) -> jax.Array:
    """Return each label's weight, in the shape of the scores without the classes; 1 if none is asked for."""
    classes, given = own.shape[axis], ctx.layer.loss_param.class_weighting
    if not ctx.layer.loss_param.weight_by_label_freqs:
        return jnp.ones((), jnp.float32)
    require(
        len(given) in (0, classes),
        f"loss_param.class_weighting must have a number for each class: {len(given)} for {classes} classes",
    )
    others = tuple(k for k in range(own.ndim) if k != axis)
    of_class = jnp.asarray(list(given), jnp.float32) if given else 1 / jnp.maximum(_occurrences(ctx, own, others), 1)
    return jnp.sum(own * of_class.reshape(-1, *(1,) * (own.ndim - axis - 1)), axis)


def _occurrences(ctx: Context, own: jax.Array, others: tuple[int, ...]) -> jax.Array:
    return across.total(ctx, jnp.sum(own, others))


def _variant(layer: Any) -> str:
    if len(layer.top) == 3:
        return "with each label's loss"
    return "of weighted classes" if layer.loss_param.HasField("weight_by_label_freqs") else "BVLC's"


_SIGNATURE, _GRADIENT = SOFTMAX_WITH_LOSS.signature, SOFTMAX_WITH_LOSS.gradient

WITH_LOSSES = LayerType(
    replace(_SIGNATURE, tops=3),
    Traced(softmax_with_losses),
    Gradient(
        softmax_with_losses_backward,
        overrides_autodiff=True,
        indices=_GRADIENT.indices,
        exempt_from_force_backward=(1,),
        not_derivative="Below FLT_MIN the probability is clamped, and the further tops have no gradient.",
    ),
    docs=LayerDocs(origin="R-FCN"),
)
WEIGHTED = LayerType(
    replace(_SIGNATURE, fork_settings=("weight_by_label_freqs", "class_weighting")),
    Traced(weighted_softmax_loss),
    replace(_GRADIENT, backward=weighted_softmax_loss_backward),
    docs=LayerDocs(origin="SegNet"),
)

register(
    replace(
        SOFTMAX_WITH_LOSS,
        signature=replace(_SIGNATURE, tops=(1, 3), fork_settings=("weight_by_label_freqs", "class_weighting")),
        implementation=Variants(
            _variant,
            {"BVLC's": SOFTMAX_WITH_LOSS, "with each label's loss": WITH_LOSSES, "of weighted classes": WEIGHTED},
            selection_doc="The number of tops and `weight_by_label_freqs` in the loss_param tell them apart.",
        ),
    )
)
