"""resize_param: an image with boxes is resized to the size of the net's input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import DataError
from ...schema.caffe_pb2 import ResizeParameter
from ..opencv import cv2
from .annotated_image import AnnotatedImage

_KNOWN = {"prob", "resize_mode", "height", "width", "pad_mode", "pad_value", "interp_mode", "height_scale"} | {
    *("width_scale", "jitter"),  # the jitter concerns YOLO's own way of reading
}
_MAX_SIDE = 32767  # pixels; OpenCV's limit
_INTERPOLATION = {
    ResizeParameter.LINEAR: cv2.INTER_LINEAR,
    ResizeParameter.AREA: cv2.INTER_AREA,
    ResizeParameter.NEAREST: cv2.INTER_NEAREST,
    ResizeParameter.CUBIC: cv2.INTER_CUBIC,
    ResizeParameter.LANCZOS4: cv2.INTER_LANCZOS4,
}
_PADDING = {
    ResizeParameter.CONSTANT: cv2.BORDER_CONSTANT,
    ResizeParameter.MIRRORED: cv2.BORDER_REFLECT_101,
    ResizeParameter.REPEAT_NEAREST: cv2.BORDER_REPLICATE,
}


def resize_problems(params: Any) -> Iterator[str]:
    """Yield the problems of the resize_params of a TransformationParameter."""
    if len(params) > 1:
        yield "transform_param has several resize_param, which only YOLO forks allow; keep one of them"
    for param in params:
        if not (0 < param.height <= _MAX_SIDE and 0 < param.width <= _MAX_SIDE):
            size = f"height {param.height} and width {param.width}"
            yield f"transform_param.resize_param has {size}; both must be positive, and at most {_MAX_SIDE}"
        for field, value in param.ListFields():
            if field.name not in _KNOWN and value != field.default_value:
                yield f"transform_param.resize_param.{field.name} is not supported yet"


def resize_image(image: AnnotatedImage, param: Any, rng: np.random.Generator) -> AnnotatedImage:
    """Resize an image by a ResizeParameter: warp it, or keep its proportions.

    If `param` has several interp_modes, one of them is drawn. `prob` has no effect, as in the SSD fork.
    """
    modes = param.interp_mode
    mode = _INTERPOLATION[modes[rng.integers(len(modes))] if modes else ResizeParameter.LINEAR]
    pixels, boxes = image.pixels, image.boxes
    h, w = pixels.shape[:2]
    if param.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD:
        # boxes are padded by the exact amount, without rounding
        inner, exact = _fit(param, w, h, by_width=w / h > param.width / param.height)
        pixels = _pad(_scale_pixels(pixels, inner, mode), param)
        return AnnotatedImage(pixels, image.with_boxes(_shrink_boxes(boxes, exact, param)).objects)
    fits = param.resize_mode == ResizeParameter.FIT_SMALL_SIZE
    size = _fit_small(param, w, h)[0] if fits else (param.width, param.height)
    inside = np.concatenate([np.maximum(boxes[:, :2], 0), np.minimum(boxes[:, 2:], 1)], axis=1)
    return AnnotatedImage(_scale_pixels(pixels, size, mode), image.with_boxes(inside).objects)


def scale_boxes(boxes: np.ndarray, param: Any, size: tuple[int, int], window: np.ndarray) -> np.ndarray:
    """Return boxes in units of width_scale and height_scale pixels if both are set and resize_mode is FIT_SMALL_SIZE.

    Args:
        boxes: in units of the window.
        param: the ResizeParameter.
        size: height and width of the image before it was resized.
        window: the crop that was made afterwards.
    """
    if not (param.height_scale and param.width_scale) or param.resize_mode != ResizeParameter.FIT_SMALL_SIZE:
        return boxes
    exact = np.array(_fit_small(param, *size[::-1])[1], np.float32)
    pixels = exact * (window[2:] - window[:2])
    scale = pixels / np.array([param.width_scale, param.height_scale], np.float32)
    return boxes * np.tile(scale, 2)


def _fit_small(param: Any, w: int, h: int) -> tuple[tuple[int, int], tuple[float, float]]:
    """Return the smallest width and height that keep the proportions and cover the size in `param`."""
    return _fit(param, w, h, by_width=w / h < param.width / param.height)


def _fit(param: Any, w: int, h: int, *, by_width: bool) -> tuple[tuple[int, int], tuple[float, float]]:
    """Return width and height that keep the proportions and equal one side of `param`: rounded down, and exact."""
    aspect = np.float32(w) / np.float32(h)
    if by_width:
        exact = np.float32(param.width), np.float32(param.width) / aspect
    else:
        exact = aspect * np.float32(param.height), np.float32(param.height)
    return (max(1, int(exact[0])), max(1, int(exact[1]))), (float(exact[0]), float(exact[1]))


def _shrink_boxes(boxes: np.ndarray, inner: tuple[float, float], param: Any) -> np.ndarray:
    """Return the boxes of an image that was pasted into the middle of a larger one."""
    sides = np.array(inner, np.float32)
    outer = np.array([param.width, param.height], np.float32)
    offset = (outer - sides) / 2
    low = offset + np.maximum(boxes[:, :2] * sides, 0)
    high = offset + np.minimum(boxes[:, 2:] * sides, outer)
    return np.concatenate([low, high], axis=1) / np.tile(outer, 2)


def _scale_pixels(image: np.ndarray, size: tuple[int, int], mode: int) -> np.ndarray:
    pixels = cv2.resize(np.ascontiguousarray(image), size, interpolation=mode)
    return pixels.reshape(*pixels.shape[:2], image.shape[2])


def _pad(image: np.ndarray, param: Any) -> np.ndarray:
    (h, w, channels), values = image.shape, list(param.pad_value) or [0.0]
    if len(values) not in (1, channels):
        raise DataError(f"has {channels} channels, but there are {len(values)} pad_value: give one, or {channels}")
    top, left = (param.height - h) // 2, (param.width - w) // 2
    bottom, right = param.height - h - top, param.width - w - left
    border = values * channels if len(values) == 1 else values
    padded = cv2.copyMakeBorder(image, top, bottom, left, right, _PADDING[param.pad_mode], value=border)
    return padded.reshape(param.height, param.width, channels)
