"""Caffe's C++ examples: `classification` and, of the SSD fork, `ssd_detect`, with their arguments and output."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import CaffejaxError, DataError, Problem, locate_errors, raise_if_any
from . import flags, net_flags

if TYPE_CHECKING:
    import numpy as np

_NUM_PREDICTIONS = 5
_DEFAULT_MEAN_VALUE = "104,117,123"


class classification:  # noqa: N801  named like the program
    """Print the five most probable classes of an image, as Caffe's example cpp_classification does.

    The image is resized to the net's input, and the average of each channel of the mean is subtracted.
    """

    HELP = "classify an image as Caffe's C++ example does"
    EXAMPLE = "caffejax classification deploy.prototxt net.caffemodel mean.binaryproto synset_words.txt cat.jpg"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        _add_net_arguments(parser)
        parser.add_argument("mean", help="the mean image, a .binaryproto", metavar="mean.binaryproto")
        parser.add_argument("labels", help="a text file with the name of a class on each line", metavar="labels.txt")
        parser.add_argument("image", help="the image", metavar="img.jpg")
        net_flags.add_import_and_limit_flags(parser)

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Classify the image.

        Raises:
            CaffejaxError: if a file cannot be read, the net does not have one input of 1 or 3 channels and one output,
                or the numbers of labels and of classes differ.
        """
        import numpy as np

        from ..base.paths import check_exist

        check_exist([options.model, options.weights, options.mean, options.labels, options.image])
        program = _Program.load(options)
        mean = _read_channel_means(options.mean, program.num_channels)
        labels = _read_lines(options.labels)
        shape = program.net.blobs[program.net.outputs[0]].data.shape
        num_classes = shape[1] if len(shape) > 1 else 1
        if len(labels) != num_classes:
            message = f"has {len(labels)} labels, but the net's output has {num_classes} channels"
            raise DataError(Problem(message, options.labels))
        print(f"---------- Prediction for {options.image} ----------")
        scores = program.run(_read_image(options.image, options), mean).reshape(-1)[:num_classes]
        for i in np.argsort(-scores, kind="stable")[:_NUM_PREDICTIONS]:
            print(f'{scores[i]:.4f} - "{labels[i]}"')


class ssd_detect:  # noqa: N801
    """Print the detections in images or videos, as the SSD fork's example ssd_detect does.

    A line has the file, the label, the score, and xmin, ymin, xmax and ymax in pixels. A video's frame is named after
    the video, with the number of the frame.
    """

    HELP = "detect objects as SSD's C++ example does"
    EXAMPLE = "caffejax ssd_detect deploy.prototxt net.caffemodel images.txt --out_file=detections.txt"

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments and flags."""
        _add_net_arguments(parser)
        parser.add_argument("list", help="a text file that names the images or videos", metavar="list_file")
        flags.add(parser, "mean_file", "the mean image, a .binaryproto, instead of --mean_value", default="")
        mean_help = f"the mean of each channel, or one for all; default: {_DEFAULT_MEAN_VALUE}, without --mean_file"
        flags.add(parser, "mean_value", mean_help, metavar="B,G,R")
        flags.add(parser, "file_type", "what the list names", choices=("image", "video"), default="image")
        flags.add(parser, "out_file", "the file to write instead of printing", default="")
        flags.add(parser, "confidence_threshold", "the smallest score", type=float, default=0.01)
        net_flags.add_import_and_limit_flags(parser)

    @staticmethod
    def run(options: argparse.Namespace) -> None:
        """Detect objects in each image or video.

        Raises:
            CaffejaxError: if a file cannot be read, both means are given, or the net's output has no detections.
        """
        from ..base.atomic_write import replace_file
        from ..base.paths import check_exist

        if options.mean_file and options.mean_value:
            raise CaffejaxError("--mean_file and --mean_value cannot be given at the same time; keep one of them")
        mean_files = [options.mean_file] if options.mean_file else []
        check_exist([options.model, options.weights, options.list, *mean_files])
        paths = " ".join(_read_lines(options.list)).split()
        missing = (f"names {path!r}, which does not exist" for path in paths if not os.path.exists(path))
        raise_if_any(DataError, missing, options.list)
        program = _Program.load(options)
        if options.mean_file:
            mean = _read_channel_means(options.mean_file, program.num_channels)
        else:
            text = _DEFAULT_MEAN_VALUE if options.mean_value is None else options.mean_value
            mean = _parse_means(text, program.num_channels)
        with ExitStack() as stack:
            file = stack.enter_context(replace_file(options.out_file)) if options.out_file else None
            for path in paths:
                for name, image in _read_images(path, options):
                    for line in _format_detections(name, image, program.run(image, mean), options):
                        print(line) if file is None else file.write(f"{line}\n".encode())


class _Program(NamedTuple):
    """A net of pycaffe with one input of 1 or 3 channels, and one output.

    Attributes:
        net: the net, with a batch of one image.
        num_channels: the number of channels of the input.
        size: height and width of the input.
    """

    net: Any
    num_channels: int
    size: tuple[int, int]

    @classmethod
    def load(cls, options: argparse.Namespace) -> _Program:
        from .. import pycaffe as caffe
        from .image_flags import set_limits

        set_limits(options)
        net = caffe.Net(options.model, caffe.TEST, weights=options.weights)
        counts = {"input": len(net.inputs), "output": len(net.outputs)}
        for kind, count in counts.items():
            if count != 1:
                raise DataError(Problem(f"the net must have one {kind}, not {count}", options.model))
        blob = net.blobs[net.inputs[0]]
        shape = blob.data.shape
        if len(shape) != 4 or shape[1] not in (1, 3):
            raise DataError(
                Problem(f"the input must be N x C x H x W, with 1 or 3 channels, not {shape}", options.model)
            )
        blob.reshape(1, *shape[1:])
        net.reshape()
        return cls(net, shape[1], (shape[2], shape[3]))

    def run(self, image: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the output for an image, (H, W) or (H, W, C), minus the mean of each channel, (C, 1, 1)."""
        import cv2
        import numpy as np

        num_image_channels = 1 if image.ndim == 2 else image.shape[2]
        conversions = {
            (3, 1): cv2.COLOR_BGR2GRAY,
            (4, 1): cv2.COLOR_BGRA2GRAY,
            (4, 3): cv2.COLOR_BGRA2BGR,
            (1, 3): cv2.COLOR_GRAY2BGR,
        }
        if (conversion := conversions.get((num_image_channels, self.num_channels))) is not None:
            image = cv2.cvtColor(image, conversion)
        if image.shape[:2] != self.size:
            image = cv2.resize(image, self.size[::-1], interpolation=cv2.INTER_LINEAR)
        planes = np.atleast_3d(image).astype(np.float32).transpose(2, 0, 1)
        self.net.blobs[self.net.inputs[0]].data[...] = planes - mean
        output: np.ndarray = self.net.forward()[self.net.outputs[0]]
        return output


def _add_net_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the net prototxt", metavar="deploy.prototxt")
    parser.add_argument("weights", help="the trained net, a .caffemodel[.h5]", metavar="network.caffemodel")


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"cannot be read: {getattr(error, 'strerror', None) or error}", path)) from error


def _read_channel_means(path: str, num_channels: int) -> np.ndarray:
    """Return the average of each channel of a mean image, float32 (C, 1, 1)."""
    import numpy as np

    from ..core.schema.blob_proto import read_blob_proto

    array = read_blob_proto(path, DataError)
    image = np.asarray(array, np.float64).reshape((1,) * (4 - array.ndim) + array.shape)
    if image.ndim != 4 or image.shape[:2] != (1, num_channels) or not image.size:
        message = f"the mean must have the {num_channels} channels of the input, but has shape {array.shape}"
        raise DataError(Problem(message, path))
    return image[0].mean(axis=(1, 2), keepdims=True).astype(np.float32)


def _parse_means(text: str, num_channels: int) -> np.ndarray:
    """Return means that are separated by commas, float32 (C, 1, 1); no text means 0."""
    import numpy as np

    try:
        means = [float(part) for part in text.split(",")] if text else [0.0]
    except ValueError:
        raise CaffejaxError(f"--mean_value must be numbers separated by commas, not '{text}'") from None
    if len(means) not in (1, num_channels):
        raise CaffejaxError(f"--mean_value must be 1 number or {num_channels}, the channels of the input, not '{text}'")
    return np.broadcast_to(np.array(means, np.float32).reshape(-1, 1, 1), (num_channels, 1, 1))


def _read_image(path: str, options: argparse.Namespace) -> np.ndarray:
    """Return an image as it is stored, (H, W) or (H, W, C)."""
    from ..base.paths import read_content
    from ..core.data.image_decoding import UNCHANGED, decode_pixels

    with locate_errors(file=path):
        try:
            data = read_content(path)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        return decode_pixels(data, UNCHANGED, options.max_image_pixels, path)


def _read_images(path: str, options: argparse.Namespace) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the image of a file, or each frame of a video, with its name."""
    if options.file_type == "image":
        yield path, _read_image(path, options)
        return
    import cv2

    video = cv2.VideoCapture(path)
    if not video.isOpened():
        raise DataError(Problem("the video cannot be opened", path))
    try:
        number = 0
        while (frame := video.read())[0]:
            yield f"{path}_{number:06d}", frame[1]
            number += 1
    finally:
        video.release()


def _format_detections(name: str, image: np.ndarray, output: np.ndarray, options: argparse.Namespace) -> Iterator[str]:
    """Yield a line for each detection whose score is large enough."""
    import numpy as np

    if output.size % 7:
        message = f"the output must have rows of 7 values, as of a DetectionOutput layer, not shape {output.shape}"
        raise DataError(Problem(message, options.model))
    height, width = image.shape[:2]
    sides = np.array([width, height, width, height], np.float32)
    for row in output.reshape(-1, 7):
        if row[0] != -1 and row[2] >= np.float32(options.confidence_threshold):
            corners = " ".join(str(int(value)) for value in row[3:] * sides)
            yield f"{name} {int(row[1])} {row[2]:g} {corners}"
