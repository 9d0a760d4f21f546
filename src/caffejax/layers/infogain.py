"""InfogainLoss: a loss that weighs which class is taken for which."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import require
from ..schema.blob_proto import read_blob_proto
from .axes import canonical_axis, outer_inner
from .context import Context, Site
from .dtypes import promote
from .loss import (
    class_numbers,
    classes_along_axis,
    ignored_label,
    label_shape_problem,
    loss_divisor,
    replaced,
    require_one_batch,
    valid_labels,
)
from .registry import register
from .tops import first
from .types import Gradient, Indices, LayerType, PerLayer, Signature, Traced

_LOG_LEAST = math.log(1e-20)  # no logarithm is less


def infogain_loss(ctx: Context, scores: jax.Array, labels: jax.Array, *matrix: Any) -> object:
    """The loss, and if there is a second top, the softmax."""
    axis = canonical_axis(ctx.param.axis, scores.shape)
    _, weights, divisor = _weights(ctx, axis, scores, labels, matrix[0])
    log_prob = jax.nn.log_softmax(promote(scores), axis)
    held = replaced(log_prob, jnp.maximum(log_prob, _LOG_LEAST))
    loss = -jnp.sum(weights * held) / divisor
    if ctx.n_tops < 2:
        return loss
    return loss, jax.lax.stop_gradient(jnp.exp(log_prob)).astype(scores.dtype)


def infogain_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *matrix: Any, y: Any, dy: Any
) -> tuple[jax.Array | None, ...]:
    d_loss = first(dy)
    axis = canonical_axis(ctx.param.axis, scores.shape)
    total, weights, divisor = _weights(ctx, axis, scores, labels, matrix[0])
    diff = jax.nn.softmax(promote(scores), axis) * total - weights
    return d_loss * diff / divisor, None, *(None for _ in matrix)


def make_infogain_loss(ctx: Context, site: Site) -> LayerType:
    """Mean over labels k of -sum_l H[k, l] * log softmax(scores)[l].

    H is the third bottom, or else read from the file `source`. Probabilities are held at 1e-20 or more, which
    leaves the gradient alone. A second top is the softmax; nothing comes back from it.
    """
    if len(site.layer.bottom) > 2:
        return replace(ctx.type, implementation=Traced(infogain_loss))
    require(ctx.param.source, "the infogain matrix is missing: give source, or a third bottom")
    stored = np.asarray(read_blob_proto(site.path(ctx.param.source)))

    def with_stored(ctx: Context, scores: jax.Array, labels: jax.Array) -> object:
        return infogain_loss(ctx, scores, labels, stored)

    def with_stored_backward(ctx: Context, scores: jax.Array, labels: jax.Array, **tops: Any) -> Any:
        return infogain_loss_backward(ctx, scores, labels, stored, **tops)[:2]

    gradient = replace(ctx.type.gradient, backward=with_stored_backward)
    return replace(ctx.type, implementation=Traced(with_stored), gradient=gradient)


register(
    LayerType(
        Signature("InfogainLoss", bottoms=(2, 3), tops=(1, 2), param="infogain_loss_param", loss=True),
        PerLayer(make_infogain_loss),
        Gradient(
            infogain_loss_backward,
            indices=Indices((1, 2), classes_along_axis, ignored_label),
            exempt_from_force_backward=(1,),
        ),
    )
)


def _weights(
    ctx: Context, axis: int, scores: jax.Array, labels: jax.Array, matrix: Any
) -> tuple[jax.Array, jax.Array, jax.Array | float]:
    """Return the sum of each label's row of H, the rows along the scores' `axis` (0 if ignored), and the divisor."""
    loss_param, classes = ctx.layer.loss_param, scores.shape[axis]
    require(not loss_param.HasField("normalize"), 'normalize is deprecated here; use "normalization"')
    require_one_batch(scores.shape, labels.shape)
    problem = label_shape_problem(scores.shape, labels.shape, axis)
    require(problem is None, problem or "")
    h = jax.lax.stop_gradient(promote(jnp.asarray(matrix)))
    require(h.size == classes**2, f"the infogain matrix must be {classes} x {classes}, not of shape {h.shape}")
    h = h.reshape(classes, classes)
    outer, inner = outer_inner(scores.shape, axis)
    valid = valid_labels(loss_param, labels.reshape(outer, inner))
    index = jnp.where(valid, class_numbers(labels, classes).reshape(outer, inner), 0)
    found = jnp.take(h, index, 0, mode="fill", fill_value=jnp.nan)  # (outer, inner, classes)
    rows = jnp.where(valid[:, :, None], found, 0)
    weights = rows.swapaxes(1, 2).reshape(scores.shape)
    return weights.sum(axis, keepdims=True), weights, loss_divisor(ctx, valid, "VALID", valid.shape[0])
