"""Softmax and SoftmaxWithLoss, with the variants of forks.

Caffe's rules: softmax_layer.cpp and softmax_loss_layer.cpp.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from . import cross_replica
from .context import Context, Shape
from .dtype_policy import promote
from .helpers import canonical_axis, first_top, global_window, is_after_first_axis, pointwise_window_along
from .loss_helpers import (
    ignored_label,
    label_shape_problem,
    loss_divisor,
    num_classes_along_axis,
    one_hot_mask,
    require_same_batch_size,
    straight_through,
    valid_label_mask,
)
from .registry import define_layer, register
from .types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants

LOG_FLT_MIN = float(np.log(np.finfo(np.float32).tiny))  # smaller log-probabilities are clamped to it


def softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """Return exp(x / temperature) divided by its sum along `axis`. The top has the shape of the bottom.

    The temperature (cbfinn/caffe) is 1 by default. Caffe's rule: softmax_layer.cpp.
    """
    p = ctx.param
    require(p.temperature > 0, f"temperature must be positive, not {p.temperature:g}")
    require(p.dimension == "channel", f'dimension "{p.dimension}" is not supported; use "channel" or "spatial"')
    values = promote(x) if p.temperature == 1 else promote(x) / p.temperature
    return jax.nn.softmax(values, canonical_axis(p.axis, x.shape)).astype(x.dtype)


def softmax_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    is_plain = ctx.param.temperature == 1 and ctx.param.dimension == "channel"
    return [x.shape] if is_plain and 0 <= ctx.param.axis < len(x.shape) else None


def softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return y * (dy - jnp.sum(dy * y, axis=ctx.param.axis, keepdims=True)) / ctx.param.temperature


define_layer(
    Signature("Softmax", param="softmax_param", fork_settings=("temperature", "dimension")),
    Traced(softmax, top_shapes=softmax_top_shapes),
    Gradient(softmax_backward),
    LayerTraits(row_wise=is_after_first_axis, receptive_window=pointwise_window_along(lambda ctx: ctx.param.axis)),
)


def softmax_with_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean of -log softmax(scores)[label], a scalar (softmax_loss_layer.cpp).

    Bottoms: scores with the classes along `axis`, and labels: a class number for each position along the other axes.
    The divisor of the sum depends on loss_param's `normalization`, VALID by default. A label outside 0 .. classes - 1
    makes the loss NaN.
    """
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    clamped_log_prob = straight_through(label_log_prob, jnp.maximum(label_log_prob, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, clamped_log_prob, 0)) / divisor


def select_label_log_probs(log_prob: jax.Array, is_label: jax.Array, axis: int) -> jax.Array:
    """Return the log-probability of each label, or NaN for labels out of range.

    `is_label` is the one-hot mask of the labels, in the shape of `log_prob`.
    """
    # a sum over the classes with one nonzero term is fused with the softmax; a gather would not be fused
    return jnp.where(jnp.any(is_label, axis), jnp.sum(jnp.where(is_label, log_prob, 0), axis), jnp.nan)


def softmax_with_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    diff = jnp.where(jnp.expand_dims(valid, axis), jnp.exp(log_prob) - is_label, 0)
    return (dy * diff / divisor).astype(scores.dtype), None


SOFTMAX_WITH_LOSS = LayerType(  # registered with its other forms
    Signature("SoftmaxWithLoss", bottoms=2, param="softmax_param", loss=True),
    Traced(softmax_with_loss),
    Gradient(
        softmax_with_loss_backward,
        indices=Indices((1,), num_classes_along_axis, ignored_label),
        exempt_from_force_backward=(1,),
        deviation="Probabilities are clamped to at least FLT_MIN, which the gradient ignores.",
    ),
    LayerTraits(takes_logits=True),
    docs=LayerDocs(restrictions="A second top (the softmax) is an error, as in BVLC Caffe; add a Softmax layer."),
)


def softmax_loss_parts(
    ctx: Context, scores: jax.Array, labels: jax.Array
) -> tuple[int, jax.Array, jax.Array, jax.Array, jax.Array | float]:
    """Return the class axis, log-probabilities, one-hot mask of labels, mask of valid labels, and the divisor."""
    axis = canonical_axis(ctx.param.axis, scores.shape, name="softmax_param.axis")
    problem = label_shape_problem(scores.shape, labels.shape, axis)
    require(problem is None, problem or "")
    if axis > 0:  # if the classes are along axis 0, scores and labels have no common batch axis
        require_same_batch_size(scores.shape, labels.shape)
    valid = valid_label_mask(ctx.layer.loss_param, labels.reshape(scores.shape[:axis] + scores.shape[axis + 1 :]))
    divisor = loss_divisor(ctx, valid, "VALID", math.prod(scores.shape[:axis]))
    is_label = one_hot_mask(labels, scores.shape, axis)
    return axis, jax.nn.log_softmax(promote(scores), axis), is_label, valid, divisor


def softmax_with_losses(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array | tuple[jax.Array, ...]:
    """Return the loss of SoftmaxWithLoss, the probabilities, and the loss of each label.

    The probabilities and the losses of the labels pass no gradient. The losses of the labels have the shape of the
    labels, and are 0 where a label is ignored.
    """
    loss = softmax_with_loss(ctx, scores, labels)
    if ctx.n_tops < 2:
        return loss
    axis, log_prob, is_label, valid, _ = softmax_loss_parts(ctx, scores, labels)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    label_losses = -jnp.where(valid, jnp.maximum(label_log_prob, LOG_FLT_MIN), 0).reshape(labels.shape)
    return loss, *map(lax.stop_gradient, (jnp.exp(log_prob), label_losses)[: ctx.n_tops - 1])


def softmax_with_losses_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    return softmax_with_loss_backward(ctx, scores, labels, y=first_top(y), dy=first_top(dy))


def weighted_softmax_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the loss of SoftmaxWithLoss, where each label's loss is multiplied by the `class_weighting` of its class.

    This variant is used with `weight_by_label_freqs`. Without `class_weighting` each loss is divided by the number of
    occurrences of its label in the batch. The divisor counts labels and ignores the weights.
    """
    axis, log_prob, is_label, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = _label_weights(ctx, is_label, axis)
    label_log_prob = select_label_log_probs(log_prob, is_label, axis)
    clamped_log_prob = straight_through(label_log_prob, jnp.maximum(label_log_prob, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, clamped_log_prob * weights, 0)) / divisor


def weighted_softmax_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
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
    return cross_replica.psum(ctx, jnp.sum(is_label, other_axes))


def _softmax_loss_variant(layer: Any) -> str:
    if len(layer.top) == 3:
        return "with each label's loss"
    return "of weighted classes" if layer.loss_param.HasField("weight_by_label_freqs") else "BVLC's"


_BVLC_SIGNATURE, _BVLC_GRADIENT = SOFTMAX_WITH_LOSS.signature, SOFTMAX_WITH_LOSS.gradient

SOFTMAX_WITH_LABEL_LOSSES = LayerType(
    replace(_BVLC_SIGNATURE, tops=3),
    Traced(softmax_with_losses),
    Gradient(
        softmax_with_losses_backward,
        overrides_autodiff=True,
        indices=_BVLC_GRADIENT.indices,
        exempt_from_force_backward=(1,),
        deviation="The gradient ignores that probabilities are clamped to FLT_MIN; other tops have no gradient.",
    ),
    SOFTMAX_WITH_LOSS.traits,
    docs=LayerDocs(origin="R-FCN"),
)
CLASS_WEIGHTED_SOFTMAX_LOSS = LayerType(
    replace(_BVLC_SIGNATURE, fork_settings=("weight_by_label_freqs", "class_weighting")),
    Traced(weighted_softmax_loss),
    replace(_BVLC_GRADIENT, backward=weighted_softmax_loss_backward),
    SOFTMAX_WITH_LOSS.traits,
    docs=LayerDocs(origin="SegNet"),
)

register(
    replace(
        SOFTMAX_WITH_LOSS,
        signature=replace(_BVLC_SIGNATURE, tops=(1, 3), fork_settings=("weight_by_label_freqs", "class_weighting")),
        implementation=Variants(
            _softmax_loss_variant,
            {
                "BVLC's": SOFTMAX_WITH_LOSS,
                "with each label's loss": SOFTMAX_WITH_LABEL_LOSSES,
                "of weighted classes": CLASS_WEIGHTED_SOFTMAX_LOSS,
            },
            selection_doc="The number of tops and `weight_by_label_freqs` in the loss_param select the variant.",
        ),
    )
)


def spatial_softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """Return the softmax of x / temperature, (N, C, H, W), over height and width."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not shape {x.shape}")
    require(ctx.param.dimension == "spatial", f'dimension "{ctx.param.dimension}" is not supported; use "spatial"')
    require(ctx.param.temperature > 0, f"temperature must be positive, not {ctx.param.temperature:g}")
    return jax.nn.softmax(promote(x) / ctx.param.temperature, axis=(2, 3)).astype(x.dtype)


def spatial_softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    y, dy = promote(y), promote(dy)
    return y * (dy - jnp.sum(dy * y, axis=(2, 3), keepdims=True)) / ctx.param.temperature


define_layer(
    Signature("SpatialSoftmax", param="spatial_softmax_param"),
    Traced(spatial_softmax),
    Gradient(spatial_softmax_backward),
    LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same", receptive_window=global_window),
    docs=LayerDocs(origin="cbfinn/caffe"),
)
