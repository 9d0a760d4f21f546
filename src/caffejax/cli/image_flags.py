"""Flags for images and their preprocessing, shared by the commands that read or draw images."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.atomic_write import check_writable
from ..base.config import LIMIT_FIELDS
from ..base.errors import CaffejaxError
from . import flags, net_flags

if TYPE_CHECKING:
    import numpy as np

    from ..pycaffe.classifier import ImageInputNet


CAFFE_MEAN_PATH = "caffe/imagenet/ilsvrc_2012_mean.npy"  # in the folder `python` of BVLC Caffe


def parse_integers(text: str) -> tuple[int, ...]:
    """Parse integers separated by commas, such as "2,1,0"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of integers such as 2,1,0") from None


def parse_finite_float(text: str) -> float:
    """Parse a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"'{text}' is not a finite number")
    return value


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for the net, the device and preprocessing."""
    flags.add(parser, "model_def", help="the net prototxt", required=True, metavar="FILE")
    flags.add(parser, "pretrained_model", help="the net's weights", required=True, metavar="FILE")
    net_flags.add_strict_flag(parser)
    flags.add(parser, "gpu", help="run on the GPU", action="store_true")
    net_flags.add_import_and_limit_flags(parser)
    channel_swap_help = "order of the channels (default: 2,1,0 if the net's input has three)"
    add_preprocessing_flags(parser, raw_scale=255.0, channel_swap_help=channel_swap_help)


def add_preprocessing_flags(
    parser: argparse.ArgumentParser,
    raw_scale: float | None = None,
    channel_swap: tuple[int, ...] | None = None,
    channel_swap_help: str = "order of the channels",
) -> None:
    """Add flags for preprocessing; `raw_scale` and `channel_swap` are the flags' defaults."""
    default_note = "; default: Caffe's ILSVRC mean, from $CAFFE_ROOT; an empty value subtracts none"
    mean_file_help = "the mean to subtract: a .npy file, (K,) or (K, H, W), or a .binaryproto file"
    mean_file_help += "" if raw_scale is None else default_note
    flags.add(parser, "mean_file", help=mean_file_help, metavar="FILE")
    flags.add(parser, "input_scale", help="multiply by this factor after subtracting the mean", type=parse_finite_float)
    flags.add(
        parser,
        "raw_scale",
        help="multiply by this factor before subtracting the mean",
        type=parse_finite_float,
        default=raw_scale,
    )
    flags.add(parser, "channel_swap", help=channel_swap_help, type=parse_integers, default=channel_swap)


def check_files(options: argparse.Namespace) -> None:
    """Raise `CaffejaxError` if the images, net, weights or mean do not exist; the message names each missing file."""
    from ..base.paths import check_exist

    mean_files = [options.mean_file] if options.mean_file else []
    check_exist([options.input_file, options.model_def, options.pretrained_model, *mean_files])


def set_limits(options: argparse.Namespace) -> None:
    """Set pycaffe's limits for reading files from the flags."""
    from .. import pycaffe as caffe

    caffe.set_limits(**{name: getattr(options, name) for name in LIMIT_FIELDS})


def set_pycaffe_mode(options: argparse.Namespace) -> None:
    """Set pycaffe's mode, GPU or CPU, from `--gpu`."""
    from .. import pycaffe as caffe

    if options.gpu:
        caffe.set_mode_gpu()
    else:
        caffe.set_mode_cpu()


def set_default_mean(options: argparse.Namespace) -> None:
    """If `--mean_file` is absent, set it to the mean image in Caffe's Python folder, which Caffe's scripts subtract.

    If this file is not found, no mean is subtracted, and a warning explains how to set the flag.
    """
    from ..base.glog import log

    if options.mean_file is not None:
        return
    root = os.environ.get("CAFFE_ROOT")
    folders = [*([os.path.join(root, "python")] if root else []), *sys.path]
    mean_path = next((file for folder in folders if (file := Path(folder) / CAFFE_MEAN_PATH).is_file()), None)
    if mean_path is None:
        options.mean_file = ""
        log.warning(
            "no mean is subtracted; Caffe's script subtracts the mean in the file %s, but this file was not found in "
            "$CAFFE_ROOT/python or on PYTHONPATH. Give --mean_file=FILE (Caffe's repository contains this file), or "
            "--mean_file= if the net needs no mean",
            CAFFE_MEAN_PATH,
        )
        return
    log.info("Subtracting the mean %s", mean_path)
    options.mean_file = str(mean_path)


def get_preprocessing_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the preprocessing flags as keyword arguments of Classifier and Detector."""
    names = ("input_scale", "raw_scale", "channel_swap")
    return {"mean": _read_mean(options.mean_file), **{name: getattr(options, name) for name in names}}


def set_default_channel_swap(net: ImageInputNet, options: argparse.Namespace) -> None:
    """If `--channel_swap` is absent and the net's input has three channels, have the transformer reverse them."""
    name = net.inputs[0]
    if options.channel_swap is None and net.blobs[name].data.shape[1] == 3:
        net.transformer.set_channel_swap(name, (2, 1, 0))


@contextmanager
def convert_value_errors(model: str) -> Iterator[None]:
    """Return a context that converts a ValueError to a `CaffejaxError` whose message names the net file `model`."""
    from ..base.errors import DataError, locate_errors

    with locate_errors(file=model):
        try:
            yield
        except ValueError as error:
            raise DataError(str(error)) from error


def _read_mean(path: str | None) -> np.ndarray | None:
    from ..base.errors import DataError, Problem
    from ..core.schema.blob_proto import read_blob_proto
    from ..tools.prediction.preprocessing import read_npy

    if not path:
        return None
    if path.endswith(".npy"):
        return read_npy(path)
    mean = read_blob_proto(path)
    if not mean.size:
        raise DataError(Problem("has no numbers, so it is not a mean", path))
    return mean.reshape(mean.shape[-3:])


def write_tiles(maps: np.ndarray, options: argparse.Namespace, title: str) -> None:
    """Write `maps` as tiles of one picture to the file `--out`; print `title`, and the number and size of the maps."""
    from ..base.atomic_write import replace_file
    from ..base.errors import locate_errors
    from ..tools.debugging.visualize import encode_image, enlarge, make_grid

    drawn_maps = maps[: options.maps] if options.maps else maps
    with locate_errors(file=options.out):
        picture = encode_image(
            enlarge(make_grid(drawn_maps, per_map=options.each), options.size), Path(options.out).suffix
        )
    with replace_file(options.out) as file:
        file.write(picture)
    print(f"Wrote {options.out}: {title}, {len(drawn_maps)} of {len(maps)} maps of {maps.shape[1]} x {maps.shape[2]}")


def check_figure_path(path: str) -> None:
    """Check that matplotlib can write a file with this extension, and that its folder exists.

    Raises:
        CaffejaxError: if matplotlib is not installed or does not support the extension, or the folder does not exist.
    """
    check_writable(path)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise CaffejaxError("pictures need matplotlib: pip install matplotlib") from error
    suffix, supported_formats = Path(path).suffix[1:].lower(), FigureCanvasBase.get_supported_filetypes()
    if suffix not in ("", *supported_formats):
        formats = ", ".join(f".{name}" for name in sorted(supported_formats))
        raise CaffejaxError(f"{path}: '.{suffix}' is not a picture format; choose one of {formats}")


def check_image_path(path: str) -> None:
    """Check that OpenCV can write a file with this extension, and that its folder exists.

    Raises:
        CaffejaxError: if OpenCV does not support the extension, or the folder does not exist.
    """
    import numpy as np

    from ..base.errors import locate_errors
    from ..tools.debugging.visualize import encode_image

    check_writable(path)
    with locate_errors(file=path):
        encode_image(np.zeros((1, 1), np.uint8), Path(path).suffix)
