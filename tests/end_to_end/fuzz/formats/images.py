"""Image files under an ImageData layer, and encoded in a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..harness import Files, Harness, mutate_one_file
from ..mutators.png_chunks import change_image
from ._sources import read_net_batches

_NET = """layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { crop_size: 6 }
  image_data_param { source: "list.txt" batch_size: 2 %s } }"""
_SUFFIXES = (".png", ".jpg", ".bmp", ".ppm", ".tiff", ".webp", ".gif")


def _make_intact_sets() -> list[Files]:
    rng = np.random.default_rng(0)
    color_pixels = rng.integers(0, 256, (9, 12, 3), np.uint8)
    gray16_pixels = rng.integers(0, 1 << 16, (9, 12), np.uint16)
    images = [
        (suffix, cv2.imencode(suffix, color_pixels)[1].tobytes()) for suffix in _SUFFIXES if cv2.haveImageWriter(suffix)
    ]
    images.append((".png", cv2.imencode(".png", gray16_pixels)[1].tobytes()))
    intact_image = cv2.imencode(".png", color_pixels)[1].tobytes()
    return [
        {"list.txt": f"good.png 1\nim{suffix} 0\n".encode(), f"im{suffix}": data, "good.png": intact_image}
        for suffix, data in images
    ]


def _read(folder: Path) -> Any:
    read_net_batches(_NET % "new_height: 8 new_width: 7", folder, 2)
    return read_net_batches(_NET % "is_color: false", folder, 2)


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a message if the picture beside the damaged one has changed."""
    return None if np.array_equal(actual[0][0][0], expected[0][0][0]) else "another picture: good.png"


HARNESS = Harness(
    _make_intact_sets,
    mutate_one_file(change_image, *(f"im{suffix}" for suffix in _SUFFIXES)),
    _read,
    _describe_difference,
)
