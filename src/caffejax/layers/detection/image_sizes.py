"""Images' names and sizes, from a file with a line for each: name, height, width; and boxes in their pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, Problem, require


class Image(NamedTuple):
    """One image."""

    name: str
    height: int
    width: int


def read_sizes(path: Path) -> list[Image]:
    """Read such a file.

    Raises:
        DataError: if it cannot be read, or a line is something else.
    """
    images = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"cannot be read: {error}", str(path))) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            name, height, width = line.split()
            images.append(Image(name, int(height), int(width)))
        except ValueError as error:
            raise DataError(Problem(f"must be 'name height width', not '{line}'", str(path), number)) from error
    if not images:
        raise DataError(Problem("has no lines", str(path)))
    return images


def check_resize(param: Any) -> None:
    """Raise `LayerError` where images were resized in a way that boxes cannot be traced back through."""
    mode = param.resize_param.resize_mode if param.HasField("resize_param") else None
    warp = mode is None or mode == param.resize_param.WARP
    require(warp, "resize_param: only resize_mode WARP is supported; leave it out")


def in_pixels(boxes: np.ndarray, image: Image) -> np.ndarray:
    """Return boxes (..., 4), parts of the image, cut to it and in its pixels."""
    size = np.asarray([image.width, image.height] * 2, np.float32)
    return np.clip(boxes.astype(np.float32), 0, 1) * size
