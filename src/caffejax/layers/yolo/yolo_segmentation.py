"""YoloSeg and SegmentationEvaluate of MobileNet-YOLO: a segmentation loss, and intersection over union."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from .. import cross_replica
from ..context import Context
from ..dtype_policy import promote
from ..helpers import check_side_length
from ..loss import require_one_batch
from ..registry import define_layer
from ..types import Gradient, Indices, LayerDocs, Signature, Traced


def yolo_seg(ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array) -> jax.Array:
    """Sum of squares of d = `object_scale` * (sigmoid(x) - label), divided by N; a scalar.

    Bottoms: x and labels of one shape (N, C, ...), and optionally pixel counts (N, C) of each class. With pixel counts,
    the differences of a class are multiplied by 2 minus its share of the pixels. The gradient is d / N, as in the fork.
    """
    return jnp.sum(jnp.square(_difference(ctx, x, labels, *pixels))) / max(x.shape[0], 1)


def yolo_seg_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array | None, ...]:
    diff = dy / max(x.shape[0], 1) * _difference(ctx, x, labels, *pixels)
    return diff.astype(x.dtype), None, *(None for _ in pixels)


define_layer(
    Signature("YoloSeg", bottoms=(2, 3), param="yolo_seg_param", loss=True),
    Traced(yolo_seg),
    Gradient(yolo_seg_backward, overrides_autodiff=True, indices=Indices((1, 2)), exempt_from_force_backward=(1, 2)),
    docs=LayerDocs(
        origin="MobileNet-YOLO",
        restrictions="`class_scale`, `num_class`, `use_logic_gradient` and `use_hardsigmoid` are ignored, as in "
        "the fork. No recorded case.",
    ),
)


def _difference(ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array) -> jax.Array:
    require_one_batch(x.shape, labels.shape)
    require(x.size == labels.size, f"needs a label for each number: data {x.shape}, labels {labels.shape}")
    target = lax.stop_gradient(promote(labels)).reshape(x.shape)
    difference = ctx.param.object_scale * (jax.nn.sigmoid(promote(x)) - target)
    for counts in pixels:
        expected = x.shape[:2]
        require(
            len(x.shape) >= 2 and counts.shape[:2] == expected and counts.size == expected[0] * expected[1],
            f"bottom 2 must have the number of pixels of each class in each image, {expected}, not have shape "
            f"{counts.shape}",
        )
        per_class = cross_replica.psum(ctx, jnp.sum(lax.stop_gradient(promote(counts)).reshape(expected), axis=0))
        weights = per_class / jnp.maximum(jnp.sum(per_class), 1e-30)
        difference *= (2 - weights).reshape(-1, *(1,) * (len(x.shape) - 2))
    return difference


def segmentation_evaluate(ctx: Context, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Intersection over union of each class, (1, 1, 1, C), of probabilities and labels above `threshold`.

    Bottoms: probabilities (N, C, H, W), and labels (N, C, H', W'). A class without pixels gets 0. If the sizes differ,
    probabilities are truncated to multiples of 1/255 and resized bilinearly to H' x W'.
    """
    shape, target_shape, limit = x.shape, labels.shape, ctx.param.threshold
    require(
        len(shape) == 4 and len(target_shape) == 4 and target_shape[:2] == shape[:2],
        f"needs probabilities and labels (images, classes, height, width), not {shape} and {target_shape}",
    )
    probabilities, true = promote(x), promote(labels) > limit
    if target_shape[2:] != shape[2:]:
        probabilities, limit = (
            _resize_bytes(jnp.floor(jnp.clip(probabilities * 255, 0, 255)), target_shape[2:]),
            float(int(limit * 255)),
        )
    predicted = probabilities > limit
    both, either = (
        cross_replica.psum(ctx, jnp.sum(m, axis=(0, 2, 3), dtype=jnp.float32))
        for m in (predicted & true, predicted | true)
    )
    return (both / jnp.maximum(either, 1)).reshape(1, 1, 1, -1)


define_layer(
    Signature("SegmentationEvaluate", bottoms=2, param="segmentation_evaluate_param"),
    Traced(segmentation_evaluate),
    Gradient(exists=False, indices=Indices((1,))),
    docs=LayerDocs(
        origin="MobileNet-YOLO",
        restrictions="Counts are over all images, in the fork over the first image. `num_classes` is ignored. No "
        "recorded case; with resized probabilities single pixels may differ.",
    ),
)


def _resize_bytes(x: jax.Array, size: tuple[int, ...]) -> jax.Array:
    """Return images (N, C, H, W) of integers from 0 to 255, resized bilinearly and rounded, as by OpenCV."""
    check_side_length(size)
    for axis, n in zip((2, 3), size, strict=True):
        near, far, weight = _neighbours(x.shape[axis], n)
        along = weight.reshape(-1, *(1,) * (3 - axis)).astype(x.dtype)
        x = jnp.take(x, near, axis) * (1 - along) + jnp.take(x, far, axis) * along
    return jnp.floor(x + 0.5)


def _neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each new pixel of an axis the two old pixels beside it, and the weight of the second; (new,) each."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    near = np.floor(at).astype(np.int32)
    return near, np.minimum(near + 1, old - 1), at - near
