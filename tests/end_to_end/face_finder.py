"""MTCNN: three nets, each of which refines the candidate faces of the previous one (Zhang et al., 2016).

A box is (x1, y1, x2, y2) in pixels of the picture, both ends included. The authors' program works by columns, so their
nets have learned pictures with rows and columns exchanged: blobs are (batch, channels, x, y).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import cv2
import jax
import jax.numpy as jnp
import numpy as np

from caffejax.forks.detection.boxes import areas, intersections, non_max_suppression

Net = Callable[[Mapping[str, np.ndarray]], Mapping[str, jax.Array]]

MIN_FACE_SIZE, PYRAMID_SCALE = 20, 0.709  # pixels of the smallest face, and from one picture of the pyramid to the next
MIN_PROBABILITY = {"pnet": 0.6, "rnet": 0.7, "onet": 0.7}  # probabilities
WINDOW_SIZE = {"pnet": 12, "rnet": 24, "onet": 48}  # pixels that each net looks at
STRIDE = 2  # of P-Net's windows
OFFSET_BLOBS, LANDMARK_BLOB = {"pnet": "conv4-2", "rnet": "conv5-2", "onet": "conv6-2"}, "conv6-3"  # blobs


class Faces(NamedTuple):
    """Candidate faces: probabilities (N,), boxes (N, 4), offsets of the boxes (N, 4), landmarks (N, 5, 2)."""

    scores: np.ndarray
    boxes: np.ndarray
    offsets: np.ndarray  # in parts of the box's sides
    landmarks: np.ndarray

    def select(self, indices: np.ndarray) -> Faces:
        return Faces(*(a[indices] for a in self))

    def suppress_overlaps(
        self, limit: float, measure: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    ) -> Faces:
        """Return the boxes that overlap no better box by more than the limit, best first."""
        sorted_faces = self.select(np.argsort(-self.scores, kind="stable"))
        boxes = jnp.asarray(sorted_faces.boxes)
        return sorted_faces.select(
            np.asarray(non_max_suppression(boxes, jnp.ones(len(boxes), bool), limit, side_offset=1, measure=measure))
        )

    def apply_offsets(self) -> Faces:
        return self._replace(boxes=self.boxes + self.offsets * np.tile(measure_sides(self.boxes), 2))


def find_faces(nets: Mapping[str, Net], picture: np.ndarray) -> Faces:
    """Return the faces in a picture (height, width, RGB)."""
    scale, windows = WINDOW_SIZE["pnet"] / MIN_FACE_SIZE, []
    while min(picture.shape[:2]) * scale >= WINDOW_SIZE["pnet"]:
        windows.append(find_windows(nets["pnet"], picture, scale).suppress_overlaps(0.5))
        scale *= PYRAMID_SCALE
    faces = Faces(*map(np.concatenate, zip(*windows, strict=True))).suppress_overlaps(0.7).apply_offsets()
    faces = (
        classify_boxes(nets, "rnet", picture, make_enclosing_squares(faces.boxes))
        .suppress_overlaps(0.7)
        .apply_offsets()
    )
    return (
        classify_boxes(nets, "onet", picture, make_enclosing_squares(faces.boxes))
        .apply_offsets()
        .suppress_overlaps(0.7, measure=compute_overlap_with_smaller)
    )


def find_windows(p_net: Net, picture: np.ndarray, scale: float) -> Faces:
    """Return the windows of the picture at a scale that P-Net takes for faces."""
    height, width = (int(np.ceil(n * scale)) for n in picture.shape[:2])
    blobs = p_net({"data": make_input([cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)])})
    probabilities, offsets = np.asarray(blobs["prob1"])[0, 1], np.asarray(blobs[OFFSET_BLOBS["pnet"]])[0]
    x, y = np.nonzero(probabilities > MIN_PROBABILITY["pnet"])
    corner = STRIDE * np.stack([x, y], axis=1)
    boxes = np.concatenate([corner, corner + WINDOW_SIZE["pnet"] - 1], axis=1) / scale
    return Faces(probabilities[x, y], boxes, offsets[:, x, y].T, np.zeros((len(x), 5, 2)))


def classify_boxes(nets: Mapping[str, Net], name: str, picture: np.ndarray, boxes: np.ndarray) -> Faces:
    """Return the boxes of the picture that R-Net or O-Net takes for faces."""
    blobs = nets[name]({"data": make_input([crop_box(picture, box, WINDOW_SIZE[name]) for box in boxes.astype(int)])})
    landmarks = np.zeros((len(boxes), 5, 2))
    if LANDMARK_BLOB in blobs:  # in parts of the box's sides, the five x before the five y
        parts = np.asarray(blobs[LANDMARK_BLOB]).reshape(-1, 2, 5).transpose(0, 2, 1)
        landmarks = boxes[:, None, :2] + parts * measure_sides(boxes)[:, None]
    probabilities = np.asarray(blobs["prob1"])[:, 1]
    return Faces(probabilities, boxes, np.asarray(blobs[OFFSET_BLOBS[name]]), landmarks).select(
        probabilities > MIN_PROBABILITY[name]
    )


def crop_box(picture: np.ndarray, box: np.ndarray, side: int) -> np.ndarray:
    """Return what is in a box, at another size; beyond the picture it is black."""
    (x1, y1), (x2, y2) = box[:2], box[2:] + 1
    (left, top), (right, bottom) = (max(x1, 0), max(y1, 0)), (min(x2, picture.shape[1]), min(y2, picture.shape[0]))
    region = np.zeros((y2 - y1, x2 - x1, 3), picture.dtype)
    region[top - y1 : bottom - y1, left - x1 : right - x1] = picture[top:bottom, left:right]
    return cv2.resize(region, (side, side), interpolation=cv2.INTER_AREA)


def make_input(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return pictures as the nets take them."""
    return np.float32((np.stack(pictures).transpose(0, 3, 2, 1) - 127.5) / 128)


def measure_sides(boxes: np.ndarray) -> np.ndarray:
    return boxes[:, 2:] - boxes[:, :2] + 1


def make_enclosing_squares(boxes: np.ndarray) -> np.ndarray:
    """Return the squares round boxes with the same middles, in whole pixels."""
    side = measure_sides(boxes).max(axis=1, keepdims=True)
    corner = np.trunc((boxes[:, :2] + boxes[:, 2:] + 1 - side) / 2)
    return np.concatenate([corner, corner + np.trunc(side) - 1], axis=1)


def compute_overlap_with_smaller(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return what two boxes have in common as a part of the smaller one."""
    return intersections(a, b, side_offset=1) / jnp.minimum(areas(a, side_offset=1), areas(b, side_offset=1))
