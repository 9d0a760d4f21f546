"""The third top of MobileNet-YOLO's data layers: for each class of pixels the fraction that it covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from ....base.errors import DataError, Problem, raise_if_any
from ....base.paths import read_bytes
from ....core.data.import_cv2 import cv2
from ....core.data.transform import parse_crop
from ....core.schema.caffe_pb2 import ResizeParameter, YoloSegLabel
from .ssd_augmentation import MAX_SIDE, slice_window

SEGMENTATION_FIELDS = ("single_class", "seg_scales", "seg_resize_width", "seg_resize_height")
_THRESHOLD = 100  # pixels above it belong to the single class
_MAX_PIXEL = 255


def segmentation_problems(layer: Any) -> Iterator[str]:
    """Yield the problems of a LayerParameter's settings of the third top, which it may lack."""
    transform_param, param = layer.transform_param, layer.annotated_data_param
    if len(layer.top) < 3:
        for name in SEGMENTATION_FIELDS:
            if param.HasField(name):
                yield f"annotated_data_param.{name} is about a third top, which the layer does not have"
        return
    if transform_param.HasField("expand_param"):
        yield "transform_param.expand_param would not move the segmentation of the third top with the image"
    if parse_crop(transform_param, is_random=False).height:
        yield "transform_param has a crop, which would not move the segmentation of the third top with the image"
    if any(resize.resize_mode != ResizeParameter.WARP for resize in transform_param.resize_param):
        yield "transform_param.resize_param.resize_mode must be WARP, so that the third top fits the image"
    sides = param.seg_resize_width, param.seg_resize_height
    if any(sides) and not all(0 < side <= MAX_SIDE for side in sides):
        yield (
            f"annotated_data_param has seg_resize_width {sides[0]} and seg_resize_height {sides[1]}; both must be "
            f"positive, and at most {MAX_SIDE}, or both 0"
        )
    if param.seg_scales < 1:
        yield f"annotated_data_param.seg_scales must be 1 or more, not {param.seg_scales}"
    if not param.single_class and not param.label_map_file:
        yield "annotated_data_param.label_map_file must name the classes of the third top, or single_class must be true"


def segmentation_size(param: Any, height: int, width: int) -> tuple[int, int]:
    """Return the height and width of the third top of images of a size, by an AnnotatedDataParameter.

    Raises:
        DataError: if the images are smaller than `seg_scales`.
    """
    if param.seg_resize_width:
        return param.seg_resize_height, param.seg_resize_width
    if min(height, width) < param.seg_scales:
        raise DataError(f"becomes {height}x{width} (HxW), smaller than annotated_data_param.seg_scales")
    return height // param.seg_scales, width // param.seg_scales


def read_pixel_classes(path: Path) -> np.ndarray:
    """Read a map of pixels, a YoloSegLabel in text form, and return the class of each pixel value, uint8 (256,).

    Items have a pixel value (`label`) and its class (`label_id`); class 0 is the background.

    Raises:
        DataError: if the file cannot be read, has no class, has numbers outside 0 to 255, or a value twice.
    """
    try:
        items = text_format.Parse(read_bytes(path, DataError, "the label map").decode(), YoloSegLabel()).item
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"is not a map of pixels to classes: {error}", str(path))) from error
    problems = [
        f"item '{item.name}' has label {item.label} and label_id {item.label_id}; both must be 0 to {_MAX_PIXEL}"
        for item in items
        if not (0 <= item.label <= _MAX_PIXEL and 0 <= item.label_id <= _MAX_PIXEL)
    ]
    counts = Counter(item.label for item in items)
    problems += [f"label {value} occurs twice" for value, count in sorted(counts.items()) if count > 1]
    if not any(item.label_id for item in items):
        problems.append("no item has a label_id above 0, so there are no classes")
    raise_if_any(DataError, problems, str(path))
    classes = np.zeros(_MAX_PIXEL + 1, np.uint8)
    for item in items:
        classes[item.label] = item.label_id
    return classes


def make_segmentation(
    pixels: np.ndarray, window: np.ndarray, size: tuple[int, int], pixel_classes: np.ndarray | None
) -> np.ndarray:
    """Return the fraction of each pixel that each class covers, float32 (C, h, w).

    Args:
        pixels: the segmentation of the whole image, uint8 (H, W).
        window: the part of the image, float32 (4,); see `AnnotatedImage`.
        size: h and w.
        pixel_classes: the class of each pixel value; see `read_pixel_classes`. Without it, the only class is where the
            mean of the pixels is above 100, and the fraction is 0 or 1.
    """
    part = np.ascontiguousarray(pixels[slice_window(window, pixels.shape)])
    if pixel_classes is None:
        return (_shrink(part, size) > _THRESHOLD).astype(np.float32)[None]
    labels = pixel_classes[part]
    masks = [np.where(labels == n, _MAX_PIXEL, 0).astype(np.uint8) for n in range(1, int(pixel_classes.max()) + 1)]
    return np.stack([_shrink(mask, size) for mask in masks]).astype(np.float32) * np.float32(1 / _MAX_PIXEL)


def _shrink(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return cv2.resize(mask, size[::-1], interpolation=cv2.INTER_AREA)
