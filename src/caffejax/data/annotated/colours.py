"""distort_param: random changes of brightness, contrast, saturation and hue, and of the order of the colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..opencv import cv2

_LEVELS = np.arange(256, dtype=np.float32)
_FIRST_CONTRAST = 0.5  # in this share of images, contrast changes before saturation and hue; in the others, after


def distortion_problems(param: Any) -> Iterator[str]:
    """Yield what is wrong with a DistortionParameter."""
    for name in "brightness", "hue":
        if not 0 <= (delta := getattr(param, f"{name}_delta")) < float("inf"):
            yield f"transform_param.distort_param: {name}_delta must be 0 or more, not {delta:g}"
    for name in "contrast", "saturation":
        low, high = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
        if getattr(param, f"{name}_prob") and not 0 <= low <= high < float("inf"):
            shown = f"{name}_lower {low:g} and {name}_upper {high:g}"
            yield f"transform_param.distort_param: {shown} must be 0 <= lower <= upper"


def distorted(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Return an image of bytes (H, W, 3) with other colours, each change made with its own probability."""
    contrast_first = rng.random() < _FIRST_CONTRAST
    image = _brightness(image, param, rng)
    if contrast_first:
        image = _contrast(image, param, rng)
    image = _hue(_saturation(image, param, rng), param, rng)
    if not contrast_first:
        image = _contrast(image, param, rng)
    if rng.random() < param.random_order_prob:
        image = image[:, :, rng.permutation(3)]
    return image


def _brightness(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    if rng.random() >= param.brightness_prob:
        return image
    return _linear(image, 1, rng.uniform(-param.brightness_delta, param.brightness_delta))


def _contrast(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    if rng.random() >= param.contrast_prob:
        return image
    return _linear(image, rng.uniform(param.contrast_lower, param.contrast_upper), 0)


def _saturation(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    if rng.random() >= param.saturation_prob:
        return image
    return _in_hsv(image, 1, rng.uniform(param.saturation_lower, param.saturation_upper), 0)


def _hue(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    if rng.random() >= param.hue_prob:
        return image
    return _in_hsv(image, 0, 1, rng.uniform(-param.hue_delta, param.hue_delta))


def _in_hsv(image: np.ndarray, channel: int, factor: float, shift: float) -> np.ndarray:
    """Return an image with one of hue (0 to 180), saturation and value changed linearly."""
    hsv = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2HSV)
    hsv[:, :, channel] = _linear(hsv[:, :, channel], factor, shift)
    changed: np.ndarray = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)
    return changed


def _linear(image: np.ndarray, factor: float, shift: float) -> np.ndarray:
    """Return bytes times a factor plus a shift, rounded, as bytes again."""
    table = np.clip(np.rint(_LEVELS * np.float32(factor) + np.float32(shift)), 0, 255).astype(np.uint8)
    changed: np.ndarray = cv2.LUT(np.ascontiguousarray(image), table)
    return changed.reshape(image.shape)
