"""Yolov3DetectionOutput: the boxes that YOLOv3's maps hold."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .detections import ONE_LIST, rows
from .heads import Head, anchor_sizes, head, masked

Found = tuple[jax.Array, jax.Array, jax.Array]


def yolov3_detection_output(ctx: Context, *bottoms: jax.Array) -> jax.Array:
    """Rows (image, class + 1, score, x1, y1, x2, y2), the best first, of maps (N, num_box * (5 + num_classes), H, W).

    A score is objectness times the class's probability, both by sigmoid, and above `confidence_threshold`. A box is
    left out if a better one of whatever class overlaps it by `nms_threshold` or more: of one cell and anchor only
    the best class remains. All images of a batch make one list, in which all rows say image 0, as in the fork.
    """
    p = ctx.param
    every = p.nms_threshold >= 1  # nothing suppresses the other classes of its own box
    found = [_found(h, every) for h in _heads(ctx, bottoms)]
    boxes, scores, classes = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
    top = rows(boxes, scores, classes, scores > p.confidence_threshold, p.nms_threshold, bottoms[0].shape[0])
    return top.astype(bottoms[0].dtype)


register(
    LayerType(
        Signature("Yolov3DetectionOutput", bottoms=(1, None), param="yolov3_detection_output_param"),
        Traced(yolov3_detection_output),
        Gradient(exists=False),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(unsupported=ONE_LIST, origin="MobileNet-YOLO", restrictions="No `gaussian_box`."),
    )
)


def _heads(ctx: Context, bottoms: tuple[jax.Array, ...]) -> list[Head]:
    p, field, n = ctx.param, "yolov3_detection_output_param", len(bottoms)
    require(not p.gaussian_box, f"{field}.gaussian_box is not done here: boxes with their variances are refused")
    require(p.num_classes > 0, f"{field}.num_classes must be above 0")
    require(p.mask_group_num == n, f"{field}.mask_group_num is {p.mask_group_num}, but there are {n} bottoms")
    require(len(p.anchors_scale) >= n, f"{field}.anchors_scale must have {n} numbers, one for each bottom")
    require(all(s > 0 for s in p.anchors_scale), f"{field}.anchors_scale must be above 0")
    anchors, size = anchor_sizes(p.biases, field), len(p.mask) // n
    require(
        0 < p.num_box <= size and len(p.mask) == n * size,
        f"{field}.mask must have num_box = {p.num_box} anchors for each of the {n} bottoms, not {len(p.mask)} in all",
    )
    return [
        head(
            x, masked(anchors, p.mask[i * size :][: p.num_box], field), p.anchors_scale[i], p.num_classes, f"bottom {i}"
        )
        for i, x in enumerate(bottoms)
    ]


def _found(h: Head, every: bool) -> Found:
    """Return boxes, scores and classes of a map's cells: of the best class, or of every one."""
    s = jax.nn.sigmoid(h.raw)
    boxes, scores = h.boxes(s[..., :2]), s[..., 4:5] * s[..., 5:]
    if not every:
        return boxes.reshape(-1, 4), jnp.max(scores, axis=-1).ravel(), jnp.argmax(scores, axis=-1).ravel()
    classes = jnp.broadcast_to(jnp.arange(scores.shape[-1]), scores.shape)
    return jnp.repeat(boxes.reshape(-1, 4), scores.shape[-1], axis=0), scores.ravel(), classes.ravel()
