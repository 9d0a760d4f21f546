"""The LaneData layer of MobileNet-YOLO: images with lanes, which are lists of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from ...core.data.data_layer import float32_top
from ...core.data.image_batches import Examples
from ...core.data.import_cv2 import cv2
from ...core.layers.context import Shape
from ...core.layers.declaration import register
from ...core.schema.caffe_pb2 import AnnotatedDatum
from ..detection.data.annotated_data import AnnotatedBatches, AnnotatedDataLayer, Parts
from ..detection.data.annotated_datum import Annotations
from ..detection.data.segmentation_labels import segmentation_size

_LABEL_SHAPE = 5, 64, 3  # lanes, nodes, and x, y and the lane's index
_NO_LANE = -1


class LaneBatches(AnnotatedBatches):
    """Batches of images with lanes; see `AnnotatedBatches` for the arguments."""

    annotation_types = (AnnotatedDatum.LANE,)

    def find_label_top(self, first_annotations: Sequence[Annotations]) -> jax.ShapeDtypeStruct:
        """Return the shape of the label top."""
        return float32_top(self.batch_size, *_LABEL_SHAPE)

    def make_label(self, examples: Examples[Annotations], parts: Parts) -> np.ndarray:
        """Return the label top: x, y and the lane's index of each node from the last to the first.

        The index is -1 where there is no node, or where it is outside of the image.
        """
        label = np.zeros((len(parts.images), *_LABEL_SHAPE), np.float32)
        label[..., 2] = _NO_LANE
        for rows, example, image, flip in zip(label, examples.labels, parts.images, parts.flips, strict=True):
            for lane, nodes in enumerate(_crop_lanes(example, image.window)[: len(rows)]):
                nodes = nodes[: rows.shape[1]]
                rows[lane, : len(nodes), 0] = 1 - nodes[:, 0] if flip else nodes[:, 0]
                rows[lane, : len(nodes), 1] = nodes[:, 1]
                rows[lane, : len(nodes), 2] = np.where(_is_inside(nodes), lane, _NO_LANE)
        return label

    def draw_segmentation(self, annotations: Annotations, window: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the lanes of a window of an image as lines that are a pixel wide, float32 (1, h, w)."""
        canvas = np.zeros(size, np.uint8)
        for nodes in _crop_lanes(annotations, window):
            corners = (nodes[_is_inside(nodes)] * np.array(size[::-1], np.float32)).astype(int).tolist()
            for last, corner in pairwise(corners):
                cv2.line(canvas, corner, last, 1)
        return canvas.astype(np.float32)[None]


def _crop_lanes(annotations: Annotations, window: np.ndarray) -> list[np.ndarray]:
    """Return the nodes of each lane relative to a window, from the last to the first."""
    return [(nodes[::-1] - window[:2]) / (window[2:] - window[:2]) for nodes in annotations.lanes]


def _is_inside(nodes: np.ndarray) -> np.ndarray:
    return np.all((nodes >= 0) & (nodes <= 1), axis=1)


class LaneDataLayer(AnnotatedDataLayer):
    """Batches of images with lanes from an LMDB or LevelDB, as convert_annoset stores them.

    The label (N, 5, 64, 3) has x, y and the lane's index for each node of at most 5 lanes, -1 where there is none.
    The third top (N, 1, h, w) has the lanes as lines. Images are augmented as by AnnotatedData.
    """

    supported_fields = (
        *("batch_sampler", "label_map_file", "anno_type", "yolo_data_type", "yolo_data_jitter"),
        *("seg_scales", "seg_resize_width", "seg_resize_height"),
    )
    batches_class = LaneBatches

    @staticmethod
    def label_shapes(layer: Any, batch_size: int, height: int, width: int) -> Sequence[Shape]:
        """Return the shapes of the label and of the third top."""
        size = segmentation_size(layer.annotated_data_param, height, width)
        return [(batch_size, *_LABEL_SHAPE), (batch_size, 1, *size)]


register(
    "LaneData",
    LaneDataLayer.implementation(),
    bottoms=0,
    tops=(1, 3),
    param="annotated_data_param",
    further_params=("data_param",),
    origin="MobileNet-YOLO",
    restrictions="The label is mirrored with the image, and has -1 where there is no node; in the fork it stays, and "
    "is undefined. No recorded case.",
)
