"""Softmax and SoftmaxWithLoss."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import require
from .axes import after_first_axis, canonical_axis
from .context import Context, Shape
from .dtypes import promote
from .loss import (
    classes_along_axis,
    ignored_label,
    label_shape_problem,
    loss_divisor,
    own_classes,
    replaced,
    require_one_batch,
    valid_labels,
)
from .registry import register
from .sight import own_pixel_along
from .types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced

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
        LayerTraits(row_wise=after_first_axis, receptive_window=own_pixel_along(lambda ctx: ctx.param.axis)),
    )
)


def softmax_with_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log-probability of the labels.

    Labels hold one class index for every position of the scores without `axis`. What the sum is divided by
    is loss_param's `normalization`, VALID unless told otherwise. A label that is no class gives NaN.
    """
    axis, log_prob, own, valid, divisor = softmax_loss_parts(ctx, scores, labels)
    picked = logs_of_labels(log_prob, own, axis)
    held = replaced(picked, jnp.maximum(picked, LOG_FLT_MIN))
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
    own = own_classes(labels, scores.shape, axis)
    return axis, jax.nn.log_softmax(promote(scores), axis), own, valid, divisor
