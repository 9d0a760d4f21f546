"""Classify windows of images, as R-CNN does, and write windows and predictions to a .csv or .h5 file."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..base.human_readable import format_count
from . import flags, image_flags

if TYPE_CHECKING:
    import numpy as np

HELP = "classify windows of images"
EXAMPLE = (
    "caffejax detect windows.csv detections.csv --model_def=deploy.prototxt --pretrained_model=net.caffemodel "
    "--mean_file=mean.npy"
)

_COORDINATES = ("ymin", "xmin", "ymax", "xmax")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("input_file", help="a .csv of windows (filename,ymin,xmin,ymax,xmax), or a list of images")
    parser.add_argument("output_file", help="the .csv or .h5 file to write")
    image_flags.add_flags(parser)
    flags.add(
        parser,
        "crop_mode",
        help="the source of the windows (default: list if the input is a .csv, else selective_search)",
        choices=("list", "selective_search"),
    )
    flags.add(parser, "context_pad", help="width of the context around windows, in pixels", type=int, default=16)


def run(options: argparse.Namespace) -> None:
    """Classify the windows."""
    from ..base.errors import DataError
    from ..base.glog import start_logging
    from ..pycaffe.detector import Detector

    start_logging()
    image_flags.set_limits(options)
    if not options.output_file.endswith((".csv", ".h5", ".hdf5")):
        raise DataError(f"{options.output_file}: the name must end in .csv or .h5")
    image_flags.check_files(options)
    image_flags.set_default_mean(options)
    windows = _read_windows(options.input_file)
    image_flags.set_pycaffe_mode(options)
    settings = image_flags.get_preprocessing_settings(options)
    if settings["mean"] is not None and settings["mean"].ndim == 3:  # one value per channel, as in Caffe's script
        settings["mean"] = settings["mean"].mean(axis=(1, 2))
    with image_flags.convert_value_errors(options.model_def):
        detector = Detector(
            options.model_def,
            options.pretrained_model,
            strict_weights=options.strict_weights,
            **settings,
        )
        image_flags.set_default_channel_swap(detector, options)
        detector.configure_crop(options.context_pad)
    mode = options.crop_mode or ("list" if options.input_file.endswith(".csv") else "selective_search")
    if mode == "list":
        detections = detector.detect_windows(windows.items())
    else:
        detections = detector.detect_selective_search(windows)
    if not detections:
        raise DataError(f"{options.input_file} lists no windows")
    write = _write_csv if options.output_file.endswith(".csv") else _write_hdf5
    write(options.output_file, detections)
    counts = f"{format_count(len(detections), 'window')} of {format_count(len(windows), 'image')}"
    print(f"Classified {counts}; wrote {options.output_file}")


def _read_windows(path: str) -> dict[str, list[np.ndarray]]:
    """Return the windows (ymin, xmin, ymax, xmax) of each image; the lists are empty if `path` lists only images."""
    import numpy as np

    from ..base.errors import DataError, Problem

    try:
        with open(path, newline="") as file:
            if not path.endswith(".csv"):
                return {line.strip(): [] for line in file if line.strip()}
            reader = csv.DictReader(file)
            if missing := [c for c in ("filename", *_COORDINATES) if c not in (reader.fieldnames or ())]:
                raise DataError(Problem(f"the first line must name the columns {', '.join(missing)}", path, 1))
            windows: dict[str, list[np.ndarray]] = {}
            problems = []
            for row in reader:
                try:
                    window = np.array([round(float(row[c])) for c in _COORDINATES])
                    windows.setdefault(row["filename"], []).append(window)
                except (TypeError, ValueError, OverflowError):
                    values = ", ".join(str(row[c]) for c in _COORDINATES)
                    message = f"ymin, xmin, ymax and xmax must be finite numbers, but are {values}"
                    problems.append(Problem(message, path, reader.line_num))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(Problem(f"cannot be read: {getattr(error, 'strerror', None) or error}", path)) from error
    if problems:
        raise DataError(problems)
    return windows


def _write_csv(path: str, detections: list[dict[str, Any]]) -> None:
    from ..base.atomic_write import replace_file

    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    classes = range(detections[0]["prediction"].size)
    writer.writerow(["filename", *_COORDINATES, *(f"class{i}" for i in classes)])
    for detection in detections:
        writer.writerow(
            [detection["filename"], *detection["window"], *_format_numbers(detection["prediction"].ravel())]
        )
    with replace_file(path) as file:
        file.write(buffer.getvalue().encode())


def _format_numbers(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]


def _write_hdf5(path: str, detections: list[dict[str, Any]]) -> None:
    """Write an HDF5 file with the datasets filename (N,), window (N, 4) and prediction (N, ...)."""
    import h5py
    import numpy as np

    from ..base.atomic_write import replace_path

    with replace_path(path) as temporary_path, h5py.File(temporary_path, "w") as file:
        file["filename"] = [str(detection["filename"]) for detection in detections]
        file["window"] = np.stack([detection["window"] for detection in detections])
        file["prediction"] = np.stack([detection["prediction"] for detection in detections])
