"""Augmentation of annotated images: color, expansion, batch samplers, size and noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...layers.context import Site
from ...schema.caffe_pb2 import EmitConstraint
from .annotated_image import Picture, clipped, mirrored, overlaps, shares_of, shares_within
from .photometric import distorted, distortion_problems, noise_problems, recompressed, spoiled
from .resize_param import rescaled, resize_problems, resized


class Emit:
    """Which objects stay when a window is cut out.

    Args:
        constraint: the EmitConstraint message, or None if all stay of which the window shows a part.
    """

    def __init__(self, constraint: Any | None) -> None:
        self._constraint = constraint

    def __call__(self, picture: Picture, window: np.ndarray) -> Picture:
        """Return the picture with those that stay: of which the centre, or enough, lies in the window."""
        constraint, boxes = self._constraint, picture.boxes
        if constraint is None:
            return picture
        if constraint.emit_type == EmitConstraint.CENTER:
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
            return picture.keep(((centres >= window[:2]) & (centres <= window[2:])).all(axis=1))
        return picture.keep(shares_within(boxes, window) > np.float32(constraint.emit_overlap))


_SAME = 1e-2  # ratios that differ from 1 by less change nothing
_MAX_EXPANSION = 100  # ratio; memory grows with its square


def expansion_problems(param: Any) -> Iterator[str]:
    """Yield what is wrong with a TransformationParameter that has an expand_param."""
    if not 1 <= param.expand_param.max_expand_ratio <= _MAX_EXPANSION:
        limits = f"1 or more, and at most {_MAX_EXPANSION}, not {param.expand_param.max_expand_ratio:g}"
        yield f"transform_param.expand_param: max_expand_ratio must be {limits}"
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


_MOST_TRIALS = 1_000_000  # all are drawn at once

# a constraint: its name in the prototxt, and what it compares
_CONSTRAINTS = {"jaccard_overlap": overlaps, "sample_coverage": shares_of, "object_coverage": shares_within}


def sampler_problems(samplers: Sequence[Any]) -> list[str]:
    """Return what is wrong with batch samplers."""
    problems = []
    for i, sampler in enumerate(samplers):
        s, where = sampler.sampler, f"annotated_data_param.batch_sampler {i}: "
        if not 0 < s.min_scale <= s.max_scale <= 1:
            problems.append(
                f"{where}scales must be 0 < min_scale <= max_scale <= 1, not {s.min_scale:g}, {s.max_scale:g}"
            )
        if not 0 < s.min_aspect_ratio <= s.max_aspect_ratio < float("inf"):
            shown = f"{s.min_aspect_ratio:g}, {s.max_aspect_ratio:g}"
            problems.append(f"{where}aspect ratios must be 0 < min_aspect_ratio <= max_aspect_ratio, not {shown}")
        if sampler.max_trials > _MOST_TRIALS:
            problems.append(f"{where}max_trials must be at most {_MOST_TRIALS}, not {sampler.max_trials}")
    return problems


class BatchSamplers:
    """Draws the windows of a layer's batch samplers, and cuts one of them out.

    Args:
        samplers: the BatchSampler messages.
        emit: which objects stay.
    """

    def __init__(self, samplers: Sequence[Any], emit: Emit) -> None:
        self._samplers = [sampler for sampler in samplers if sampler.use_original_image]
        self._emit = emit

    def __call__(self, picture: Picture, rng: np.random.Generator) -> Picture:
        """Return what one of the windows shows, or the picture as it is if none is good enough."""
        boxes = picture.boxes
        windows = [window for sampler in self._samplers for window in sampler_windows(sampler, boxes, rng)]
        return self._cut(picture, windows[rng.integers(len(windows))]) if windows else picture

    def _cut(self, picture: Picture, window: np.ndarray) -> Picture:
        height, width = picture.image.shape[:2]
        window = clipped(window)
        pixels = window * np.array([width, height, width, height], np.float32)
        x, y = (int(v) for v in pixels[:2])
        w, h = (max(1, int(v)) for v in pixels[2:] - pixels[:2])
        return self._emit(picture, window).seen_through(window, picture.image[y : y + h, x : x + w])


def sampler_windows(batch_sampler: Any, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the windows that one sampler finds: float32 (n, 4)."""
    drawn = _draw(batch_sampler.sampler, batch_sampler.max_trials, rng)
    good = _satisfies(batch_sampler.sample_constraint, drawn, boxes)
    found = drawn[good]
    return found[: batch_sampler.max_sample] if batch_sampler.HasField("max_sample") else found


def _draw(sampler: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n windows: of an area scale^2 of the picture's, and of a ratio of width to height; anywhere in it."""
    unit = rng.random((4, n), np.float32)
    scale = sampler.min_scale + unit[0] * (sampler.max_scale - sampler.min_scale)
    ratio = sampler.min_aspect_ratio + unit[1] * (sampler.max_aspect_ratio - sampler.min_aspect_ratio)
    root = np.sqrt(np.clip(ratio, scale**2, 1 / scale**2))
    sides = np.minimum(np.stack([scale * root, scale / root], axis=-1), 1)
    corners = unit[2:].T * (1 - sides)
    return np.concatenate([corners, corners + sides], axis=-1).astype(np.float32)


def _satisfies(constraint: Any, windows: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return for each window whether it stands to some object as the constraint wants; so do all if it wants nothing.

    Where it wants several things, one object must fulfil them all. (In the fork, the first one suffices.)
    """
    good = np.ones((len(windows), len(boxes)), bool)
    wanted = False
    for name, measure in _CONSTRAINTS.items():
        low, high = f"min_{name}", f"max_{name}"
        if not (constraint.HasField(low) or constraint.HasField(high)):
            continue
        wanted = True
        values = measure(boxes, windows[:, None])
        if constraint.HasField(low):
            good &= values >= np.float32(getattr(constraint, low))
        if constraint.HasField(high):
            good &= values <= np.float32(getattr(constraint, high))
    return np.asarray(good.any(axis=1) | (not wanted))


# settings of transform_param that are followed here
FOLLOWED = ("resize_param", "noise_param", "distort_param", "expand_param", "emit_constraint")


class Prepared(NamedTuple):
    """A picture that is ready to be cropped and mirrored.

    Attributes:
        picture: the picture.
        size: height and width that its image had before it was resized.
    """

    picture: Picture
    size: tuple[int, int]


class Augment:
    """What is done to a picture, in Caffe's order: colours, a larger background, a sample of it, the size, noise.

    Then comes the crop, which is made with the rest of the batch, and `after` it what the net sees of the boxes.

    The fork keeps the result of each of the first three as a JPEG, where the image was compressed. In the TEST phase
    this is done here as well, so that scores are the fork's. In training it would only cost time.

    Args:
        site: the layer.
        background: the mean of each channel.

    Raises:
        DataError: with all that is wrong with the settings.
    """

    def __init__(self, site: Site, background: np.ndarray) -> None:
        param, samplers = site.layer.transform_param, site.layer.annotated_data_param.batch_sampler
        problems = [*resize_problems(param.resize_param), *sampler_problems(samplers)]
        problems += noise_problems(param.noise_param) if param.HasField("noise_param") else ()
        problems += distortion_problems(param.distort_param) if param.HasField("distort_param") else ()
        problems += expansion_problems(param) if param.HasField("expand_param") else ()
        if problems:
            raise DataError(problems)
        self._param = param
        self._background = background
        self._emit = Emit(param.emit_constraint if param.HasField("emit_constraint") else None)
        self._as_jpeg = not site.training
        self._sample = BatchSamplers(samplers, self._emit)
        self._resize = param.resize_param[0] if param.resize_param else None

    def __call__(self, picture: Picture, rng: np.random.Generator, compressed: bool) -> Prepared:
        """Do all that comes before the crop.

        Args:
            picture: the picture.
            rng: decides over all that is random.
            compressed: whether the image was stored compressed.

        Raises:
            DataError: if the image does not have the channels that it takes.
        """
        param = self._param

        def kept(new: Picture) -> Picture:
            same = new is picture or not (self._as_jpeg and compressed)
            return new if same else replace(new, image=recompressed(new.image))

        if param.HasField("distort_param"):
            picture = kept(replace(picture, image=distorted(picture.coloured(), param.distort_param, rng)))
        if param.HasField("expand_param"):
            picture = kept(expanded(picture, param.expand_param, self._background, self._emit, rng))
        picture = kept(self._sample(picture, rng))
        height, width = picture.image.shape[:2]
        if self._resize is not None:
            picture = resized(picture, self._resize, rng)
        if param.HasField("noise_param"):
            picture = replace(picture, image=spoiled(picture.coloured(), param.noise_param, rng))
        return Prepared(picture, (height, width))

    def after(self, prepared: Prepared, window: np.ndarray, flip: bool) -> np.ndarray:
        """Return the objects that the net sees, in units of the window that is cut out, which may be mirrored."""
        seen = self._emit(prepared.picture, window).seen_through(window)
        boxes = mirrored(seen.boxes) if flip else seen.boxes
        if self._resize is not None:
            boxes = rescaled(boxes, self._resize, prepared.size, window)
        return seen.with_boxes(boxes).objects
