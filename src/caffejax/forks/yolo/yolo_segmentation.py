"""YoloSeg and SegmentationEvaluate of MobileNet-YOLO: a segmentation loss, and intersection over union of classes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import check_side_length
from ...core.layers.loss_helpers import batch_size, in_valid_rows, require_same_batch_size, sum_rows
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import SegmentationEvaluateParameter

_THRESHOLD = 0.5  # labels above it belong to the class


@register(
    "YoloSeg",
    bottoms=(2, 3),
    param="yolo_seg_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1, 2)),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="`class_scale`, `num_class`, `use_logic_gradient` and `use_hardsigmoid` are ignored, as in "
    "the fork. The weight of a class that has more than two thirds of the pixels is 0; the fork's is negative, and its "
    "gradient points away from the labels.",
)
def yolo_seg(x: jax.Array, labels: jax.Array, *pixel_counts: jax.Array, ctx: Context) -> jax.Array:
    """Compute the sum of squares of d = `object_scale` * (sigmoid(x) - label), divided by N, as a scalar.

    Bottoms: x and labels of one shape (N, C, ...), and optionally the number of pixels of each class, (N, C). With
    these numbers, differences where the label is above 0.5 are multiplied by 2 minus r, at least 0, where r is the
    number of the class's pixels divided by the number of all others. The gradient is d / N, as in the fork.
    """
    squares = jnp.square(_subtract_labels(ctx, x, labels, *pixel_counts))
    return sum_rows(ctx, squares) / batch_size(ctx, x)


@yolo_seg.backward
def yolo_seg_backward(
    x: jax.Array, labels: jax.Array, *pixel_counts: jax.Array, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array | None, ...]:
    diff = dy / batch_size(ctx, x) * _subtract_labels(ctx, x, labels, *pixel_counts)
    return diff.astype(x.dtype), None, *(None for _ in pixel_counts)


def _subtract_labels(ctx: Context, x: jax.Array, labels: jax.Array, *pixel_counts: jax.Array) -> jax.Array:
    require_same_batch_size(x.shape, labels.shape)
    require(
        x.size == labels.size, f"needs a label for each value of bottom 0 {x.shape}, not labels of shape {labels.shape}"
    )
    target = lax.stop_gradient(promote(labels)).reshape(x.shape)
    difference = ctx.param.object_scale * (jax.nn.sigmoid(promote(x)) - target)
    for counts in pixel_counts:
        expected_shape = x.shape[:2]
        require(
            len(x.shape) >= 2
            and counts.shape[:2] == expected_shape
            and counts.size == expected_shape[0] * expected_shape[1],
            f"bottom 2 must have the number of pixels of each class in each image, {expected_shape}, not shape "
            f"{counts.shape}",
        )
        num_pixels = lax.stop_gradient(promote(counts)).reshape(expected_shape)
        valid_rows = in_valid_rows(ctx, jnp.ones(expected_shape, bool))
        class_pixels, all_pixels = (
            cross_replica.psum(ctx, jnp.sum(jnp.where(valid_rows, pixels, 0), axis=0))
            for pixels in (num_pixels, float(math.prod(x.shape[2:])))
        )
        ratios = class_pixels / jnp.maximum(all_pixels - class_pixels, 1e-30)
        weights = jnp.maximum(2 - ratios, 0)
        difference *= jnp.where(target > _THRESHOLD, weights.reshape(-1, *(1,) * (len(x.shape) - 2)), 1)
    return difference


@register(
    "SegmentationEvaluate",
    bottoms=2,
    param="segmentation_evaluate_param",
    differentiable=False,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="All images are counted; the fork counts only the first image. `num_classes` is ignored. In tests "
    'with `eval_type: "detection_segmentation"` a class\'s mean is over the batches that have it; in the fork, '
    "its first -1 ends the sum.",
)
def segmentation_evaluate(
    p: SegmentationEvaluateParameter, x: jax.Array, labels: jax.Array, *, ctx: Context
) -> jax.Array:
    """Compute the intersection over union of each class, for probabilities and labels above `threshold`.

    Bottoms: probabilities (N, C, H, W), and labels (N, C, H', W'). The top has shape (1, 1, 1, C). A class without
    pixels gets 0. If the sizes differ, probabilities are truncated to multiples of 1/255 and resized to H' x W' by
    OpenCV's linear interpolation, since the fork passes INTER_AREA as another argument; a class without labels gets -1.
    """
    shape, label_shape, threshold = x.shape, labels.shape, p.threshold
    require(
        len(shape) == 4 and len(label_shape) == 4 and label_shape[:2] == shape[:2],
        f"needs probabilities and labels (images, classes, height, width), not {shape} and {label_shape}",
    )
    probabilities, is_label = promote(x), promote(labels) > threshold
    is_resized = label_shape[2:] != shape[2:]
    if is_resized:
        probabilities, threshold = (
            _resize_bytes(jnp.floor(jnp.clip(probabilities * 255, 0, 255)), label_shape[2:]),
            float(int(threshold * 255)),
        )
    is_predicted = in_valid_rows(ctx, probabilities > threshold)
    is_label = in_valid_rows(ctx, is_label)
    intersection, union, count = (
        cross_replica.psum(ctx, jnp.sum(m, axis=(0, 2, 3), dtype=jnp.float32))
        for m in (is_predicted & is_label, is_predicted | is_label, is_label)
    )
    iou = intersection / jnp.maximum(union, 1)
    return (jnp.where(count > 0, iou, -1) if is_resized else iou).reshape(1, 1, 1, -1)


def _resize_bytes(x: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """Resize images (N, C, H, W) of integers from 0 to 255 to `size` as OpenCV's linear interpolation of bytes does."""
    check_side_length(size)
    (above, below, *row_weights), (left, right, *column_weights) = map(_read_neighbours, x.shape[2:], size)
    pixels = x.astype(jnp.int32)
    rows = column_weights[0] * pixels[..., left] + column_weights[1] * pixels[..., right]
    upper, lower = (
        (weights[:, None] * (rows[:, :, index] >> 4)) >> 16  # OpenCV truncates each
        for weights, index in zip(row_weights, (above, below), strict=True)
    )
    return (upper + lower + 2) >> 2


def _read_neighbours(old_size: int, new_size: int) -> tuple[np.ndarray, ...]:
    """Return the indices of the two old pixels around each new pixel of an axis, and their weights in 1/2048."""
    center = ((np.arange(new_size) + 0.5) * (old_size / new_size) - 0.5).astype(np.float32)
    low = np.floor(center).astype(np.int32)
    high_weight = np.rint((center - low) * 2048).astype(np.int32)
    indices = (np.clip(i, 0, old_size - 1) for i in (low, low + 1))
    return *indices, 2048 - high_weight, high_weight
