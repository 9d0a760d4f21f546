"""Windows of temporal segment networks, scaled to one size, and mirrored flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import DataError
from ...layers.context import Site
from ..images import resize
from ..shapes import dims

_RATIOS = (1.0, 0.875, 0.75, 0.66)
# places of windows, in quarters of the room that they have: corners and middle, then those of more_fix_crop
_PLACES = ((0, 0), (0, 4), (4, 0), (4, 4), (2, 2))
_MORE = ((0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3))

FOLLOWED = ("crop_size", "mirror", "multi_scale", "fix_crop", "more_fix_crop", "max_distort", "scale_ratios", "is_flow")


def windows_of(site: Site) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return what cuts a window out of an image (C, H, W), and mirrors it, as transform_param says.

    In TRAIN windows lie anywhere, or with `fix_crop` at one of a few places; with `multi_scale` their sides are parts
    (`scale_ratios`) of the image's shorter side, whose numbers are at most `max_distort` apart, and they are scaled to
    crop_size. Else the window lies in the middle. Mirrored frames of a flow along x, `is_flow`, are turned round: 255
    less what they were.
    """
    p, training = site.layer.transform_param, site.training
    ratios = [np.float32(r) for r in p.scale_ratios or _RATIOS]
    if not all(0 < r <= 1 for r in ratios):
        raise DataError(f"transform_param.scale_ratios must be above 0 and at most 1: {list(p.scale_ratios)}")
    if p.multi_scale and not p.crop_size:
        raise DataError("transform_param has multi_scale, which needs a crop_size")
    if p.original_image:
        raise DataError("transform_param.original_image is not supported")
    if p.mean_file and p.crop_size:
        raise DataError("transform_param has a mean_file and a crop_size; give mean_value")

    def window(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if p.crop_size:
            image = _cut(p, ratios, image, random if training else None)
        if p.mirror and random.integers(2):
            image = image[:, :, ::-1]
            if p.is_flow:
                image = image.copy()
                image[::2] = 255 - image[::2]
        return image

    return window


def _cut(p: Any, ratios: list[np.float32], image: np.ndarray, random: np.random.Generator | None) -> np.ndarray:
    size, extent = (p.crop_size, p.crop_size), image.shape[1:]
    if min(extent) < p.crop_size:
        raise DataError(f"is {dims(image.shape)} (CxHxW), smaller than crop_size {p.crop_size}")
    if random is not None and p.multi_scale:
        sides = [int(min(extent) * ratio) for ratio in ratios]
        sides = [p.crop_size if abs(side - p.crop_size) < 3 else side for side in sides]
        pairs = [(h, w) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= p.max_distort]
        size = pairs[random.integers(len(pairs))]
    room = [n - side for n, side in zip(extent, size, strict=True)]
    if random is None:
        row, column = (n // 2 for n in room)
    elif p.fix_crop:
        places = _PLACES + _MORE if p.more_fix_crop else _PLACES
        row, column = (n // 4 * q for n, q in zip(room, places[random.integers(len(places))], strict=True))
    else:
        row, column = (int(random.integers(n + 1)) for n in room)
    cut = image[:, row : row + size[0], column : column + size[1]]
    if size == (p.crop_size, p.crop_size):
        return cut
    # one by one: OpenCV takes no more than 512 channels
    return np.concatenate([resize(channel[None], p.crop_size, p.crop_size) for channel in cut])
