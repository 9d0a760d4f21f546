"""DetectionEvaluate, which counts ground-truth boxes, and marks detections as true or false positives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.errors import require
from ...core.layers.context import Context, LayerDefinition, Shape
from ...core.layers.declaration import register
from ...core.layers.helpers import no_gradient
from ...core.layers.position_values import decode_count
from ...core.layers.types import (
    Gradient,
    HostFunction,
    Indices,
    LayerDocs,
    LayerTraits,
    LayerType,
    PerLayer,
    Signature,
    Variants,
)
from ...core.schema.caffe_pb2 import DetectionEvaluateParameter
from .boxes import areas, overlaps
from .result_files import ImageInfo, is_in_units, read_image_infos, read_resize_param, scale_to_pixels

_CASCADE_COLUMNS = [0, 5, 6, 1, 2, 3, 4]  # the columns of FrcnnOutput's rows in the order of DetectionOutput
# the columns of rows [image, box, label, ignored, ...] in the order of MultiBoxLoss, whose column 2 is not used
_TRUTH_COLUMNS = [0, 5, 5, 1, 2, 3, 4, 6]


def make_detection_evaluate(p: DetectionEvaluateParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Count the ground-truth boxes of each class, and mark each detection as a true or false positive.

    Bottoms: the top of DetectionOutput, (1, 1, N, 7), and ground truth (1, 1, M, 8), as for MultiBoxLoss. The top
    has shape (1, 1, rows, 5). Its first rows are (-1, label, count, -1, -1), one for each class except background. The
    other rows are (image, label, score, true positive, false positive), one for each detection.

    Each detection is compared with the ground-truth box of its image and class that it overlaps most. It is a true
    positive if the overlap is at least overlap_threshold and no detection with a higher score has matched this box. A
    detection that matches a difficult box is neither a true nor a false positive, unless evaluate_difficult_gt is true.
    With name_size_file, boxes are compared in pixels of the images as they were before resize_param.
    """
    evaluation = _Evaluation(p, definition)
    return replace(
        ctx.type,
        implementation=HostFunction(
            evaluation.make_rows,
            detection_evaluate_top_shapes,
            ragged_axis=2,
            computes_in_float32=True,
            position=evaluation,
        ),
    )


def make_cascade_evaluate(p: DetectionEvaluateParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Count the ground-truth boxes of each class, and mark FrcnnOutput's detections as true or false positives.

    The top, (1, 1, rows, 5), has the rows of SSD's DetectionEvaluate. Bottoms: detections (N, 7) with rows [image, x1,
    y1, x2, y2, class, score]; ground truth (M, 7 or more) with rows [image, x1, y1, x2, y2, label, ignored, ...]; and
    the sizes of the images, which are not used. Boxes are in pixels, and a side is x2 - x1 + 1. Ignored ground truth
    counts as difficult.
    """
    evaluation = _Evaluation(p, definition, in_pixels=True)

    def make_rows(detections: np.ndarray, truth: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        detections, truth = detections.reshape(len(detections), -1), truth.reshape(len(truth), -1)
        return evaluation.make_rows(detections[:, _CASCADE_COLUMNS], truth[:, _TRUTH_COLUMNS])

    return replace(
        ctx.type,
        implementation=HostFunction(make_rows, cascade_evaluate_top_shapes, ragged_axis=2, computes_in_float32=True),
    )


def cascade_evaluate_top_shapes(p: Any, detections: Any, truth: Any, sizes: Any) -> list[Shape]:
    for i, (shape, columns) in enumerate(((detections.shape, 7), (truth.shape, 7))):
        require(
            len(shape) >= 2 and math.prod(shape[1:]) >= columns,
            f"bottom {i} must have rows of {columns} values or more, but has shape {shape}",
        )
    return [(1, 1, len(_list_labels(p)) + int(detections.shape[0]), 5)]


def detection_evaluate_top_shapes(p: Any, detections: Any, truth: Any) -> list[Shape]:
    for i, (shape, columns) in enumerate(((detections.shape, 7), (truth.shape, 8))):
        require(
            len(shape) >= 2 and shape[-1] == columns,
            f"bottom {i} must have rows of {columns} values, (1, 1, boxes, {columns}), but has shape {shape}",
        )
    return [(1, 1, len(_list_labels(p)) + int(np.prod(detections.shape[:-1])), 5)]


def _make_variant(origin: str, make: Any, bottoms: int) -> LayerType:
    name, param = "DetectionEvaluate", "detection_evaluate_param"
    return LayerType(
        Signature(name, bottoms=bottoms, param=param, in_place=False),
        PerLayer(make, on_host=True),
        Gradient(no_gradient, indices=Indices(tuple(range(bottoms))), exempt_from_force_backward=()),
        LayerTraits(marks_detections=True),
        docs=LayerDocs(origin=origin),
    )


register(
    "DetectionEvaluate",
    Variants(
        lambda layer: "Cascade R-CNN" if len(layer.bottom) == 3 else "SSD",
        {
            "SSD": _make_variant("SSD", make_detection_evaluate, 2),
            "Cascade R-CNN": _make_variant("Cascade R-CNN", make_cascade_evaluate, 3),
        },
        selection_doc="A layer with a third bottom, the sizes of images, is Cascade R-CNN's.",
    ),
    bottoms=(2, 3),
    param="detection_evaluate_param",
    in_place=False,
    origin="SSD, Cascade R-CNN",
)


def _list_labels(p: Any) -> list[int]:
    require(p.num_classes > 0, f"detection_evaluate_param needs num_classes above 0, not {p.num_classes}")
    require(p.num_classes <= _MAX_CLASSES, f"num_classes must be at most {_MAX_CLASSES}, not {p.num_classes}")
    return [label for label in range(p.num_classes) if label != p.background_label_id]


_MAX_CLASSES = 1_000_000


def pixel_overlaps(a: np.ndarray, b: np.ndarray, side_offset: float) -> np.ndarray:
    """Return the intersection over union, (...), of boxes `a` and `b` in pixels, as SSD computes it.

    As in the fork, the sides of the intersection are x2 - x1 + 1, and the intersection of disjoint boxes has an area of
    1.

    Args:
        a, b: the boxes (x1, y1, x2, y2), (..., 4); their leading axes broadcast.
        side_offset: added to x2 - x1 to get the side of a box.
    """
    intersection_sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    intersection_area = np.where(
        np.all(intersection_sides >= 0, axis=-1), np.prod(intersection_sides + 1, axis=-1), np.float32(1)
    )
    return np.asarray(intersection_area / (areas(a, side_offset) + areas(b, side_offset) - intersection_area))


class _Evaluation:
    """The state of one layer: its position in the file of image sizes, if name_size_file is set.

    Each image that has detections takes the next size in the file, and the next pass continues from there. After the
    last size, the first is used again.
    """

    def __init__(self, p: Any, definition: LayerDefinition, in_pixels: bool = False) -> None:
        self._p, self._resize = p, read_resize_param(p)
        require(p.overlap_threshold > 0, f"overlap_threshold must be positive: {p.overlap_threshold}")
        self._definition, self._file = definition, "" if in_pixels else p.name_size_file
        self._in_pixels = in_pixels
        self._image_infos: list[ImageInfo] = []
        self._num_images = 0  # that had detections

    def get_state(self) -> dict[str, int]:
        """Return the number of images that have taken a size."""
        return {"images": self._num_images}

    def set_state(self, state: Any) -> None:
        """Continue with the next size after a number of images that `get_state` returned."""
        self._num_images = decode_count(state, "images")

    def make_rows(self, detections: np.ndarray, truth: np.ndarray) -> np.ndarray:
        p = self._p
        detections = np.asarray(detections, np.float32).reshape(-1, 7)
        truth = np.asarray(truth, np.float32).reshape(-1, 8)
        end_rows = np.flatnonzero(truth[:, 0] == -1)
        truth = truth[: end_rows[0]] if len(end_rows) else truth  # as in the fork, a row with image -1 ends the list
        detections = detections[detections[:, 0] >= 0]
        require(
            not np.any(detections[:, 1] == p.background_label_id),
            f"a detection has the background label {p.background_label_id}",
        )
        rows: list[tuple[float, ...]] = [(-1, n, self._count_truth(p, truth, n), -1, -1) for n in _list_labels(p)]
        for image in np.unique(detections[:, 0]):
            image_info = self._next_image()
            image_detections, truths = detections[detections[:, 0] == image], truth[truth[:, 0] == image]
            for label in np.unique(image_detections[image_detections[:, 1] >= 0, 1]):
                rows += self._match_detections(
                    p, image_detections[image_detections[:, 1] == label], truths[truths[:, 1] == label], image_info
                )
        return np.asarray(rows, np.float32).reshape(1, 1, -1, 5)

    def _count_truth(self, p: Any, truth: np.ndarray, label: int) -> int:
        is_counted = (truth[:, 1] == label) & (p.evaluate_difficult_gt | (truth[:, 7] == 0))
        return int(np.count_nonzero(is_counted))

    def _next_image(self) -> ImageInfo | None:
        if not self._file:
            return None
        if not self._image_infos:
            self._image_infos = read_image_infos(self._definition.path(self._file))
        image = self._image_infos[self._num_images % len(self._image_infos)]
        self._num_images += 1
        return image

    def _match_detections(
        self, p: Any, detections: np.ndarray, truth: np.ndarray, image_info: ImageInfo | None
    ) -> list[tuple[float, ...]]:
        """Return a row for each detection of one class in one image.

        The row is (image, label, score, true positive, false positive).
        """
        if not len(truth):
            return [(*row[:3], 0, 1) for row in detections]
        detections = detections[np.argsort(-detections[:, 2], kind="stable")]
        boxes, truths = detections[:, 3:], truth[:, 3:7]
        if image_info is None:
            overlap = overlaps(boxes[:, None], truths, 1.0 if self._in_pixels else 0.0, must_touch=True)
        else:
            boxes, truths = (scale_to_pixels(x, image_info, self._resize) for x in (boxes, truths))
            overlap = pixel_overlaps(boxes[:, None], truths, 0.0 if is_in_units(self._resize) else 1.0)
        matched_truths: set[int] = set()
        rows: list[tuple[float, ...]] = []
        for row, best_truth, largest_overlap in zip(
            detections, overlap.argmax(axis=1), overlap.max(axis=1), strict=True
        ):
            true_positive, false_positive = 0, 1
            if largest_overlap >= np.float32(p.overlap_threshold):
                if not p.evaluate_difficult_gt and truth[best_truth, 7]:
                    false_positive = 0
                elif best_truth not in matched_truths:
                    true_positive, false_positive = 1, 0
                    matched_truths.add(int(best_truth))
            rows.append((*row[:3], true_positive, false_positive))
        return rows
