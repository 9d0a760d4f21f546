"""noise_param: what spoils an image: each of it in all images, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import DataError
from ..opencv import cv2

_KNOWN = {"prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode", "saltpepper"} | {
    *("saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab"),
}
_LEVELS = np.arange(256, dtype=np.uint8)
_POSTERIZED = (_LEVELS // 64 * 64 + 32).astype(np.uint8)


def noise_problems(param: Any) -> Iterator[str]:
    """Yield what is wrong with a NoiseParameter."""
    for field, value in param.ListFields():
        if field.name not in _KNOWN and value != field.default_value:
            yield f"transform_param.noise_param.{field.name} is not supported yet"
    if param.jpeg > 100:
        yield f"transform_param.noise_param.jpeg is a quality up to 100, not {param.jpeg:g}"
    if param.saltpepper and not 0 <= param.saltpepper_param.fraction <= 1:
        fraction = f"{param.saltpepper_param.fraction:g}"
        yield f"transform_param.noise_param.saltpepper_param: fraction must lie between 0 and 1, not {fraction}"
    if param.saltpepper and not param.saltpepper_param.value:
        yield "transform_param.noise_param.saltpepper_param has no value; give one, or one for each channel"
    if param.convert_to_hsv and param.convert_to_lab:
        yield "transform_param.noise_param has both convert_to_hsv and convert_to_lab; keep one of them"


def spoiled(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Return an image of bytes (H, W, 3), spoiled: bytes, but float32 for convert_to_lab.

    `prob` has no effect, as in the fork.
    """
    image = np.ascontiguousarray(image)
    if param.decolorize:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    if param.gauss_blur:
        image = cv2.GaussianBlur(image, (7, 7), 1.5)
    if param.hist_eq:
        image = _brightened(image, cv2.equalizeHist)
    if param.clahe:
        image = _brightened(image, cv2.createCLAHE(clipLimit=4).apply)
    if param.jpeg > 0:
        image = recompressed(image, int(param.jpeg))
    if param.erode:
        image = cv2.erode(image, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3)))
    if param.posterize:
        image = _POSTERIZED[image]
    if param.inverse:
        image = 255 - image
    if param.saltpepper:
        image = _sprinkled(image, param.saltpepper_param, rng)
    if param.convert_to_hsv:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if param.convert_to_lab:
        image = cv2.cvtColor(np.asarray(image, np.float32) / 255, cv2.COLOR_BGR2Lab)
    return image


def recompressed(image: np.ndarray, quality: int = 95) -> np.ndarray:
    """Return an image of bytes (H, W, 3) or (H, W, 1) as it comes out of a JPEG of that quality."""
    data = cv2.imencode(".jpg", np.ascontiguousarray(image), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_UNCHANGED)).reshape(image.shape)


def _brightened(image: np.ndarray, change: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return an image of which the luma was changed."""
    planes = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
    planes[:, :, 0] = change(np.ascontiguousarray(planes[:, :, 0]))
    out: np.ndarray = cv2.cvtColor(planes, cv2.COLOR_YCrCb2BGR)
    return out


def _sprinkled(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Return an image with a share of its pixels, drawn with repetition, of one colour."""
    height, width, channels = image.shape
    if len(param.value) not in (1, channels):
        raise DataError(f"has {channels} channels, but saltpepper_param has {len(param.value)} value: give one or each")
    n = int(np.float32(param.fraction) * np.float32(width) * np.float32(height))
    out = image.copy()
    out[rng.integers(height, size=n), rng.integers(width, size=n)] = np.array(param.value).astype(np.uint8)
    return out
