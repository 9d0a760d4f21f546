"""The WindowData layer: batches of image windows on objects and on background, for the training of R-CNN.

A window file lists images, and for each image boxes with a class and an overlap:

    # 0                      image number, counting from 0
    path/of/image.jpg
    3 333 500                channels, height, width
    2                        number of windows
    15 1.0 10 20 110 120     class, overlap with an object of that class, x1, y1, x2, y2 (pixels, inclusive)
    7 0.2 30 40 50 60
"""

from __future__ import annotations

import io
import itertools
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from ...base.errors import DataError, Problem, check_all, locate_errors, raise_if_any
from ...base.host_memory import count_available_cores
from ...base.human_readable import format_shape
from ...base.paths import read_bytes
from ..layers.context import LayerDefinition
from ..layers.data_source import SourceSpec, TopSpecs
from ..layers.declaration import register
from .data_layer import DataLayer, float32_top, list_source_problems, refuse_unsupported, scalar_label_shapes
from .image_decoding import decode_file
from .image_list import find_files, get_search_folders, truncate_problems
from .import_cv2 import cv2
from .prefetch import Batch, Batches
from .sampling import CounterRng
from .transform import check_transform, read_mean

log = logging.getLogger("caffejax.data")

# the fields of the second line are in old files; Caffe ignores them here
_SUPPORTED_FIELDS = {"source", "batch_size", "scale", "root_folder", "cache_images", "crop_mode", "context_pad"} | {
    *("mean_file", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction"),
}
_MAX_CROP_SIZE = 1 << 15  # pixels, the side of a square
_SUPPORTED_TRANSFORM_FIELDS = {"scale", "mirror", "crop_size", "mean_file", "mean_value"}


class _ImageWindows(NamedTuple):
    names: list[str]  # of the images
    foreground: np.ndarray  # the windows with enough overlap, int32 (n, 6): image, class, x1, y1, x2, y2
    background: np.ndarray  # the windows with too little overlap, in the same form, with class 0


def read_windows(file: Path, fg_threshold: float, bg_threshold: float, max_images: int | None = None) -> _ImageWindows:
    """Read a window file. Windows with an overlap from `bg_threshold` up to `fg_threshold` are omitted.

    Args:
        file: the file.
        fg_threshold: the smallest overlap of foreground windows.
        bg_threshold: the overlap below which a window is background.
        max_images: the number of images to read, or None for all.

    Raises:
        DataError: if the file cannot be read or is malformed, or a foreground window has class 0 or less.
    """
    names: list[str] = []
    foreground: list[np.ndarray] = []
    background: list[np.ndarray] = []
    problems: list[Problem] = []
    words = Words(read_bytes(file, DataError, "the window file"))
    try:
        for image_number, line_number in itertools.islice(_read_image_numbers(words), max_images):
            image_index = len(names)
            names.append(next(words))
            channels, _, _ = [int(next(words)) for _ in range(3)]
            windows = _parse_windows(words, int(next(words)))
            columns = np.full(len(windows), image_index), windows[:, 0], windows[:, 2:]
            rows = np.column_stack(columns).astype(np.int32)
            is_foreground = windows[:, 1] >= np.float32(fg_threshold)
            is_background = (windows[:, 1] < np.float32(bg_threshold)) & ~is_foreground
            numbers = f"expected image {image_index}, found image {image_number}"
            checks = (
                (image_number == image_index, f"{numbers}; images must be numbered from 0"),
                (channels == 3, f"the image must have 3 channels, not {channels}"),
                ((windows[:, 2:4] <= windows[:, 4:]).all(), "a window ends before it begins (x2 < x1 or y2 < y1)"),
                ((rows[is_foreground, 1] > 0).all(), "a foreground window has class 0 or less"),
            )
            problems += [Problem(message, str(file), line_number) for is_good, message in checks if not is_good]
            rows[is_background, 1] = 0
            foreground.append(rows[is_foreground])
            background.append(rows[is_background])
    except (ValueError, StopIteration, OverflowError) as error:
        problem = f"'{words.last_word}' is unexpected here" if words.line_number else "is empty"
        message = f"not a window file, or damaged: {problem}; the docstring of {__name__} describes the format"
        raise DataError(Problem(message, str(file), words.line_number or None)) from error
    raise_if_any(DataError, truncate_problems(problems))
    if not names:
        raise DataError(Problem("the window file names no images", str(file)))
    return _ImageWindows(names, np.concatenate(foreground), np.concatenate(background))


class Words(Iterator[str]):
    """An iterator over the words in the bytes of a text file. It stores the last word and the number of its line."""

    def __init__(self, content: bytes) -> None:
        self.line_number = 0
        self.last_word = ""
        self._words = self._split_lines(io.StringIO(content.decode("utf-8", "surrogateescape")))

    def __next__(self) -> str:
        self.last_word = next(self._words)
        return self.last_word

    def _split_lines(self, text_file: TextIO) -> Iterator[str]:
        for self.line_number, line in enumerate(text_file, 1):
            # the words of a very long line, which split would return at once, take much more memory than the line
            yield from line.split() if len(line) < 1 << 16 else (match[0] for match in re.finditer(r"\S+", line))


def _read_image_numbers(words: Words) -> Iterator[tuple[int, int]]:
    for word in words:
        # a space between the sign and the number is optional
        if not word.startswith("#"):
            raise ValueError(word)
        yield int(word[1:] or next(words, "")), words.line_number


def _parse_windows(words: Words, count: int) -> np.ndarray:
    """Read windows, float64 (count, 6). Column 1, the overlap, is rounded to float32; the others are integers."""
    if count < 0:
        raise ValueError(count)
    values = np.fromiter(map(float, itertools.islice(words, 6 * count)), np.float64)
    windows = values.reshape(count, 6)
    integers = windows[:, [0, 2, 3, 4, 5]]
    if not (np.abs(integers) < 2**31).all() or (integers % 1).any():
        raise ValueError("not an integer, or beyond 32 bits")
    with np.errstate(over="ignore"):  # larger numbers become infinity, as in Caffe
        windows[:, 1] = windows[:, 1].astype(np.float32)
    return windows


class Warp(NamedTuple):
    """The warp of windows to squares, as in R-CNN.

    Attributes:
        size: the side of the square, in pixels.
        context: the width of the square's border that shows the surroundings of the window, in pixels.
        is_square: whether the window is first widened to a square, so that the warp does not distort.
    """

    size: int
    context: int
    is_square: bool

    def __call__(self, image: np.ndarray, box: np.ndarray, mirror: bool) -> tuple[np.ndarray, int, int]:
        """Return the pixels of a warped window.

        Args:
            image: (H, W, 3).
            box: x1, y1, x2, y2, inclusive.
            mirror: whether the window is flipped left to right.

        Returns:
            The pixels (h, w, 3), and the row and column at which they begin in the square. If the window with its
            surroundings exceeds the image, the pixels do not fill the square.

        Raises:
            DataError: if the window is not in the image, or less than one pixel of the square shows the image.
        """
        x1, y1, x2, y2 = map(int, box)
        x, y = _Span(x1, x2, image.shape[1]), _Span(y1, y2, image.shape[0])
        x_fill = y_fill = self.size, 0, 0  # filled pixels of the square, and empty ones before and after them
        if self.context or self.is_square:
            half_sizes = (x.half_size, y.half_size)
            new_half_sizes = (max(half_sizes),) * 2 if self.is_square else half_sizes
            scale = np.float32(self.size) / np.float32(self.size - 2 * self.context)
            x, x_fill = x.widen(new_half_sizes[0], scale).fit(self.size)
            y, y_fill = y.widen(new_half_sizes[1], scale).fit(self.size)
        (width, left, right), (height, row, _) = x_fill, y_fill
        column = right if mirror else left  # mirroring moves the empty part on the right to the left
        size = min(width, self.size - column), min(height, self.size - row)
        is_inside = 0 <= x.first <= x.last < x.image_size and 0 <= y.first <= y.last < y.image_size
        if not is_inside or min(size) < 1:
            problem = "too little of it is" if is_inside else "is not"
            size_text = f"{image.shape[1]} x {image.shape[0]}"
            raise DataError(f"window {' '.join(map(str, box))}: {problem} in the image, which is {size_text}")
        pixels = cv2.resize(image[y.first : y.last + 1, x.first : x.last + 1], size)
        return (pixels[:, ::-1] if mirror else pixels), row, column


class _Span(NamedTuple):
    """The first and last pixel of a window along one axis of an image. Arithmetic rounds to float32, as in Caffe."""

    first: int
    last: int
    image_size: int

    @property
    def half_size(self) -> np.float32:
        return np.float32(np.float32(self.last - self.first + 1) / 2)

    def widen(self, half_size: np.float32, scale: np.float32) -> _Span:
        """Return the span with the same center and the length `2 * half_size * scale`."""
        center = np.float32(self.first) + self.half_size
        return _Span(_round(center - half_size * scale), _round(center + half_size * scale), self.image_size)

    def fit(self, size: int) -> tuple[_Span, tuple[int, int, int]]:
        """Return the part inside the image, and of `size` pixels, how many it fills, and are before and after it."""
        before, after = max(0, -self.first), max(0, self.last - self.image_size + 1)
        visible_span = _Span(self.first + before, self.last - after, self.image_size)
        scale = np.float32(size) / np.float32(self.last - self.first + 1)
        length = visible_span.last - visible_span.first + 1
        num_filled, num_before, num_after = (_round(np.float32(n) * scale) for n in (length, before, after))
        return visible_span, (num_filled, num_before, num_after)


def _round(x: np.float32) -> int:
    """Round to the nearest integer, halves away from zero, as C does."""
    return int(np.copysign(np.floor(np.abs(np.float64(x)) + 0.5), x))


class _WindowBatches:
    """Batches of randomly sampled windows: first windows on background, then windows on objects.

    The fraction `fg_fraction` of a batch are windows on objects. The tops are the windows, float32 (N, 3, crop_size,
    crop_size), and their classes, float32 (N,), which are 0 for background.
    """

    def __init__(self, definition: LayerDefinition, tops: TopSpecs) -> None:
        param, transform_param = definition.layer.window_data_param, definition.layer.transform_param
        self.tops = tops
        self._definition = definition
        windows, self._paths = _read_windows(definition)
        self._file = str(definition.path(param.source))
        self._window_sets = windows.foreground, windows.background
        self._warp = Warp(transform_param.crop_size, param.context_pad, param.crop_mode == "square")
        self._mirror: bool = transform_param.mirror
        # Caffe reads the scale from window_data_param, and all other settings from transform_param
        self._scale = np.float32(param.scale)
        self._mean = _crop_mean(definition)
        self._rng = CounterRng(definition.config.seed, definition.layer.name)
        self._num_foreground = int(np.float32(param.batch_size) * np.float32(param.fg_fraction))
        self._file_cache: dict[int, bytes] | None = {} if param.cache_images else None
        self.batch_size: int = param.batch_size
        self.num_threads = count_available_cores()
        self.num_examples = None
        counts = {"fg_threshold": self._num_foreground, "bg_threshold": self.batch_size - self._num_foreground}
        for (name, count), candidates in zip(counts.items(), self._window_sets, strict=True):
            if count and not len(candidates):
                threshold = f"{getattr(param, name):g}"
                overlap = f"{threshold} or more" if name == "fg_threshold" else f"less than {threshold}"
                message = f"no window overlaps by {overlap}, but a batch needs {count}"
                raise DataError(Problem(f"{message}; change {name} or fg_fraction", self._file))

    def read(self, start: int) -> Batch:
        images, labels = (np.zeros(shape.shape, np.float32) for shape in self.tops)
        words = self._rng.words(start, self.batch_size)
        foreground, background = self._window_sets
        with locate_errors(layer=self._definition.layer.name, layer_type=self._definition.layer.type):
            for i, (image, (flip_word, window_word, *_)) in enumerate(zip(images, words.tolist(), strict=True)):
                windows = foreground if i >= self.batch_size - self._num_foreground else background
                image_index, labels[i], *box = windows[window_word % len(windows)].tolist()
                self._fill_window(image, image_index, np.array(box), self._mirror and flip_word % 2 == 1)
        return Batch((images, labels))

    def checksum(self) -> int:
        return 0  # the window file, which is compared as a whole, lists all examples

    def close(self) -> None:
        if self._file_cache is not None:
            self._file_cache.clear()

    def _fill_window(self, out: np.ndarray, image_index: int, box: np.ndarray, mirror: bool) -> None:
        path = self._paths[image_index]
        image = decode_file(path, self._read_bytes(image_index), max_pixels=self._definition.config.max_image_pixels)
        try:
            pixels, row, column = self._warp(image.transpose(1, 2, 0), box, mirror)
        except DataError as error:
            raise DataError(Problem(f"image '{path}': {error}", self._file)) from error
        height, width = pixels.shape[:2]
        region = np.s_[:, row : row + height, column : column + width]
        with np.errstate(over="ignore", invalid="ignore"):  # larger numbers become infinity, as in Caffe
            out[region] = (pixels.transpose(2, 0, 1) - self._mean[region]) * self._scale

    def _read_bytes(self, image_index: int) -> bytes:
        cache = {} if self._file_cache is None else self._file_cache
        if image_index not in cache:
            cache[image_index] = read_bytes(self._paths[image_index], DataError)
        return cache[image_index]


def _read_windows(definition: LayerDefinition, max_images: int | None = None) -> tuple[_ImageWindows, list[str]]:
    param = definition.layer.window_data_param
    file = definition.path(param.source)
    windows = read_windows(file, param.fg_threshold, param.bg_threshold, max_images)
    return windows, find_files(file, windows.names, param.root_folder, get_search_folders(definition, file))


def _crop_mean(definition: LayerDefinition) -> np.ndarray:
    """Return the mean of each pixel of the square, (3, crop_size, crop_size), as given by mean_file or mean_value."""
    mean, size = read_mean(definition), definition.layer.transform_param.crop_size
    channels, height, width = mean.values.shape
    if mean.file is None:
        mean.broadcast_to((3, 1, 1))
        return np.broadcast_to(mean.values, (3, size, size))
    offset = (width - size) // 2  # used for rows too, as in Caffe
    if channels != 3 or offset < 0 or offset + size > height:
        raise DataError(
            f"mean_file {mean.file} is {format_shape(mean.values.shape)} (CxHxW), but it needs 3 channels, and at "
            f"least crop_size {size} rows and columns"
        )
    return mean.values[:, offset : offset + size, offset : offset + size]


class WindowDataLayer(DataLayer):
    """Batches of windows that a window file lists. The seed determines the random windows, which differ from Caffe's.

    The fields crop_size, mirror and the mean are read from transform_param. As in Caffe, `scale` is read from
    window_data_param only.
    """

    label_shapes = staticmethod(scalar_label_shapes)

    def check_settings(self) -> None:
        """Check window_data_param and transform_param."""
        param, transform_param = self.layer_param.window_data_param, self.layer_param.transform_param
        check_all(
            lambda: raise_if_any(DataError, self._list_problems()),
            lambda: refuse_unsupported(param, "window_data_param", _SUPPORTED_FIELDS),
            lambda: check_transform(self.definition, supported_fields=_SUPPORTED_TRANSFORM_FIELDS),
        )
        if transform_param.scale != 1:
            message = "layer '%s': transform_param.scale has no effect on WindowData, as in Caffe; "
            log.warning(message + "set window_data_param.scale instead", self.layer_param.name)

    def _list_problems(self) -> Iterator[str]:
        param, transform_param = self.layer_param.window_data_param, self.layer_param.transform_param
        yield from list_source_problems(param, "window_data_param", "a window file")
        if not 1 <= transform_param.crop_size <= _MAX_CROP_SIZE:
            yield f"transform_param.crop_size must be 1 to {_MAX_CROP_SIZE}, not {transform_param.crop_size}"
        elif 2 * param.context_pad >= transform_param.crop_size:
            yield "window_data_param.context_pad must be less than half of transform_param.crop_size"
        if param.crop_mode not in ("warp", "square"):
            yield f"window_data_param.crop_mode is '{param.crop_mode}'; it must be 'warp' or 'square'"
        if not 0 <= param.fg_fraction <= 1:
            yield f"window_data_param.fg_fraction is {param.fg_fraction:g}; it must be between 0 and 1"

    def probe(self) -> SourceSpec:
        """Check the mean and the first image of the window file.

        The settings determine the shapes of the tops. `open` reads and checks the complete file, which may have
        millions of lines.
        """
        _read_windows(self.definition, max_images=1)
        _crop_mean(self.definition)
        batch_size, size = self.layer_param.window_data_param.batch_size, self.layer_param.transform_param.crop_size
        return SourceSpec((float32_top(batch_size, 3, size, size), float32_top(batch_size)))

    def open(self, tops: TopSpecs) -> Batches:
        """Read the window file."""
        return _WindowBatches(self.definition, tops)


register("WindowData", WindowDataLayer.implementation(), bottoms=0, tops=2, param="window_data_param")
