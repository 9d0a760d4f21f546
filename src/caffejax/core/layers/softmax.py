"""Softmax and SoftmaxWithLoss.

Caffe's rules: softmax_layer.cpp and softmax_loss_layer.cpp.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..ops.window import Window
from ..schema.caffe_pb2 import SoftmaxParameter
from .context import Context, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import canonical_axis, is_after_first_axis, pointwise_window
from .loss_helpers import (
    check_label_shape,
    ignored_label,
    in_valid_rows,
    loss_divisor,
    num_classes_along_axis,
    num_items,
    one_hot_mask,
    require_same_batch_size,
    straight_through,
    valid_label_mask,
)
from .types import Indices

LOG_FLT_MIN = float(np.log(np.finfo(np.float32).tiny))  # smaller log-probabilities are clamped to it


@register(
    "Softmax",
    param="softmax_param",
    row_wise=is_after_first_axis,
)
def softmax(p: SoftmaxParameter, x: Array) -> Array:
    """Return exp(x) divided by its sum along `axis`. The top has the shape of the bottom (softmax_layer.cpp)."""
    return jax.nn.softmax(promote(x), canonical_axis(p.axis, x.shape)).astype(x.dtype)


@softmax.top_shapes
def softmax_top_shapes(p: SoftmaxParameter, x: Any) -> list[Shape] | None:
    return [x.shape] if 0 <= p.axis < len(x.shape) else None


@softmax.receptive_window
def softmax_receptive_window(p: SoftmaxParameter, bottom: Any) -> Window | None:
    return pointwise_window(bottom) if canonical_axis(p.axis, bottom.shape) <= 1 else None


@softmax.backward
def softmax_backward(p: SoftmaxParameter, x: Array, *, y: Array, dy: Array) -> Array:
    return y * (dy - jnp.sum(dy * y, axis=p.axis, keepdims=True))


@register(
    "SoftmaxWithLoss",
    bottoms=2,
    param="softmax_param",
    loss=True,
    indices=Indices((1,), num_classes_along_axis, ignored_label),
    deviation="Probabilities are clamped to at least FLT_MIN, which the gradient ignores.",
    takes_logits=True,
    counts_rows=is_after_first_axis,
    restrictions="A second top (the softmax) is an error, as in BVLC Caffe; add a Softmax layer.",
)
def softmax_with_loss(scores: Array, labels: Array, *, ctx: Context) -> Array:
    """Return the mean of -log softmax(scores)[label], a scalar (softmax_loss_layer.cpp).

    Bottoms: scores with the classes along `axis`, and labels: a class number for each position along the other axes.
    The divisor of the sum depends on loss_param's `normalization`, VALID by default. A label outside 0 .. classes - 1
    makes the loss NaN.
    """
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    clamped_log_prob = straight_through(label_log_prob, jnp.maximum(label_log_prob, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, clamped_log_prob, 0)) / divisor


def select_label_log_probs(log_prob: Array, is_label: Array, axis: int) -> Array:
    """Return the log-probability of each label, or NaN for labels out of range.

    `is_label` is the one-hot mask of the labels, in the shape of `log_prob`.
    """
    # a sum over the classes with one nonzero term is fused with the softmax; a gather would not be fused
    return jnp.where(jnp.any(is_label, axis), jnp.sum(jnp.where(is_label, log_prob, 0), axis), jnp.nan)


@softmax_with_loss.backward
def softmax_with_loss_backward(
    scores: Array, labels: Array, *, y: Array, dy: Array, ctx: Context
) -> tuple[Array, None]:
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    diff = jnp.where(jnp.expand_dims(valid, axis), jnp.exp(log_prob) - is_label, 0)
    return (dy * diff / divisor).astype(scores.dtype), None


def softmax_loss_parts(ctx: Context, scores: Array, labels: Array) -> tuple[int, Array, Array, Array, Array | float]:
    """Return the class axis, log-probabilities, one-hot mask of labels, mask of valid labels, and the divisor."""
    axis = canonical_axis(ctx.param.axis, scores.shape, name="softmax_param.axis")
    check_label_shape(scores.shape, labels.shape, axis)
    if axis > 0:  # if the classes are along axis 0, scores and labels have no common batch axis
        require_same_batch_size(scores.shape, labels.shape)
    valid = valid_label_mask(ctx.layer.loss_param, labels.reshape(scores.shape[:axis] + scores.shape[axis + 1 :]))
    valid = in_valid_rows(ctx, valid)
    divisor = loss_divisor(ctx, valid, "VALID", num_items(ctx, scores.shape[:axis]))
    is_label = one_hot_mask(labels, scores.shape, axis)
    return axis, jax.nn.log_softmax(promote(scores), axis), is_label, valid, divisor
