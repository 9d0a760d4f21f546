"""Image files under an ImageData layer, and encoded in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..harness import Files, Harness, mutate_one_file
from ..mutators.png_chunks import change_picture
from ._sources import batches

_NET = """layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { crop_size: 6 }
  image_data_param { source: "list.txt" batch_size: 2 %s } }"""
_SUFFIXES = (".png", ".jpg", ".bmp", ".ppm", ".tiff", ".webp", ".gif")


def _intact() -> list[Files]:
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (9, 12, 3), np.uint8)
    grey16 = rng.integers(0, 1 << 16, (9, 12), np.uint16)
    pictures = [(form, cv2.imencode(form, colours)[1].tobytes()) for form in _SUFFIXES if cv2.haveImageWriter(form)]
    pictures.append((".png", cv2.imencode(".png", grey16)[1].tobytes()))
    intact_picture = cv2.imencode(".png", colours)[1].tobytes()
    return [
        {"list.txt": f"good.png 1\nim{form} 0\n".encode(), f"im{form}": data, "good.png": intact_picture}
        for form, data in pictures
    ]


def _read(folder: Path) -> Any:
    batches(_NET % "new_height: 8 new_width: 7", folder, 2)
    return batches(_NET % "is_color: false", folder, 2)


def _complaint(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a complaint if the picture beside the damaged one has changed."""
    return None if np.array_equal(actual[0][0][0], expected[0][0][0]) else "another picture: good.png"


HARNESS = Harness(_intact, mutate_one_file(change_picture, *(f"im{form}" for form in _SUFFIXES)), _read, _complaint)
