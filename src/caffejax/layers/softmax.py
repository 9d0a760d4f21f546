"""Softmax and SoftmaxWithLoss, with the variants of forks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import require
from . import cross_replica
from .context import Context, Shape
from .dtypes import promote
from .helpers import after_first_axis, canonical_axis, first_top, global_window, pointwise_window_along
from .loss import (
    classes_along_axis,
    ignored_label,
    label_mask,
    label_shape_problem,
    loss_divisor,
    require_one_batch,
    straight_through,
    valid_labels,
)
from .registry import register
from .types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants

LOG_FLT_MIN = float(np.log(np.finfo(np.float32).tiny))  # Caffe never takes the log of less


def softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """exp(x / temperature) normalised to sum 1 along `axis`; the temperature, cbfinn's, is 1 unless given."""
    p = ctx.param
    require(p.temperature > 0, f"temperature must be positive, not {p.temperature:g}")
    require(p.dimension == "channel", f'dimension "{p.dimension}" is not supported; "channel" and "spatial" are')
    values = promote(x) if p.temperature == 1 else promote(x) / p.temperature
    return jax.nn.softmax(values, canonical_axis(p.axis, x.shape)).astype(x.dtype)


def softmax_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    plain = ctx.param.temperature == 1 and ctx.param.dimension == "channel"
    return [x.shape] if plain and 0 <= ctx.param.axis < len(x.shape) else None


def softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    return y * (dy - jnp.sum(dy * y, axis=ctx.param.axis, keepdims=True)) / ctx.param.temperature


register(
    LayerType(
        Signature("Softmax", param="softmax_param", fork_settings=("temperature", "dimension")),
        Traced(softmax, top_shapes=softmax_top_shapes),
        Gradient(softmax_backward),
        LayerTraits(row_wise=after_first_axis, receptive_window=pointwise_window_along(lambda ctx: ctx.param.axis)),
    )
)


def softmax_with_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log-probability of the labels.

    Labels hold one class index for every position of the scores without `axis`. What the sum is divided by
    is loss_param's `normalization`, VALID unless told otherwise. A label that is no class gives NaN.
    """
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    picked = logs_of_labels(log_prob, own, axis)
    held = straight_through(picked, jnp.maximum(picked, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, held, 0)) / divisor


def logs_of_labels(log_prob: jax.Array, own: jax.Array, axis: int) -> jax.Array:
    """Return the labels' log-probabilities, NaN where a label is no class; `own` is True at them."""
    # a sum over the classes, of which one counts, is fused with the softmax; looking it up would be done apart
    return jnp.where(jnp.any(own, axis), jnp.sum(jnp.where(own, log_prob, 0), axis), jnp.nan)


def softmax_with_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    diff = jnp.where(jnp.expand_dims(valid, axis), jnp.exp(log_prob) - own, 0)
    return (dy * diff / divisor).astype(scores.dtype), None


SOFTMAX_WITH_LOSS = LayerType(  # registered with its other forms
    Signature("SoftmaxWithLoss", bottoms=2, param="softmax_param", loss=True),
    Traced(softmax_with_loss),
    Gradient(
        softmax_with_loss_backward,
        indices=Indices((1,), classes_along_axis, ignored_label),
        exempt_from_force_backward=(1,),
        not_derivative="Below FLT_MIN the probability is clamped, which the gradient ignores.",
    ),
    docs=LayerDocs(
        restrictions="A second top (the softmax) is refused, as BVLC Caffe refuses it; add a Softmax layer."
    ),
)


def softmax_loss_parts(
    ctx: Context, scores: jax.Array, labels: jax.Array
) -> tuple[int, jax.Array, jax.Array, jax.Array, jax.Array | float]:
    """Return the classes' axis, their log-probabilities, where the labels' own are, which labels count, the divisor."""
    axis = canonical_axis(ctx.param.axis, scores.shape, name="softmax_param.axis")
    problem = label_shape_problem(scores.shape, labels.shape, axis)
    require(problem is None, problem or "")
    if axis > 0:  # with the classes along the first axis there is none that the two could share
        require_one_batch(scores.shape, labels.shape)
    valid = valid_labels(ctx.layer.loss_param, labels.reshape(scores.shape[:axis] + scores.shape[axis + 1 :]))
    divisor = loss_divisor(ctx, valid, "VALID", math.prod(scores.shape[:axis]))
    own = label_mask(labels, scores.shape, axis)
    return axis, jax.nn.log_softmax(promote(scores), axis), own, valid, divisor


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
    return softmax_with_loss_backward(ctx, scores, labels, y=first_top(y), dy=first_top(dy))


def weighted_softmax_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """SoftmaxWithLoss with `weight_by_label_freqs`: each label's loss times its class's number in `class_weighting`.

    Without such numbers, divided by how often the label occurs in the batch. The divisor counts labels, not weights.
    """
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = _label_weights(ctx, own, axis)
    picked = logs_of_labels(log_prob, own, axis)
    held = straight_through(picked, jnp.maximum(picked, LOG_FLT_MIN))
    return -jnp.sum(jnp.where(valid, held * weights, 0)) / divisor


def weighted_softmax_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    weights = jnp.where(valid, _label_weights(ctx, own, axis), 0)
    diff = (jnp.exp(log_prob) - own) * jnp.expand_dims(weights, axis)
    return (dy * jnp.where(jnp.expand_dims(valid, axis), diff, 0) / divisor).astype(scores.dtype), None


def _label_weights(ctx: Context, own: jax.Array, axis: int) -> jax.Array:
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
    return cross_replica.psum(ctx, jnp.sum(own, others))


def _softmax_loss_variant(layer: Any) -> str:
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
            _softmax_loss_variant,
            {"BVLC's": SOFTMAX_WITH_LOSS, "with each label's loss": WITH_LOSSES, "of weighted classes": WEIGHTED},
            selection_doc="The number of tops and `weight_by_label_freqs` in the loss_param tell them apart.",
        ),
    )
)


def spatial_softmax(ctx: Context, x: jax.Array) -> jax.Array:
    """Softmax of x / temperature over height and width."""
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    require(ctx.param.dimension == "spatial", f'dimension "{ctx.param.dimension}" is not supported; use "spatial"')
    require(ctx.param.temperature > 0, f"temperature must be positive, not {ctx.param.temperature:g}")
    return jax.nn.softmax(promote(x) / ctx.param.temperature, axis=(2, 3)).astype(x.dtype)


def spatial_softmax_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    y, dy = promote(y), promote(dy)
    return y * (dy - jnp.sum(dy * y, axis=(2, 3), keepdims=True)) / ctx.param.temperature


register(
    LayerType(
        Signature("SpatialSoftmax", param="spatial_softmax_param"),
        Traced(spatial_softmax),
        Gradient(spatial_softmax_backward),
        LayerTraits(row_wise=True, dtype_policy="bottoms", spatial_map="same", receptive_window=global_window),
        docs=LayerDocs(origin="cbfinn/caffe"),
    )
)
