"""Cross-entropy losses: MultinomialLogisticLoss, SigmoidCrossEntropyLoss, InfogainLoss."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...base.errors import require
from ..schema.blob_proto import read_blob_proto
from ..schema.caffe_pb2 import InfogainLossParameter
from .context import Context, LayerDefinition
from .declaration import register
from .dtype_policy import promote
from .helpers import as_nchw, canonical_axis, first_top, is_after_first_axis
from .loss_helpers import (
    check_label_shape,
    ignored_label,
    in_valid_rows,
    label_indices,
    labelled_rows,
    loss_divisor,
    nan_if_unlabelled,
    num_classes_along_axis,
    num_classes_of_rows,
    num_items,
    require_same_batch_size,
    straight_through,
    valid_label_mask,
)
from .types import Indices, LayerType, Traced

_MIN_PROBABILITY = 1e-20  # smaller probabilities are clamped to it


@register(
    "MultinomialLogisticLoss",
    bottoms=2,
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,), num_classes_of_rows),
    counts_rows=True,
)
def multinomial_logistic_loss(prob: Array, labels: Array, *, ctx: Context) -> Array:
    """Return the mean of -log(probability of the label) over the batch, a scalar (multinomial_logistic_loss_layer.cpp).

    Bottoms: probabilities (N, classes) and labels (N,). Probabilities are clamped to at least 1e-20. The gradient is -1
    / clamped probability: large, not 0, where the probability is 0. A label outside 0 .. classes - 1 makes the loss
    NaN.
    """
    is_label, clamped_prob = _mask_labels_and_clamp(prob, labels)
    log_prob = jnp.where(in_valid_rows(ctx, is_label), jnp.log(clamped_prob), 0)
    return nan_if_unlabelled(is_label, -jnp.sum(log_prob) / num_items(ctx, prob.shape[:1]))


@multinomial_logistic_loss.backward
def multinomial_logistic_loss_backward(
    prob: Array, labels: Array, *, y: Array, dy: Array, ctx: Context
) -> tuple[Array, None]:
    is_label, clamped_prob = _mask_labels_and_clamp(prob, labels)
    return jnp.where(is_label, -dy / num_items(ctx, prob.shape[:1]) / clamped_prob, 0).reshape(prob.shape), None


def _mask_labels_and_clamp(prob: Array, labels: Array) -> tuple[Array, Array]:
    as_nchw(labels.shape, "bottom 1")
    rows, is_label = labelled_rows(prob, labels)
    return is_label, jnp.maximum(rows, _MIN_PROBABILITY)


@register(
    "SigmoidCrossEntropyLoss",
    bottoms=2,
    loss=True,
    indices=Indices((1,)),
    counts_rows=True,
)
def sigmoid_cross_entropy_loss(scores: Array, targets: Array, *, ctx: Context) -> Array:
    """Return the sum of -t * log p - (1 - t) * log(1 - p), divided by the batch size, where p = sigmoid(scores).

    The top is a scalar. `normalization` in the loss_param can select a different divisor. Bottoms: scores (N, ...) and
    targets t in [0, 1] with the same number of elements. Elements whose target, truncated to an integer, equals
    `ignore_label` are ignored; thus an ignore_label of 0 also ignores targets of 0.75. Caffe's rule:
    sigmoid_cross_entropy_loss_layer.cpp.
    """
    x, t, valid, divisor = _prepare_operands(ctx, scores, targets)
    return jnp.sum(jnp.where(valid, sigmoid_terms(x, t), 0)) / divisor


def sigmoid_terms(x: Array, t: Array) -> Array:
    """Return -t * log p - (1 - t) * log(1 - p) with p = sigmoid(x), without overflow."""
    is_positive = x >= 0
    return x * (is_positive - t) + jnp.log1p(jnp.exp(jnp.where(is_positive, -x, x)))


@sigmoid_cross_entropy_loss.backward
def sigmoid_cross_entropy_loss_backward(
    scores: Array, targets: Array, *, y: Array, dy: Array, ctx: Context
) -> tuple[Array, None]:
    x, t, valid, divisor = _prepare_operands(ctx, scores, targets)
    return (dy / divisor * jnp.where(valid, jax.nn.sigmoid(x) - t, 0)).reshape(scores.shape), None


def _prepare_operands(ctx: Context, scores: Array, targets: Array) -> tuple[Array, Array, Array, Array | float]:
    """Return scores, targets and the mask of valid elements, each (batch, elements), and the divisor."""
    require_same_batch_size(scores.shape, targets.shape)
    require(
        scores.size == targets.size,
        f"scores and targets must have the same number of elements: scores of shape {scores.shape} have {scores.size}, "
        f"targets of shape {targets.shape} have {targets.size}",
    )
    x, t = (promote(a).reshape(scores.shape[0], -1) for a in (scores, jax.lax.stop_gradient(targets)))
    valid = in_valid_rows(ctx, valid_label_mask(ctx.layer.loss_param, t))
    return x, t, valid, loss_divisor(ctx, valid, "BATCH_SIZE", num_items(ctx, valid.shape[:1]))


_MIN_LOG_PROBABILITY = math.log(1e-20)  # smaller logarithms are clamped to it


def infogain_loss(
    p: Any, scores: Array, labels: Array, *matrix: Array, stored_matrix: Any = None, ctx: Context
) -> object:
    """Return the loss, and the softmax if the layer has a second top. The matrix is the third bottom, or stored."""
    axis = canonical_axis(p.axis, scores.shape)
    _, weights, divisor = _select_infogain_rows(ctx, axis, scores, labels, *(matrix or (stored_matrix,)))
    log_prob = jax.nn.log_softmax(promote(scores), axis)
    clamped_log_prob = straight_through(log_prob, jnp.maximum(log_prob, _MIN_LOG_PROBABILITY))
    loss = -jnp.sum(weights * clamped_log_prob) / divisor
    if ctx.num_tops < 2:
        return loss
    return loss, jax.lax.stop_gradient(jnp.exp(log_prob)).astype(scores.dtype)


def infogain_loss_backward(
    p: Any, scores: Array, labels: Array, *matrix: Array, stored_matrix: Any = None, y: Any, dy: Any, ctx: Context
) -> tuple[Array | None, ...]:
    d_loss = first_top(dy)
    axis = canonical_axis(p.axis, scores.shape)
    row_sums, weights, divisor = _select_infogain_rows(ctx, axis, scores, labels, *(matrix or (stored_matrix,)))
    diff = jax.nn.softmax(promote(scores), axis) * row_sums - weights
    return d_loss * diff / divisor, None, *(None for _ in matrix)


@register(
    "InfogainLoss",
    bottoms=(2, 3),
    tops=(1, 2),
    param="infogain_loss_param",
    loss=True,
    per_layer=True,
    backward=infogain_loss_backward,
    indices=Indices((1, 2), num_classes_along_axis, ignored_label),
    exempt_from_force_backward=(1,),
    counts_rows=is_after_first_axis,
    row_bottoms=(0, 1),
    row_tops=(1,),
)
def make_infogain_loss(p: InfogainLossParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Return a layer that computes the mean over labels k of -sum_l H[k, l] * log softmax(scores)[l], a scalar.

    Bottoms: scores with the classes along `axis`, labels (a class number for each position along the other axes), and H
    (classes, classes), which is read from the file `source` if there are two bottoms. Probabilities are clamped to at
    least 1e-20, which the gradient ignores. An optional second top is the softmax, in the shape of the scores; it
    passes no gradient. Caffe's rule: infogain_loss_layer.cpp.
    """
    if len(definition.layer.bottom) > 2:
        return replace(ctx.type, implementation=Traced(infogain_loss))
    require(p.source, "the infogain matrix is missing: set source in infogain_loss_param, or add a third bottom")
    stored_matrix = np.asarray(read_blob_proto(definition.path(p.source)))
    forward, backward = (partial(f, stored_matrix=stored_matrix) for f in (infogain_loss, infogain_loss_backward))
    gradient = replace(ctx.type.gradient, backward=backward)
    return replace(ctx.type, implementation=Traced(forward), gradient=gradient)


def _select_infogain_rows(
    ctx: Context, axis: int, scores: Array, labels: Array, matrix: Any
) -> tuple[Array, Array, Array | float]:
    """Return the sum of each label's row of the infogain matrix, the rows themselves, and the divisor of the loss.

    The rows have the shape of the scores: the elements of a row are along `axis`. They are 0 for ignored labels.
    """
    loss_param, num_classes = ctx.layer.loss_param, scores.shape[axis]
    require(not loss_param.HasField("normalize"), 'normalize is deprecated here; use "normalization"')
    require_same_batch_size(scores.shape, labels.shape)
    check_label_shape(scores.shape, labels.shape, axis)
    h = jax.lax.stop_gradient(promote(jnp.asarray(matrix)))
    require(
        h.size == num_classes**2,
        f"the infogain matrix must have {num_classes} x {num_classes} elements, not shape {h.shape}",
    )
    h = h.reshape(num_classes, num_classes)
    outer, inner = math.prod(scores.shape[:axis]), math.prod(scores.shape[axis + 1 :])
    is_counted = in_valid_rows(ctx, valid_label_mask(loss_param, labels))
    valid = is_counted.reshape(outer, inner)
    # an ignored label may be no class: it takes row 0, and gets zeros below; other labels out of range give NaN
    label_index = jnp.where(valid, label_indices(labels, num_classes).reshape(outer, inner), 0)
    matrix_rows = jnp.take(h, label_index, 0, mode="fill", fill_value=jnp.nan)  # (outer, inner, classes)
    rows = jnp.where(valid[:, :, None], matrix_rows, 0)
    weights = rows.swapaxes(1, 2).reshape(scores.shape)
    divisor = loss_divisor(ctx, is_counted, "VALID", num_items(ctx, scores.shape[:axis]))
    return weights.sum(axis, keepdims=True), weights, divisor
