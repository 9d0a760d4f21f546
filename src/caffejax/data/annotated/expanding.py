"""expand_param: the image at a random place of a larger one, which makes its objects smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .emitting import Emit
from .picture import Picture

_SAME = 1e-2  # ratios that differ from 1 by less change nothing
_LARGEST = 100  # ratio; memory grows with its square


def expansion_problems(param: Any) -> Iterator[str]:
    """Yield what is wrong with a TransformationParameter that has an expand_param."""
    if not 1 <= param.expand_param.max_expand_ratio <= _LARGEST:
        ratio = f"{param.expand_param.max_expand_ratio:g}"
        yield f"transform_param.expand_param: max_expand_ratio must be 1 or more, and at most {_LARGEST}, not {ratio}"
    if param.HasField("mean_file"):
        yield "transform_param has expand_param and mean_file: larger images need another mean; give mean_value"


def expanded(picture: Picture, param: Any, background: np.ndarray, emit: Emit, rng: np.random.Generator) -> Picture:
    """Return a picture somewhere on a background of one colour, or as it is.

    Args:
        picture: the picture.
        param: the ExpansionParameter.
        background: a value for each channel, or one.
        emit: which objects stay.
        rng: decides whether, how much, and where.
    """
    if rng.random() > param.prob or abs(param.max_expand_ratio - 1) < _SAME:
        return picture
    ratio = rng.uniform(1, param.max_expand_ratio)
    h, w, channels = picture.image.shape
    height, width = int(h * ratio), int(w * ratio)
    top, left = int(rng.uniform(0, height - h)), int(rng.uniform(0, width - w))
    image = np.empty((height, width, channels), picture.image.dtype)
    image[...] = _as_pixels(background, image.dtype)
    image[top : top + h, left : left + w] = picture.image
    window = np.array([-left / w, -top / h, (width - left) / w, (height - top) / h], np.float32)
    return emit(picture, window).seen_through(window, image)


def _as_pixels(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(dtype) if dtype == np.uint8 else values
