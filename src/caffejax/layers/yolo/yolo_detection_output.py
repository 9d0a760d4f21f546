"""YoloDetectionOutput: the boxes that YOLOv2's maps hold."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .detections import ONE_LIST, rows
from .heads import anchor_sizes, head


def yolo_detection_output(ctx: Context, *bottoms: jax.Array) -> jax.Array:
    """Rows (image, class + 1, score, x1, y1, x2, y2), the best first, of maps (N, num_box * (5 + num_classes), H, W).

    One or two maps, and one row for each cell and anchor, with its best class: its score is objectness times
    softmax, and at least `confidence_threshold`. A box is left out if a better one of whatever class overlaps it by
    `nms_threshold` or more. All images of a batch make one list, in which all rows say image 0, as in the fork.
    """
    p = ctx.param
    require(p.num_classes > 0, "yolo_detection_output_param.num_classes must be above 0")
    require(p.coords == 4, f"yolo_detection_output_param.coords must be 4, not {p.coords}")
    anchors = anchor_sizes(p.biases, "yolo_detection_output_param")[: p.num_box]
    require(len(anchors) == p.num_box, f"yolo_detection_output_param.biases must be of num_box = {p.num_box} anchors")
    boxes, scores, classes = [], [], []
    for i, x in enumerate(bottoms):
        h = head(x, anchors, 1, p.num_classes, f"bottom {i}")
        probabilities = jax.nn.softmax(h.raw[..., 5:])
        boxes.append(h.boxes(jax.nn.sigmoid(h.raw[..., :2])).reshape(-1, 4))
        scores.append((jax.nn.sigmoid(h.raw[..., 4]) * jnp.max(probabilities, axis=-1)).ravel())
        classes.append(jnp.argmax(probabilities, axis=-1).ravel())
    score = jnp.concatenate(scores)
    return rows(
        jnp.concatenate(boxes),
        score,
        jnp.concatenate(classes),
        score >= p.confidence_threshold,
        p.nms_threshold,
        bottoms[0].shape[0],
    ).astype(bottoms[0].dtype)


register(
    LayerType(
        Signature("YoloDetectionOutput", bottoms=(1, 2), param="yolo_detection_output_param"),
        Traced(yolo_detection_output),
        Gradient(exists=False),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(
            unsupported=ONE_LIST,
            origin="MobileNet-YOLO",
            restrictions="`label_map_file` is not read, `side` does nothing.",
        ),
    )
)
