"""YoloSeg and SegmentationEvaluate of MobileNet-YOLO: a segmentation loss, and intersection over union of classes."""

from __future__ import annotations

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


@register(
    "YoloSeg",
    bottoms=(2, 3),
    param="yolo_seg_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1, 2)),
    exempt_from_force_backward=(1, 2),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="`class_scale`, `num_class`, `use_logic_gradient` and `use_hardsigmoid` are ignored, as in "
    "the fork. No recorded case.",
)
def yolo_seg(x: jax.Array, labels: jax.Array, *pixel_counts: jax.Array, ctx: Context) -> jax.Array:
    """Compute the sum of squares of d = `object_scale` * (sigmoid(x) - label), divided by N, as a scalar.

    Bottoms: x and labels of one shape (N, C, ...), and optionally the number of pixels of each class, (N, C). With
    these numbers, the differences of a class are multiplied by 2 minus the class's fraction of the pixels. The gradient
    is d / N, as in the fork.
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
        class_counts = cross_replica.psum(
            ctx, jnp.sum(lax.stop_gradient(promote(counts)).reshape(expected_shape), axis=0)
        )
        class_fractions = class_counts / jnp.maximum(jnp.sum(class_counts), 1e-30)
        difference *= (2 - class_fractions).reshape(-1, *(1,) * (len(x.shape) - 2))
    return difference


@register(
    "SegmentationEvaluate",
    bottoms=2,
    param="segmentation_evaluate_param",
    differentiable=False,
    indices=Indices((1,)),
    counts_rows=True,
    origin="MobileNet-YOLO",
    restrictions="All images are counted; the fork counts only the first image. `num_classes` is ignored. No "
    "recorded case; if probabilities are resized, single pixels may differ.",
)
def segmentation_evaluate(
    p: SegmentationEvaluateParameter, x: jax.Array, labels: jax.Array, *, ctx: Context
) -> jax.Array:
    """Compute the intersection over union of each class, for probabilities and labels above `threshold`.

    Bottoms: probabilities (N, C, H, W), and labels (N, C, H', W'). The top has shape (1, 1, 1, C). A class without
    pixels gets 0. If the sizes differ, probabilities are truncated to multiples of 1/255 and resized bilinearly to H' x
    W'.
    """
    shape, label_shape, threshold = x.shape, labels.shape, p.threshold
    require(
        len(shape) == 4 and len(label_shape) == 4 and label_shape[:2] == shape[:2],
        f"needs probabilities and labels (images, classes, height, width), not {shape} and {label_shape}",
    )
    probabilities, is_label = promote(x), promote(labels) > threshold
    if label_shape[2:] != shape[2:]:
        probabilities, threshold = (
            _resize_bytes(jnp.floor(jnp.clip(probabilities * 255, 0, 255)), label_shape[2:]),
            float(int(threshold * 255)),
        )
    is_predicted = in_valid_rows(ctx, probabilities > threshold)
    is_label = in_valid_rows(ctx, is_label)
    intersection, union = (
        cross_replica.psum(ctx, jnp.sum(m, axis=(0, 2, 3), dtype=jnp.float32))
        for m in (is_predicted & is_label, is_predicted | is_label)
    )
    return (intersection / jnp.maximum(union, 1)).reshape(1, 1, 1, -1)


def _resize_bytes(x: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """Resize images (N, C, H, W) of integers from 0 to 255 to `size` bilinearly, and round the result, as in OpenCV."""
    check_side_length(size)
    for axis, n in zip((2, 3), size, strict=True):
        low, high, weight = _find_neighbors(x.shape[axis], n)
        fraction = weight.reshape(-1, *(1,) * (3 - axis)).astype(x.dtype)
        x = jnp.take(x, low, axis) * (1 - fraction) + jnp.take(x, high, axis) * fraction
    return jnp.floor(x + 0.5)


def _find_neighbors(old_size: int, new_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two old pixels beside each new pixel of an axis, and the weight of the second of them, (new,) each.

    `old_size` and `new_size` are the numbers of pixels.
    """
    position = np.clip((np.arange(new_size) + 0.5) * old_size / new_size - 0.5, 0, old_size - 1)
    low = np.floor(position).astype(np.int32)
    return low, np.minimum(low + 1, old_size - 1), position - low
