"""Augmentation of annotated images: expansion, batch samplers and resizing; color_changes.py changes colors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....base.errors import DataError
from ....core.data.import_cv2 import cv2
from ....core.layers.context import LayerDefinition
from ....core.schema.caffe_pb2 import EmitConstraint, ResizeParameter
from ..boxes import overlaps
from .annotated_image import AnnotatedImage, box_coverage, clip_boxes, mirror_boxes, window_coverage
from .color_changes import add_noise, distort, distortion_problems, noise_problems, recompress

_RESIZE_FIELDS = {
    *("prob", "resize_mode", "height", "width", "pad_mode", "pad_value", "interp_mode", "height_scale", "width_scale"),
    "jitter",  # only YOLO's own reader uses it
}
MAX_SIDE = 32767  # pixels; OpenCV's limit
_MAX_PROB_ERROR = 1e-2  # as in MobileNet-YOLO
_INTERPOLATION_FLAGS = {
    ResizeParameter.LINEAR: cv2.INTER_LINEAR,
    ResizeParameter.AREA: cv2.INTER_AREA,
    ResizeParameter.NEAREST: cv2.INTER_NEAREST,
    ResizeParameter.CUBIC: cv2.INTER_CUBIC,
    ResizeParameter.LANCZOS4: cv2.INTER_LANCZOS4,
}
_BORDER_TYPES = {
    ResizeParameter.CONSTANT: cv2.BORDER_CONSTANT,
    ResizeParameter.MIRRORED: cv2.BORDER_REFLECT_101,
    ResizeParameter.REPEAT_NEAREST: cv2.BORDER_REPLICATE,
}


def resize_problems(params: Any) -> Iterator[str]:
    """Yield the problems of the resize_params of a TransformationParameter."""
    if len(params) > 1 and abs(sum(param.prob for param in params) - 1) > _MAX_PROB_ERROR:
        yield "transform_param has several resize_param, but their prob do not add up to 1"
    for param in params:
        if not (0 < param.height <= MAX_SIDE and 0 < param.width <= MAX_SIDE):
            size = f"height {param.height} and width {param.width}"
            yield f"transform_param.resize_param has {size}; both must be positive, and at most {MAX_SIDE}"
        for field, value in param.ListFields():
            if field.name not in _RESIZE_FIELDS and value != field.default_value:
                yield f"transform_param.resize_param.{field.name} is not supported yet"


def resize_image(image: AnnotatedImage, param: Any, rng: np.random.Generator) -> AnnotatedImage:
    """Resize an image by a ResizeParameter: warp it, or keep its proportions.

    If `param` has several interp_modes, one of them is selected at random. `prob` has no effect, as in the SSD fork.
    """
    modes = param.interp_mode
    mode = _INTERPOLATION_FLAGS[modes[rng.integers(len(modes))] if modes else ResizeParameter.LINEAR]
    pixels, boxes = image.pixels, image.boxes
    h, w = pixels.shape[:2]
    if param.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD:
        # boxes are padded by the exact amount, without rounding
        inner_size, exact_size = _fit_size(param, w, h, fit_width=_aspect(w, h) > _aspect(param.width, param.height))
        pixels = _pad(_scale_pixels(pixels, inner_size, mode), param)
        return AnnotatedImage(pixels, image.with_boxes(_pad_boxes(boxes, exact_size, param)).objects)
    is_fit_small = param.resize_mode == ResizeParameter.FIT_SMALL_SIZE
    size = _fit_small_size(param, w, h)[0] if is_fit_small else (param.width, param.height)
    clipped_boxes = np.concatenate([np.maximum(boxes[:, :2], 0), np.minimum(boxes[:, 2:], 1)], axis=1)
    return AnnotatedImage(_scale_pixels(pixels, size, mode), image.with_boxes(clipped_boxes).objects)


def scale_boxes(boxes: np.ndarray, param: Any, original_size: tuple[int, int], window: np.ndarray) -> np.ndarray:
    """Scale boxes to units of width_scale and height_scale pixels if both are set and the mode is FIT_SMALL_SIZE.

    Args:
        boxes: the boxes, relative to the window.
        param: the ResizeParameter.
        original_size: the height and width of the image before it was resized.
        window: the crop of the resized image.
    """
    if not (param.height_scale and param.width_scale) or param.resize_mode != ResizeParameter.FIT_SMALL_SIZE:
        return boxes
    exact_size = np.array(_fit_small_size(param, *original_size[::-1])[1], np.float32)
    crop_size = exact_size * (window[2:] - window[:2])
    scale = crop_size / np.array([param.width_scale, param.height_scale], np.float32)
    return boxes * np.tile(scale, 2)


def _fit_small_size(param: Any, w: int, h: int) -> tuple[tuple[int, int], tuple[float, float]]:
    """Return the smallest size that has the image's proportions and covers the size in `param`; see `_fit_size`."""
    return _fit_size(param, w, h, fit_width=_aspect(w, h) < _aspect(param.width, param.height))


def _fit_size(param: Any, w: int, h: int, *, fit_width: bool) -> tuple[tuple[int, int], tuple[float, float]]:
    """Return the size (width, height) that has the image's proportions and one side of `param`.

    The size is returned twice: rounded down to integers, and exact.
    """
    aspect = np.float32(w) / np.float32(h)
    if fit_width:
        exact_size = np.float32(param.width), np.float32(param.width) / aspect
    else:
        exact_size = aspect * np.float32(param.height), np.float32(param.height)
    return (max(1, int(exact_size[0])), max(1, int(exact_size[1]))), (float(exact_size[0]), float(exact_size[1]))


def _aspect(width: int, height: int) -> float:
    return float(np.float32(width) / np.float32(height))


def _pad_boxes(boxes: np.ndarray, inner_size: tuple[float, float], param: Any) -> np.ndarray:
    """Convert boxes relative to an image of `inner_size` to boxes relative to that image padded to param's size."""
    sides = np.array(inner_size, np.float32)
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
        raise DataError(
            f"has {channels} channels, but pad_value is set {len(values)} times; set it once, or {channels} times"
        )
    top, left = (param.height - h) // 2, (param.width - w) // 2
    bottom, right = param.height - h - top, param.width - w - left
    border = values * channels if len(values) == 1 else values
    padded_image = cv2.copyMakeBorder(image, top, bottom, left, right, _BORDER_TYPES[param.pad_mode], value=border)
    return padded_image.reshape(param.height, param.width, channels)


ObjectFilter = Callable[[AnnotatedImage, np.ndarray], AnnotatedImage]  # keeps the objects in a window


def select_objects(constraint: Any | None, image: AnnotatedImage, window: np.ndarray) -> AnnotatedImage:
    """Return the image with only the objects whose center, or a sufficient fraction, is in the window.

    Args:
        constraint: the EmitConstraint message, or None to keep all objects.
        image: the image.
        window: the window, float32 (4,), relative to the image.
    """
    boxes = image.boxes
    if constraint is None:
        return image
    if constraint.emit_type == EmitConstraint.CENTER:
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2
        return image.select(((centers >= window[:2]) & (centers <= window[2:])).all(axis=1))
    return image.select(box_coverage(boxes, window) > np.float32(constraint.emit_overlap))


_MIN_RATIO_DIFFERENCE = 1e-2  # smaller differences of the ratio from 1 change nothing
_MAX_EXPAND_RATIO = 100  # ratio; memory grows with its square


def expansion_problems(param: Any) -> Iterator[str]:
    """Yield the problems of the expand_param in a TransformationParameter."""
    if not 1 <= param.expand_param.max_expand_ratio <= _MAX_EXPAND_RATIO:
        limits = f"1 or more, and at most {_MAX_EXPAND_RATIO}, not {param.expand_param.max_expand_ratio:g}"
        yield f"transform_param.expand_param: max_expand_ratio must be {limits}"
    if param.HasField("mean_file"):
        yield (
            "transform_param has both expand_param and mean_file, but a mean image does not fit the expanded images; "
            "set mean_value instead of mean_file"
        )


def expand(
    image: AnnotatedImage, param: Any, background: np.ndarray, keep_objects: ObjectFilter, rng: np.random.Generator
) -> AnnotatedImage:
    """With the probability `param.prob`, paste an image at a random position into a larger background.

    Args:
        image: the image.
        param: the ExpansionParameter.
        background: a value for each channel, or one for all.
        keep_objects: a function that selects the objects to keep.
        rng: the source of the random choices.

    Returns:
        The larger image, or `image` itself if it is not expanded.
    """
    if rng.random() > param.prob or abs(param.max_expand_ratio - 1) < _MIN_RATIO_DIFFERENCE:
        return image
    ratio = rng.uniform(1, param.max_expand_ratio)
    h, w, channels = image.pixels.shape
    height, width = int(h * ratio), int(w * ratio)
    top, left = int(rng.uniform(0, height - h)), int(rng.uniform(0, width - w))
    canvas = np.empty((height, width, channels), image.pixels.dtype)
    canvas[...] = _to_pixels(background, canvas.dtype)
    canvas[top : top + h, left : left + w] = image.pixels
    window = np.array([-left / w, -top / h, (width - left) / w, (height - top) / h], np.float32)
    return keep_objects(image, window).crop(window, canvas)


def _to_pixels(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(dtype) if dtype == np.uint8 else values


_MAX_TRIALS = 1_000_000  # all are sampled at once

# the measure of each constraint, by its name in the prototxt
_CONSTRAINTS: Mapping[str, Callable[..., Any]] = {
    "jaccard_overlap": overlaps,
    "sample_coverage": window_coverage,
    "object_coverage": box_coverage,
}


def sampler_problems(samplers: Sequence[Any]) -> list[str]:
    """Return the problems of batch samplers."""
    problems = []
    for i, sampler in enumerate(samplers):
        s, prefix = sampler.sampler, f"annotated_data_param.batch_sampler {i}: "
        if not 0 < s.min_scale <= s.max_scale <= 1:
            problems.append(
                f"{prefix}scales must be 0 < min_scale <= max_scale <= 1, not {s.min_scale:g}, {s.max_scale:g}"
            )
        if not 0 < s.min_aspect_ratio <= s.max_aspect_ratio < float("inf"):
            limits = f"{s.min_aspect_ratio:g}, {s.max_aspect_ratio:g}"
            problems.append(f"{prefix}aspect ratios must be 0 < min_aspect_ratio <= max_aspect_ratio, not {limits}")
        if sampler.max_trials > _MAX_TRIALS:
            problems.append(f"{prefix}max_trials must be at most {_MAX_TRIALS}, not {sampler.max_trials}")
    return problems


def describe_ignored_limits(samplers: Sequence[Any]) -> Iterator[str]:
    """Yield a message for each sampler whose sample_constraint has limits that have no effect; see `_satisfies`."""
    for i, sampler in enumerate(samplers):
        limited = [name for name in _CONSTRAINTS if _has_limit(sampler.sample_constraint, name)]
        if len(limited) > 1:
            yield (
                f"annotated_data_param.batch_sampler {i}: as in SSD, only the limits of {limited[0]} count; those of "
                f"{' and '.join(limited[1:])} have no effect"
            )


def sample_window(samplers: Sequence[Any], boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Return a random window, float32 (4,), that meets the constraints of a sampler, or None if no window does.

    Args:
        samplers: the BatchSampler messages.
        boxes: the boxes of the image's objects, (G, 4).
        rng: the source of the windows and of the choice among them.
    """
    windows = [window for sampler in samplers for window in sampler_windows(sampler, boxes, rng)]
    return clip_boxes(windows[rng.integers(len(windows))]) if windows else None


def slice_window(window: np.ndarray, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the rows and columns of a window, float32 (4,), in an image (H, W, ...) of a shape."""
    height, width = shape[:2]
    pixel_window = window * np.array([width, height, width, height], np.float32)
    x, y = (int(v) for v in pixel_window[:2])
    w, h = (max(1, int(v)) for v in pixel_window[2:] - pixel_window[:2])
    return np.s_[y : y + h, x : x + w]


_JITTER_PROBS = (0.2, 0.2, 0.6)  # of the whole image, of half of the jitter, and of all of it


def jitter_window(jitter: float, *, keeps_aspect: bool, rng: np.random.Generator) -> np.ndarray:
    """Return a random window of MobileNet-YOLO, float32 (4,), whose sides are at least 1 - `jitter` of the image's."""
    share = rng.choice(3, p=_JITTER_PROBS) / 2
    width, height = rng.uniform(1 - jitter * share, 1, 2)
    sides = np.array([width, width if keeps_aspect else height])
    corner = rng.uniform(0, 1 - sides)
    return np.concatenate([corner, corner + sides]).astype(np.float32)


def sampler_windows(batch_sampler: Any, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the windows, float32 (n, 4), of one sampler that meet its constraints."""
    windows = _sample_windows(batch_sampler.sampler, batch_sampler.max_trials, rng)
    windows = windows[_satisfies(batch_sampler.sample_constraint, windows, boxes)]
    return windows[: batch_sampler.max_sample] if batch_sampler.HasField("max_sample") else windows


def _sample_windows(sampler: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample n windows, float32 (n, 4), with random area (scale^2 of the image's), aspect ratio and position."""
    uniforms = rng.random((4, n), np.float32)
    scale = sampler.min_scale + uniforms[0] * (sampler.max_scale - sampler.min_scale)
    ratio = sampler.min_aspect_ratio + uniforms[1] * (sampler.max_aspect_ratio - sampler.min_aspect_ratio)
    sqrt_ratio = np.sqrt(np.clip(ratio, scale**2, 1 / scale**2))
    sides = np.minimum(np.stack([scale * sqrt_ratio, scale / sqrt_ratio], axis=-1), 1)
    corners = uniforms[2:].T * (1 - sides)
    return np.concatenate([corners, corners + sides], axis=-1).astype(np.float32)


def _satisfies(constraint: Any, windows: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the mask, bool (n,), of the windows that meet a SampleConstraint for at least one object.

    As in the fork, the first kind of measure that has a minimum or a maximum decides, in the order of `_CONSTRAINTS`;
    limits of further kinds have no effect. If there are no limits, all windows meet the constraint.
    """
    for name, measure in _CONSTRAINTS.items():
        if _has_limit(constraint, name):
            min_field, max_field = f"min_{name}", f"max_{name}"
            values, is_satisfied = measure(boxes, windows[:, None]), np.ones((len(windows), len(boxes)), bool)
            if constraint.HasField(min_field):
                is_satisfied &= values >= np.float32(getattr(constraint, min_field))
            if constraint.HasField(max_field):
                is_satisfied &= values <= np.float32(getattr(constraint, max_field))
            return np.asarray(is_satisfied.any(axis=1))
    return np.ones(len(windows), bool)


def _has_limit(constraint: Any, name: str) -> bool:
    return bool(constraint.HasField(f"min_{name}") or constraint.HasField(f"max_{name}"))


def augmentation_problems(param: Any, samplers: Sequence[Any]) -> Iterator[str]:
    """Yield the problems of a TransformationParameter's settings of augmentation, and of batch samplers."""
    yield from resize_problems(param.resize_param)
    yield from sampler_problems(samplers)
    yield from noise_problems(param.noise_param) if param.HasField("noise_param") else ()
    yield from distortion_problems(param.distort_param) if param.HasField("distort_param") else ()
    yield from expansion_problems(param) if param.HasField("expand_param") else ()


# fields of transform_param that are handled here
TRANSFORM_FIELDS = ("resize_param", "noise_param", "distort_param", "expand_param", "emit_constraint")


def read_jitter(param: Any) -> float:
    """Return yolo_data_jitter of an AnnotatedDataParameter: its default counts for labels of YOLO only."""
    return float(param.yolo_data_jitter) if param.yolo_data_type or param.HasField("yolo_data_jitter") else 0.0


_WHOLE_IMAGE = np.array([0, 0, 1, 1], np.float32)


class AugmentedImage(NamedTuple):
    """An image that is ready to be cropped and mirrored together with the other images of the batch.

    Attributes:
        image: the image.
        original_size: the height and width of the image before it was resized.
        resize: the ResizeParameter by which it was resized, or None.
        window: the part that a sampler or jitter kept, float32 (4,).
    """

    image: AnnotatedImage
    original_size: tuple[int, int]
    resize: Any
    window: np.ndarray


class Augmentation:
    """Random changes of an annotated image, in Caffe's order: color, expansion, batch samplers, resizing, noise.

    The batch is cropped afterwards; `visible_objects` then returns the objects of each crop.

    After each of the first three changes, the SSD fork compresses the image to a JPEG if it was stored compressed. Here
    this is done in TEST, so that scores equal the fork's, and not in training, where it would only cost time.

    Args:
        definition: the layer's definition, whose settings have no `augmentation_problems`.
        background: the mean of each channel.
    """

    def __init__(self, definition: LayerDefinition, background: np.ndarray) -> None:
        param, samplers = definition.layer.transform_param, definition.layer.annotated_data_param.batch_sampler
        self._param = param
        self._background = background
        self._select_objects = partial(
            select_objects, param.emit_constraint if param.HasField("emit_constraint") else None
        )
        self._recompress_jpeg = not definition.training
        self._samplers = [sampler for sampler in samplers if sampler.use_original_image]
        self._resizes = list(param.resize_param) or [None]
        self._jitter = read_jitter(definition.layer.annotated_data_param)

    def choose_size(self, uniform: float) -> int:
        """Return which resize_param a batch takes, by their probabilities. `uniform` is a random number below 1."""
        bounds = np.cumsum([param.prob for param in self._resizes[:-1]] if len(self._resizes) > 1 else [])
        return int(np.searchsorted(bounds, uniform, side="right"))

    def __call__(
        self, image: AnnotatedImage, rng: np.random.Generator, is_encoded: bool, size_index: int = 0
    ) -> AugmentedImage:
        """Augment an image.

        Args:
            image: the image.
            rng: the source of all random choices.
            is_encoded: whether the image was stored compressed.
            size_index: which resize_param is applied.

        Raises:
            DataError: if the image does not have the channels that a change needs.
        """
        param = self._param

        def recompress_if_changed(new_image: AnnotatedImage) -> AnnotatedImage:
            is_kept = new_image is image or not (self._recompress_jpeg and is_encoded)
            return new_image if is_kept else replace(new_image, pixels=recompress(new_image.pixels))

        if param.HasField("distort_param"):
            image = recompress_if_changed(
                replace(image, pixels=distort(image.get_color_pixels(), param.distort_param, rng))
            )
        if param.HasField("expand_param"):
            image = recompress_if_changed(
                expand(image, param.expand_param, self._background, self._select_objects, rng)
            )
        resize = self._resizes[size_index]
        window: np.ndarray | None
        if self._jitter and not self._samplers:
            keeps_aspect = resize is not None and resize.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD
            window = jitter_window(self._jitter, keeps_aspect=keeps_aspect, rng=rng)
        else:
            window = sample_window(self._samplers, image.boxes, rng)
        if window is None:
            window = _WHOLE_IMAGE
        else:
            pixels = image.pixels[slice_window(window, image.pixels.shape)]
            image = recompress_if_changed(self._select_objects(image, window).crop(window, pixels))
        height, width = image.pixels.shape[:2]
        if resize is not None:
            image = resize_image(image, resize, rng)
        if param.HasField("noise_param"):
            image = replace(image, pixels=add_noise(image.get_color_pixels(), param.noise_param, rng))
        return AugmentedImage(image, (height, width), resize, window)

    def visible_objects(self, augmented_image: AugmentedImage, window: np.ndarray, flip: bool) -> np.ndarray:
        """Return the objects in a crop, float32 (G, 7), with boxes relative to the crop.

        Args:
            augmented_image: the image.
            window: the crop, float32 (4,), relative to the image.
            flip: whether the crop is mirrored.
        """
        crop = self._select_objects(augmented_image.image, window).crop(window)
        boxes = mirror_boxes(crop.boxes) if flip else crop.boxes
        if augmented_image.resize is not None:
            boxes = scale_boxes(boxes, augmented_image.resize, augmented_image.original_size, window)
        return crop.with_boxes(boxes).objects
