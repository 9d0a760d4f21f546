"""Synthetic pictures of shapes or faces, to train a small SSD detector.

A picture has 96 x 96 pixels and one to four objects of random colour, size and position on a random background. The
databases store each picture as the SSD fork's AnnotatedDatum, which is a PNG image with boxes. 600 pictures are for
training, and 150 others are for testing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..base.databases import write_lmdb
from ..core.schema import caffe_pb2

SIZE = 96
# labels 1, 2, 3 of the objects of each demo; 0 is the background
OBJECT_NAMES = {"shapes": ("disc", "square", "triangle"), "face": ("smiling", "sad", "surprised")}
_SIDE_RANGES = {"shapes": (14, 52), "face": (30, 66)}  # half-open ranges of side lengths in pixels
_NUM_PICTURES = {"train": 600, "test": 150}


def write_databases(demo: str, folder: Path) -> None:
    """Write the databases of a demo, `shapes_train_lmdb` and `shapes_test_lmdb`, into a folder."""
    for seed, (split, count) in enumerate(_NUM_PICTURES.items()):
        write_lmdb(folder / f"shapes_{split}_lmdb", _draw_records(demo, count, seed))


def draw_pictures(demo: str, count: int, seed: int) -> Iterator[tuple[np.ndarray, list[tuple[int, np.ndarray]]]]:
    """Yield pairs of a picture, uint8 (SIZE, SIZE, 3), and the list of its objects.

    An object is a pair of a label and a box (x1, y1, x2, y2), in pixels.
    """
    rng = np.random.RandomState(seed)
    for _ in range(count):
        yield _draw_picture(demo, rng)


def _draw_picture(demo: str, rng: np.random.RandomState) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    image = np.empty((SIZE, SIZE, 3), np.uint8)
    image[:] = rng.randint(60, 200, 3)
    image = cv2.add(image, rng.randint(0, 30, image.shape).astype(np.uint8))
    objects: list[tuple[int, np.ndarray]] = []
    for _ in range(rng.randint(1, 5)):
        side = rng.randint(*_SIDE_RANGES[demo])
        x, y = rng.randint(1, SIZE - side - 1, 2)
        box = np.array([x, y, x + side, y + side])
        if any(_are_close(box, drawn_box) for _, drawn_box in objects):
            continue
        label = rng.randint(1, len(OBJECT_NAMES[demo]) + 1)
        color = tuple(int(c) for c in (image[y, x].astype(int) + rng.randint(70, 186, 3)) % 256)
        draw = _draw_face if demo == "face" else _draw_shape
        draw(image, OBJECT_NAMES[demo][label - 1], box, color)
        objects.append((label, box))
    return image, objects


def _are_close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(a[:2] < b[2:] + 2) and np.all(b[:2] < a[2:] + 2))


def _draw_shape(image: np.ndarray, shape: str, box: np.ndarray, color: tuple[int, ...]) -> None:
    x1, y1, x2, y2 = (int(n) for n in box)
    if shape == "disc":
        radius = (x2 - x1) // 2
        cv2.circle(image, (x1 + radius, y1 + radius), radius, color, -1)
    elif shape == "square":
        cv2.rectangle(image, (x1, y1), (x2, y2), color, -1)
    else:
        cv2.fillPoly(image, [np.array([[x1, y2], [x2, y2], [(x1 + x2) // 2, y1]], np.int32)], color)


def _draw_face(image: np.ndarray, mood: str, box: np.ndarray, color: tuple[int, ...]) -> None:
    side = int(box[2] - box[0])
    line_color = (0, 0, 0) if sum(color) > 3 * 127 else (255, 255, 255)
    to_pixel = lambda x, y: (int(box[0] + x * side), int(box[1] + y * side))  # noqa: E731
    cv2.circle(image, to_pixel(0.5, 0.5), side // 2, color, -1)
    for x in 0.32, 0.68:
        cv2.circle(image, to_pixel(x, 0.38), max(1, side // 14), line_color, -1)
    thickness = max(1, side // 16)
    if mood == "smiling":
        cv2.ellipse(image, to_pixel(0.5, 0.55), (int(0.26 * side), int(0.24 * side)), 0, 15, 165, line_color, thickness)
    elif mood == "sad":
        cv2.ellipse(
            image, to_pixel(0.5, 0.85), (int(0.26 * side), int(0.24 * side)), 0, 195, 345, line_color, thickness
        )
    else:
        cv2.circle(image, to_pixel(0.5, 0.7), max(2, side // 8), line_color, -1)


def _make_annotated_datum(image: np.ndarray, objects: list[tuple[int, np.ndarray]]) -> Any:
    record = caffe_pb2.AnnotatedDatum(type=caffe_pb2.AnnotatedDatum.BBOX)
    record.datum.encoded, record.datum.data = True, cv2.imencode(".png", image)[1].tobytes()
    for instance_id, (label, box) in enumerate(objects):
        annotation = record.annotation_group.add(group_label=label).annotation.add(instance_id=instance_id)
        for field, value in zip(("xmin", "ymin", "xmax", "ymax"), box / SIZE, strict=True):
            setattr(annotation.bbox, field, value)
    return record


def _draw_records(demo: str, count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    for index, (image, objects) in enumerate(draw_pictures(demo, count, seed)):
        yield b"%08d" % index, _make_annotated_datum(image, objects).SerializeToString()
