"""Draws pictures of discs, squares and triangles: configs/ssd_shapes/shapes_{train,test}_lmdb.

    python scripts/make_ssd_shapes.py

A picture is 96 x 96, has one to four shapes of random colour, size and place on a random background, and is stored as
the SSD fork's AnnotatedDatum, a PNG with boxes. 600 are for training, other 150 for testing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from caffejax.data import write_lmdb
from caffejax.schema import caffe_pb2

FOLDER = Path(__file__).resolve().parents[1] / "configs" / "ssd_shapes"
SIZE = 96
SHAPES = ("disc", "square", "triangle")  # labels 1, 2, 3; 0 is the background
CLASSES = len(SHAPES) + 1
PICTURES = {"train": 600, "test": 150}


def picture(draw: np.random.RandomState) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """Draw a picture: uint8 (SIZE, SIZE, 3), and the label and box (x1, y1, x2, y2 in pixels) of each shape."""
    image = np.empty((SIZE, SIZE, 3), np.uint8)
    image[:] = draw.randint(60, 200, 3)
    image = cv2.add(image, draw.randint(0, 30, image.shape).astype(np.uint8))
    found: list[tuple[int, np.ndarray]] = []
    for _ in range(draw.randint(1, 5)):
        side = draw.randint(14, 52)
        x, y = draw.randint(1, SIZE - side - 1, 2)
        box = np.array([x, y, x + side, y + side])
        if any(_touch(box, other) for _, other in found):
            continue
        label = draw.randint(1, CLASSES)
        colour = tuple(int(c) for c in (image[y, x].astype(int) + draw.randint(70, 186, 3)) % 256)
        _shape(image, SHAPES[label - 1], box, colour)
        found.append((label, box))
    return image, found


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


def annotated(image: np.ndarray, shapes: list[tuple[int, np.ndarray]]) -> Any:
    """Return a picture as an AnnotatedDatum."""
    found = caffe_pb2.AnnotatedDatum(type=caffe_pb2.AnnotatedDatum.BBOX)
    found.datum.encoded, found.datum.data = True, cv2.imencode(".png", image)[1].tobytes()
    for number, (label, box) in enumerate(shapes):
        annotation = found.annotation_group.add(group_label=label).annotation.add(instance_id=number)
        for field, value in zip(("xmin", "ymin", "xmax", "ymax"), box / SIZE, strict=True):
            setattr(annotation.bbox, field, value)
    return found


def pictures(count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of so many records."""
    draw = np.random.RandomState(seed)
    for i in range(count):
        yield b"%08d" % i, annotated(*picture(draw)).SerializeToString()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for seed, (part, count) in enumerate(PICTURES.items()):
        write_lmdb(FOLDER / f"shapes_{part}_lmdb", pictures(count, seed))
