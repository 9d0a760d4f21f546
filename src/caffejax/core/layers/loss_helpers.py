"""Helpers for layers with labels, losses and metrics: valid labels, one-hot masks and normalization."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...base.errors import require
from . import cross_replica
from .context import Context, Shape
from .dtype_policy import promote
from .helpers import as_nchw


def require_same_batch_size(data: Shape, labels: Shape) -> None:
    """Raise `LayerError` if the two bottoms of a loss do not have the same batch size."""
    require(data and labels, f"needs bottoms with a batch axis, not bottoms of shapes {data} and {labels}")
    require(
        data[0] == labels[0],
        f"the data and label should have the same first dimension: data {data}, labels {labels}",
    )


def valid_label_mask(loss_param: Any, labels: Array) -> Array:
    """Return the mask of valid labels, bool: all labels, or all except `ignore_label` if it is set."""
    if not loss_param.HasField("ignore_label"):
        return jnp.ones(labels.shape, bool)
    return labels.astype(jnp.int32) != loss_param.ignore_label


def label_indices(labels: Array, num_classes: int) -> Array:
    """Return labels as integer indices. Negative labels become `num_classes`, which is out of range.

    Losses gather values by these indices with NaN as the fill value, so a negative label makes them NaN, as a label
    that is too large does.
    """
    index = labels.astype(jnp.int32)
    return jnp.where(index < 0, num_classes, index)


def one_hot_mask(labels: Array, shape: Shape, axis: int = 1) -> Array:
    """Return the one-hot mask of labels along `axis`, bool, of the given shape.

    For a label out of range, all elements are False.
    """
    indices = labels.astype(jnp.int32).reshape(*shape[:axis], 1, *shape[axis + 1 :])
    return indices == jnp.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1))


def labelled_rows(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Return scores as float32, and the one-hot mask of their labels, both (batch, classes).

    Raises:
        LayerError: if there is not one label for each example, or the scores have more than four axes.
    """
    as_nchw(scores.shape)
    require_same_batch_size(scores.shape, labels.shape)
    require(
        math.prod(labels.shape) == labels.shape[0],
        f"needs one label for each of the {scores.shape[0]} examples, not labels of shape {labels.shape}",
    )
    rows = promote(scores).reshape(scores.shape[0], -1)
    return rows, one_hot_mask(labels, rows.shape)


def nan_if_unlabelled(is_label: Array, loss: Array) -> Array:
    """Return the loss, or NaN if `is_label`, the mask (batch, classes), has no label for an example."""
    return jnp.where(jnp.all(jnp.any(is_label, axis=1)), loss, jnp.nan)


def normalization_mode(loss_param: Any, default: str) -> str:
    """Return the normalization mode of a loss_param.

    The mode is `normalization` if this field is set, else the mode that the old flag `normalize` selects, if it is set,
    else `default`.
    """
    if loss_param.HasField("normalization"):
        return str(loss_param.NormalizationMode.Name(loss_param.normalization))
    if loss_param.HasField("normalize"):
        return "VALID" if loss_param.normalize else "BATCH_SIZE"
    return default


def in_valid_rows(ctx: Context, mask: Array) -> Array:
    """Return a mask of items, bool (rows, ...), which is False in rows of padding."""
    if ctx.num_rows is None:
        return mask
    return mask & (jnp.arange(mask.shape[0]) < ctx.num_rows).reshape(-1, *(1,) * (mask.ndim - 1))


def num_items(ctx: Context, shape: Shape) -> Any:
    """Return the number of items in an array (rows, ...) of this shape, without rows of padding.

    With rows of padding the number is at least 1, and with several devices (see `cross_replica`) it is a mean.
    """
    if ctx.num_rows is None:
        return math.prod(shape)
    count = cross_replica.pmean(ctx, ctx.num_rows.astype(jnp.float32)) * math.prod(shape[1:])
    return jnp.maximum(1.0 / cross_replica.axis_size(ctx), count)


def batch_size(ctx: Context, x: Array) -> Any:
    """Return the number of rows of x, at least 1, without rows of padding; see `num_items`."""
    return _clamp_to_one(num_items(ctx, x.shape[:1]))


def sum_rows(ctx: Context, terms: Array) -> Array:
    """Return the sum of the terms of a loss, (rows, ...). Terms in rows of padding are left out."""
    return jnp.sum(jnp.where(in_valid_rows(ctx, jnp.ones(terms.shape, bool)), terms, 0))


def loss_divisor(ctx: Context, valid: Array, default: str, batch_size: Any) -> Array | float:
    """Return the divisor of a summed loss, at least 1, over the batches of all devices (see `cross_replica`).

    Args:
        ctx: the context of the layer, whose LossParameter determines the mode.
        valid: bool, (rows, ...), True for labels that are not ignored, and False in rows of padding.
        default: the mode if the LossParameter sets none.
        batch_size: the divisor of the mode BATCH_SIZE, from `num_items`.
    """
    loss_param, num_devices = ctx.layer.loss_param, cross_replica.axis_size(ctx)
    match normalization_mode(loss_param, default):
        case "FULL":
            return _clamp_to_one(num_items(ctx, valid.shape))
        case "BATCH_SIZE":
            return _clamp_to_one(batch_size)
        case "NONE":
            return 1.0 / num_devices
        case "PRE_FIXED":
            return _clamp_to_one(loss_param.pre_fixed_normalizer) / num_devices
        case _ if not loss_param.HasField("ignore_label"):
            return _clamp_to_one(num_items(ctx, valid.shape))
        case _:
            return cross_replica.global_count(ctx, valid)


def _clamp_to_one(size: Any) -> Array | float:
    if isinstance(size, Array):  # of `num_items`, which is not 0
        return size
    if isinstance(size, int | float):
        return max(1.0, float(size))
    return jnp.maximum(1.0, jnp.asarray(size, jnp.float32))  # the size is symbolic while an export is traced


def straight_through(x: Array, value: Array) -> Array:
    """Return `value`, and pass its gradient to `x` unchanged. Used for clamps that Caffe's gradients ignore."""
    return jax.lax.stop_gradient(value) + (x - jax.lax.stop_gradient(x))


def check_label_shape(scores: Shape, labels: Shape, axis: int) -> None:
    """Raise `LayerError` if there is not one label for each position of the scores.

    `scores` and `labels` are shapes. The classes are along `axis` of the scores.
    """
    num_positions = math.prod(scores[:axis] + scores[axis + 1 :])
    require(
        math.prod(labels) == num_positions,
        f"number of labels must match number of predictions: scores {scores} with classes along axis {axis} "
        f"need {num_positions} labels, but the label bottom has shape {labels}, {math.prod(labels)} labels",
    )


def num_classes_along_axis(p: Any, scores: Any, labels: Any, *_bottoms: Any) -> int | None:
    """Return the number of classes along the scores' `axis`, or None if there is not one label per position."""
    axis, shape = p.axis, scores.shape
    if not -len(shape) <= axis < len(shape):
        return None
    return int(shape[axis]) if shape[axis] * math.prod(labels.shape) == math.prod(shape) else None


def num_classes_of_rows(scores: Any, labels: Any, *bottoms: Any) -> int:
    """Return the number of classes, which is the number of scores in each row."""
    return math.prod(scores.shape[1:])


def ignored_label(*, ctx: Context) -> int | None:
    """Return the `ignore_label` of the loss_param, or None if it is not set."""
    return ignored_label_of_metric(ctx.layer.loss_param)


def ignored_label_of_metric(p: Any) -> int | None:
    """Return the `ignore_label` of the layer's parameter message, as in accuracy layers, or None if it is not set."""
    return int(p.ignore_label) if p.HasField("ignore_label") else None
