"""`caffe.Detector`: classification of windows of images, as in R-CNN."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..base.errors import ArgumentValueError, CaffejaxError, DataError, Problem
from . import io
from ._arguments import as_image, as_integer, as_list, as_path, convert
from ._fork_files import fall_back_to_fork
from ._old_names import refuse_arguments
from .classifier import ImageInputNet

Window = Sequence[int] | np.ndarray


class Detector(ImageInputNet):
    """A net that classifies windows of images.

    Args:
        model_file: the net prototxt. `context_pad` requires a square input.
        pretrained_file: the net's weights.
        mean, input_scale, raw_scale, channel_swap: see `io.Transformer`.
        context_pad: width of the context around the window on each side, in pixels of the net's input.
        strict_weights: see `Net`.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
        strict_weights: bool | None = None,
        **old_arguments: Any,
    ) -> None:
        refuse_arguments("Detector", old_arguments)
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap, strict_weights)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | os.PathLike[str], Iterable[Window]]]
    ) -> list[dict[str, Any]]:
        """Classify windows of images.

        Args:
            images_windows: for each image its file name and its windows (ymin, xmin, ymax, xmax), in pixels.

        Returns:
            A dictionary for each window: `{"filename": ..., "window": ..., "prediction": the net's first output}`.

        Raises:
            DataError: if an image cannot be read, or a window is outside its image.
        """
        detections: list[dict[str, Any]] = []
        crops = []
        pairs = "pairs of a file name and a list of windows"
        for filename, windows in as_list(
            convert(images_windows, "images_windows", pairs, lambda items: [tuple(_as_pair(item)) for item in items]),
            "images_windows",
        ):
            image = io.load_image(as_path(filename, "the name of an image"), color=self.crop_dims[2] != 1)
            for window in as_list(windows, "the windows of an image"):
                _as_window(window)
                if 0 in image[int(window[0]) : int(window[2]), int(window[1]) : int(window[3])].shape:
                    size = f"{image.shape[0]} x {image.shape[1]}"
                    numbers = ", ".join(str(int(n)) for n in window)
                    raise DataError(Problem(f"window ({numbers}) is outside the image, which is {size}", str(filename)))
                crops.append(self.crop(image, window))
                detections.append({"window": window, "filename": filename})
        for detection, prediction in zip(detections, self._predict(crops) if crops else (), strict=True):
            detection["prediction"] = prediction
        return detections

    def detect_selective_search(self, image_fnames: Iterable[str]) -> list[dict[str, Any]]:
        """Classify the windows that selective search, a separate MATLAB program, proposes for images.

        Raises:
            CaffejaxError: if the Python package selective_search_ijcv_with_python is not installed.
        """
        try:
            selective_search = import_module("selective_search_ijcv_with_python")
        except ImportError as error:
            raise CaffejaxError(
                "selective search needs MATLAB and the package selective_search_ijcv_with_python on the Python path; "
                "without them, compute windows in another way and pass them to detect_windows"
            ) from error
        files = [os.path.abspath(name) for name in image_fnames]
        windows = selective_search.get_windows(files, cmd="selective_search_rcnn")
        return self.detect_windows(zip(files, windows, strict=True))

    def crop(self, im: np.ndarray, window: Window) -> np.ndarray:
        """Crop a window from an image, with `context_pad` pixels of context around it.

        Context outside the image is filled with the mean.

        Args:
            im: (H, W, K).
            window: (ymin, xmin, ymax, xmax), in pixels.

        Returns:
            The window in its original size; with context, it is resized to the net's input.
        """
        im = as_image(im)
        y1, x1, y2, x2 = _as_window(window)
        if not self.context_pad:
            return im[y1:y2, x1:x2]
        size = self.crop_dims[1]  # the input is square
        scale = size / (size - 2.0 * self.context_pad)
        half = np.array([(y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2])
        center = np.array([y1, x1]) + half
        first_corner, last_corner = np.round(center - scale * half), np.round(center + scale * half)
        zoom = size / (last_corner - first_corner + 1)
        pad = np.round(np.maximum(0, -first_corner) * zoom).astype(int)
        first_corner, last_corner = (np.clip(corner, 0, im.shape[:2]) for corner in (first_corner, last_corner))
        dims = np.minimum(np.round((last_corner - first_corner + 1) * zoom).astype(int), size - pad)
        (top, left), (bottom, right) = first_corner.astype(int), last_corner.astype(int)
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean
        crop[pad[0] : pad[0] + dims[0], pad[1] : pad[1] + dims[1]] = io.resize_image(im[top:bottom, left:right], dims)
        return crop

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the pixels of context that `crop` adds on each side, and the mean that fills context outside the image.

        Raises:
            ValueError: if the net's input is not square, or is not wider than twice the context; or if raw_scale is 0,
                by which the mean is divided.
        """
        context_pad = None if context_pad is None else as_integer(context_pad, "context_pad")
        name = self.inputs[0]
        channels, height, width = self.blobs[name].data.shape[1:]
        if context_pad and not (height == width and 0 < 2 * context_pad < width):
            raise ArgumentValueError(
                f"context_pad={context_pad} needs a square input wider than {2 * context_pad}, not {height} x {width}"
            )
        self.crop_dims = (height, width, channels)
        self.context_pad = context_pad
        transformer = self.transformer
        mean = np.asarray(transformer.mean.get(name, np.zeros((channels, 1, 1))), np.float32).transpose(1, 2, 0)
        if name in transformer.channel_swap:
            mean = mean[:, :, np.argsort(transformer.channel_swap[name])]
        raw_scale = np.float32(transformer.raw_scale.get(name, 1))
        if raw_scale == 0:
            raise ArgumentValueError("raw_scale must not be 0, because the mean that fills crops is divided by it")
        self.crop_mean = mean / raw_scale


def _as_pair(item: Any) -> tuple[Any, Any]:
    name, windows = item
    return name, windows


def _as_window(window: Any) -> tuple[int, int, int, int]:
    """Return the four numbers of a window as integers.

    Raises:
        TypeError: if it does not have four numbers.
    """

    def read(window: Any) -> tuple[int, int, int, int]:
        y1, x1, y2, x2 = (int(n) for n in window)
        return y1, x1, y2, x2

    return convert(window, "a window", "four numbers (ymin, xmin, ymax, xmax)", read)


__getattr__ = fall_back_to_fork(__name__)
