"""The WindowData layer: batches of windows of images, some on objects and some on background, as R-CNN trains."""

from __future__ import annotations

import logging

import numpy as np

from ..errors import DataError, Problem, located
from ..layers.context import Site
from ..layers.registry import register
from ..layers.source import Look, Tops
from ..layers.types import LayerType, Signature
from .fields import refuse_unsupported
from .images import decode_file, read_file
from .lists import find_images
from .mean import read_mean
from .pipeline import Batch, Batches, available_cores
from .reads import prefetch_depth, reads_batches
from .rng import CounterRng
from .shapes import dims, float32_top
from .warp import Warp
from .window_file import ImageWindows, read_windows

log = logging.getLogger("caffejax.data")

# The second line is what old files say and Caffe ignores here.
_KNOWN = {"source", "batch_size", "scale", "root_folder", "cache_images", "crop_mode", "context_pad"} | {
    *("mean_file", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction"),
}
_LARGEST = 1 << 15  # pixels, the side of a square
_KNOWN_TRANSFORMS = {"scale", "mirror", "crop_size", "mean_file", "mean_value"}


class WindowBatches:
    """Batches of windows, drawn by the seed: first background, then `fg_fraction` of the batch on objects.

    Tops are the windows, float32 (N, 3, crop_size, crop_size), and their classes, float32 (N,), 0 for background.

    Args:
        site: the layer. Its whole window file is read here.
        tops: what the look has shown.

    Raises:
        DataError: with what is wrong with the window file or its images.
    """

    def __init__(self, site: Site, tops: Tops) -> None:
        param, transform_param = site.layer.window_data_param, site.layer.transform_param
        self.tops = tops
        self._site = site
        self._windows, self._paths = _read_windows(site)
        self._warp = Warp(transform_param.crop_size, param.context_pad, param.crop_mode == "square")
        self._mirror: bool = transform_param.mirror
        # Caffe takes the scale from here, though all else from transform_param
        self._scale = np.float32(param.scale)
        self._mean = _mean(site)
        self._rng = CounterRng(site.reading.seed, site.layer.name)
        self._foreground = int(np.float32(param.batch_size) * np.float32(param.fg_fraction))
        self._cache: dict[int, bytes] | None = {} if param.cache_images else None
        self.batch_size: int = param.batch_size
        self.threads = available_cores()
        self.examples = None
        wanted = {"fg_threshold": self._foreground, "bg_threshold": self.batch_size - self._foreground}
        for name, count, windows in zip(wanted, wanted.values(), self._kinds, strict=True):
            if count and not len(windows):
                threshold = f"{getattr(param, name):g}"
                overlap = f"{threshold} or more" if name == "fg_threshold" else f"less than {threshold}"
                message = f"no window overlaps by {overlap}, but a batch needs {count} such"
                raise DataError(Problem(f"{message}; change {name} or fg_fraction", str(self._windows.images.file)))

    @property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        return self._windows.foreground, self._windows.background

    def read(self, start: int) -> Batch:
        """Read the batch from example `start` on.

        Raises:
            DataError: naming an image that cannot be read, or in which the window does not lie.
        """
        images, labels = (np.zeros(shape.shape, np.float32) for shape in self.tops)
        words = self._rng.words(start, self.batch_size)
        foreground, background = self._kinds
        with located(layer=self._site.layer.name, layer_type=self._site.layer.type):
            for i, (image, (flip, pick, *_)) in enumerate(zip(images, words.tolist(), strict=True)):
                windows = foreground if i >= self.batch_size - self._foreground else background
                number, labels[i], *box = windows[pick % len(windows)].tolist()
                self._fill(image, number, np.array(box), self._mirror and flip % 2 == 1)
        return Batch((images, labels))

    def close(self) -> None:
        """Forget the images kept in memory."""
        if self._cache is not None:
            self._cache.clear()

    def _fill(self, out: np.ndarray, number: int, box: np.ndarray, mirror: bool) -> None:
        path = self._paths[number]
        image = decode_file(path, self._bytes(number), max_pixels=self._site.reading.max_image_pixels)
        try:
            pixels, row, column = self._warp(image.transpose(1, 2, 0), box, mirror)
        except DataError as error:
            raise DataError(Problem(f"image '{path}': {error}", str(self._windows.images.file))) from error
        height, width = pixels.shape[:2]
        at = np.s_[:, row : row + height, column : column + width]
        with np.errstate(over="ignore", invalid="ignore"):  # what no float holds becomes infinity, as in Caffe
            out[at] = (pixels.transpose(2, 0, 1) - self._mean[at]) * self._scale

    def _bytes(self, number: int) -> bytes:
        if self._cache is None:
            return read_file(self._paths[number])
        if number not in self._cache:
            self._cache[number] = read_file(self._paths[number])
        return self._cache[number]


def _read_windows(site: Site, most: int | None = None) -> tuple[ImageWindows, list[str]]:
    """Read the windows of all images, or of the first `most`, and find where these images lie."""
    param = site.layer.window_data_param
    file = site.path(param.source)
    windows = read_windows(file, param.fg_threshold, param.bg_threshold, most)
    folders = [folder for folder in (site.folder, file.parent) if folder is not None]
    return windows, find_images(windows.images, param.root_folder, folders)


def _mean(site: Site) -> np.ndarray:
    """Return the mean over the square: the middle of a mean file, or each channel's value."""
    mean, size = read_mean(site), site.layer.transform_param.crop_size
    channels, height, width = mean.values.shape
    if mean.file is None:
        mean.broadcast_to((3, 1, 1))
        return np.broadcast_to(mean.values, (3, size, size))
    offset = (width - size) // 2  # of rows too, as in Caffe
    if channels != 3 or offset < 0 or offset + size > height:
        raise DataError(
            f"mean_file {mean.file} is {dims(mean.values.shape)}; 3 channels are needed, and a square of crop_size "
            f"{size} in its middle"
        )
    return mean.values[:, offset : offset + size, offset : offset + size]


def look_at_window_data(site: Site) -> Look:
    """Look at the settings of a WindowData layer, its mean and the first image of its window file.

    The shapes are in the settings. The rest of the file, millions of lines, is read and checked when it is opened.
    """
    param, transform_param = site.layer.window_data_param, site.layer.transform_param
    problems = []
    if not param.source:
        problems.append("window_data_param has no source; name a window file")
    if param.batch_size < 1:
        problems.append("window_data_param.batch_size must be 1 or more")
    if not 1 <= transform_param.crop_size <= _LARGEST:
        problems.append(f"transform_param.crop_size must be 1 to {_LARGEST}: the side of the squares")
    elif 2 * param.context_pad >= transform_param.crop_size:
        problems.append("window_data_param.context_pad must be less than half of transform_param.crop_size")
    if param.crop_mode not in ("warp", "square"):
        problems.append(f"window_data_param.crop_mode is '{param.crop_mode}'; it must be 'warp' or 'square'")
    if not 0 <= param.fg_fraction <= 1:
        problems.append(f"window_data_param.fg_fraction is {param.fg_fraction:g}; it must lie between 0 and 1")
    if problems:
        raise DataError(problems)
    refuse_unsupported(param, "window_data_param", _KNOWN)
    refuse_unsupported(transform_param, "transform_param", _KNOWN_TRANSFORMS)
    if transform_param.scale != 1:
        message = "layer '%s': transform_param.scale has no effect on WindowData, as in Caffe; "
        log.warning(message + "window_data_param.scale has", site.layer.name)
    _read_windows(site, most=1)
    _mean(site)
    size = transform_param.crop_size
    return Look((float32_top(param.batch_size, 3, size, size), float32_top(param.batch_size)))


def open_window_data(site: Site, tops: Tops) -> Batches:
    """Open the window file of a WindowData layer. Which windows are drawn is decided by the seed, not as in Caffe.

    crop_size, mirror and the mean stand in transform_param; `scale`, as in Caffe, in window_data_param alone.
    """
    return WindowBatches(site, tops)


register(
    LayerType(
        Signature("WindowData", bottoms=0, tops=2, param="window_data_param"),
        reads_batches(look_at_window_data, open_window_data, prefetch_depth),
    )
)
