"""Drawn pictures of discs, squares and triangles, on which a small SSD learns to detect.

A picture is 96 x 96 and has one to four shapes of random colour, size and place on a random background. Databases hold
them as the SSD fork's AnnotatedDatum, a PNG with boxes: 600 for training and 150 others for testing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..data import write_lmdb
from ..schema import caffe_pb2

SIZE = 96
SHAPES = ("disc", "square", "triangle")  # labels 1, 2, 3; 0 is the background
CLASSES = len(SHAPES) + 1
_PICTURES = {"train": 600, "test": 150}


def write_databases(folder: Path) -> None:
    """Write `shapes_train_lmdb` and `shapes_test_lmdb` into a folder."""
    for seed, (part, count) in enumerate(_PICTURES.items()):
        write_lmdb(folder / f"shapes_{part}_lmdb", _records(count, seed))


def draw_pictures(count: int, seed: int) -> Iterator[tuple[np.ndarray, list[tuple[int, np.ndarray]]]]:
    """Yield pictures, uint8 (SIZE, SIZE, 3), each with the label and box (x1, y1, x2, y2 in pixels) of its shapes."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        yield _draw_picture(random)


def _draw_picture(random: np.random.RandomState) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    image = np.empty((SIZE, SIZE, 3), np.uint8)
    image[:] = random.randint(60, 200, 3)
    image = cv2.add(image, random.randint(0, 30, image.shape).astype(np.uint8))
    shapes: list[tuple[int, np.ndarray]] = []
    for _ in range(random.randint(1, 5)):
        side = random.randint(14, 52)
        x, y = random.randint(1, SIZE - side - 1, 2)
        box = np.array([x, y, x + side, y + side])
        if any(_touch(box, other) for _, other in shapes):
            continue
        label = random.randint(1, CLASSES)
        colour = tuple(int(c) for c in (image[y, x].astype(int) + random.randint(70, 186, 3)) % 256)
        _shape(image, SHAPES[label - 1], box, colour)
        shapes.append((label, box))
    return image, shapes


def _touch(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(a[:2] < b[2:] + 2) and np.all(b[:2] < a[2:] + 2))


def _shape(image: np.ndarray, shape: str, box: np.ndarray, colour: tuple[int, ...]) -> None:
    x1, y1, x2, y2 = (int(n) for n in box)
    if shape == "disc":
        radius = (x2 - x1) // 2
        cv2.circle(image, (x1 + radius, y1 + radius), radius, colour, -1)
    elif shape == "square":
        cv2.rectangle(image, (x1, y1), (x2, y2), colour, -1)
    else:
        cv2.fillPoly(image, [np.array([[x1, y2], [x2, y2], [(x1 + x2) // 2, y1]], np.int32)], colour)


def _annotate(image: np.ndarray, shapes: list[tuple[int, np.ndarray]]) -> Any:
    """Return a picture as an AnnotatedDatum."""
    record = caffe_pb2.AnnotatedDatum(type=caffe_pb2.AnnotatedDatum.BBOX)
    record.datum.encoded, record.datum.data = True, cv2.imencode(".png", image)[1].tobytes()
    for number, (label, box) in enumerate(shapes):
        annotation = record.annotation_group.add(group_label=label).annotation.add(instance_id=number)
        for field, value in zip(("xmin", "ymin", "xmax", "ymax"), box / SIZE, strict=True):
            setattr(annotation.bbox, field, value)
    return record


def _records(count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    for number, (image, shapes) in enumerate(draw_pictures(count, seed)):
        yield b"%08d" % number, _annotate(image, shapes).SerializeToString()
