"""Changes of the pixels of annotated images: brightness, contrast, saturation, hue, and SSD's noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....base.errors import DataError
from ....core.data.import_cv2 import cv2

_LEVELS = np.arange(256, dtype=np.float32)
_CONTRAST_FIRST_PROB = 0.5  # probability of changing the contrast before saturation and hue instead of after them


def distortion_problems(param: Any) -> Iterator[str]:
    """Yield a message for each invalid setting of a DistortionParameter."""
    for name in "brightness", "hue":
        if not 0 <= (delta := getattr(param, f"{name}_delta")) < float("inf"):
            yield f"transform_param.distort_param: {name}_delta must be 0 or more, not {delta:g}"
    for name in "contrast", "saturation":
        low, high = getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper")
        if getattr(param, f"{name}_prob") and not 0 <= low <= high < float("inf"):
            limits = f"{name}_lower {low:g} and {name}_upper {high:g}"
            yield f"transform_param.distort_param: {limits} must satisfy 0 <= lower <= upper"


def distort(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Change brightness, contrast, saturation, hue and the order of the channels of an image, uint8 (H, W, 3).

    Each change is made with the probability in `param`, a DistortionParameter.
    """

    def sample_change(name: str) -> float | None:
        """Return a random shift or factor for the change `name`, or None if the change is not made."""
        if rng.random() >= getattr(param, f"{name}_prob"):
            return None
        if name in ("brightness", "hue"):
            delta = getattr(param, f"{name}_delta")
            return rng.uniform(-delta, delta)
        return rng.uniform(getattr(param, f"{name}_lower"), getattr(param, f"{name}_upper"))

    is_contrast_first = rng.random() < _CONTRAST_FIRST_PROB
    if (shift := sample_change("brightness")) is not None:
        image = _scale_bytes(image, 1, shift)
    if is_contrast_first and (factor := sample_change("contrast")) is not None:
        image = _scale_bytes(image, factor, 0)
    if (factor := sample_change("saturation")) is not None:
        image = _scale_hsv(image, 1, factor, 0)
    if shift := sample_change("hue"):  # without a shift, the conversion to HSV and back would change pixels
        image = _scale_hsv(image, 0, 1, shift)
    if not is_contrast_first and (factor := sample_change("contrast")) is not None:
        image = _scale_bytes(image, factor, 0)
    if rng.random() < param.random_order_prob:
        image = image[:, :, rng.permutation(3)]
    return image


def _scale_hsv(image: np.ndarray, channel: int, factor: float, shift: float) -> np.ndarray:
    """Scale and shift one channel of an image in HSV: hue (0 to 180), saturation or value."""
    hsv = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2HSV)
    hsv[:, :, channel] = _scale_bytes(hsv[:, :, channel], factor, shift)
    result: np.ndarray = cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)
    return result


def _scale_bytes(image: np.ndarray, factor: float, shift: float) -> np.ndarray:
    """Multiply uint8 values by a factor and add a shift. The result is rounded and clipped to 0 to 255."""
    table = np.clip(np.rint(_LEVELS * np.float32(factor) + np.float32(shift)), 0, 255).astype(np.uint8)
    result: np.ndarray = cv2.LUT(np.ascontiguousarray(image), table)
    return result.reshape(image.shape)


_NOISE_FIELDS = {
    *("prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode", "saltpepper"),
    *("saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab"),
}
_BYTE_VALUES = np.arange(256, dtype=np.uint8)
_POSTERIZE_TABLE = (_BYTE_VALUES // 64 * 64 + 32).astype(np.uint8)


def noise_problems(param: Any) -> Iterator[str]:
    """Yield a message for each invalid setting of a NoiseParameter."""
    for field, value in param.ListFields():
        if field.name not in _NOISE_FIELDS and value != field.default_value:
            yield f"transform_param.noise_param.{field.name} is not supported yet"
    if param.jpeg > 100:
        yield f"transform_param.noise_param.jpeg must be a quality of at most 100, not {param.jpeg:g}"
    if param.saltpepper and not 0 <= param.saltpepper_param.fraction <= 1:
        fraction = f"{param.saltpepper_param.fraction:g}"
        yield f"transform_param.noise_param.saltpepper_param: fraction must be between 0 and 1, not {fraction}"
    if param.saltpepper and not param.saltpepper_param.value:
        yield "transform_param.noise_param.saltpepper_param.value is not set; set it once, or once for each channel"
    if param.convert_to_hsv and param.convert_to_lab:
        yield "transform_param.noise_param has both convert_to_hsv and convert_to_lab; keep one of them"


def add_noise(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Apply the changes of a NoiseParameter to an image, uint8 (H, W, 3).

    The result is uint8, or float32 with convert_to_lab. `prob` has no effect, as in the SSD fork.
    """
    image = np.ascontiguousarray(image)
    if param.decolorize:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    if param.gauss_blur:
        image = cv2.GaussianBlur(image, (7, 7), 1.5)
    if param.hist_eq:
        image = _change_luma(image, cv2.equalizeHist)
    if param.clahe:
        image = _change_luma(image, cv2.createCLAHE(clipLimit=4).apply)
    if param.jpeg > 0:
        image = recompress(image, int(param.jpeg))
    if param.erode:
        image = cv2.erode(image, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3)))
    if param.posterize:
        image = _POSTERIZE_TABLE[image]
    if param.inverse:
        image = 255 - image
    if param.saltpepper:
        image = _add_salt_and_pepper(image, param.saltpepper_param, rng)
    if param.convert_to_hsv:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if param.convert_to_lab:
        image = cv2.cvtColor(np.asarray(image, np.float32) / 255, cv2.COLOR_BGR2Lab)
    return image


def recompress(image: np.ndarray, quality: int = 95) -> np.ndarray:
    """Compress an image, uint8 (H, W, 3) or (H, W, 1), to a JPEG of the given quality, and decode it."""
    data = cv2.imencode(".jpg", np.ascontiguousarray(image), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_UNCHANGED)).reshape(image.shape)


def _change_luma(image: np.ndarray, change: Callable[[np.ndarray], Any]) -> np.ndarray:
    planes = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
    planes[:, :, 0] = change(np.ascontiguousarray(planes[:, :, 0]))
    out: np.ndarray = cv2.cvtColor(planes, cv2.COLOR_YCrCb2BGR)
    return out


def _add_salt_and_pepper(image: np.ndarray, param: Any, rng: np.random.Generator) -> np.ndarray:
    """Set a fraction of the pixels, sampled with replacement, to one color."""
    height, width, channels = image.shape
    if len(param.value) not in (1, channels):
        raise DataError(
            f"has {channels} channels, but saltpepper_param.value is set {len(param.value)} times; set it once, or "
            "once for each channel"
        )
    num_pixels = int(np.float32(param.fraction) * np.float32(width) * np.float32(height))
    result = image.copy()
    result[rng.integers(height, size=num_pixels), rng.integers(width, size=num_pixels)] = np.array(param.value).astype(
        np.uint8
    )
    return result
