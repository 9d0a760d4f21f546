"""Classify images and write the class probabilities, one row per image, to a .npy file."""

from __future__ import annotations

import argparse
import os

from ..base.human_readable import format_count
from . import flags, image_flags

HELP = "classify images"
EXAMPLE = (
    "caffejax classify cat.jpg probabilities.npy --model_def=deploy.prototxt "
    "--pretrained_model=net.caffemodel --mean_file=mean.npy"
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("input_file", help="an image, a folder of images, or a .npy file of images (N, H, W, K)")
    parser.add_argument("output_file", help="the .npy file to write")
    image_flags.add_flags(parser)
    flags.add(parser, "center_only", help="use the centre crop instead of ten crops per image", action="store_true")
    flags.add(
        parser,
        "images_dim",
        help="height and width to resize to before cropping",
        type=image_flags.parse_integers,
        default=(256, 256),
    )
    flags.add(parser, "ext", help="the file extension of the images in a folder", default="jpg")


def run(options: argparse.Namespace) -> None:
    """Classify the images."""
    from pathlib import Path

    import numpy as np

    from .. import pycaffe as caffe
    from ..base.atomic_write import replace_file
    from ..base.errors import DataError, Problem
    from ..base.glog import start_logging
    from ..pycaffe.classifier import Classifier
    from ..tools.prediction.preprocessing import read_npy

    start_logging()
    image_flags.check_files(options)
    image_flags.set_default_mean(options)
    image_flags.set_limits(options)
    input_path = Path(options.input_file)
    image_paths: list[Path] = []
    if input_path.suffix == ".npy":
        images = read_npy(input_path)
        if images.ndim != 4 or not len(images):
            message = f"has shape {images.shape}, so it is not an array of images (N, H, W, K)"
            raise DataError(Problem(message, str(input_path)))
        inputs = list(images)
    else:
        image_paths = sorted(input_path.glob(f"*.{options.ext}")) if os.path.isdir(input_path) else [input_path]
        if not image_paths:
            raise DataError(
                Problem(f"contains no *.{options.ext} images; --ext sets their file extension", str(input_path))
            )
    image_flags.set_pycaffe_mode(options)
    settings = image_flags.get_preprocessing_settings(options)
    with image_flags.convert_value_errors(options.model_def):
        classifier = Classifier(
            options.model_def,
            options.pretrained_model,
            image_dims=options.images_dim,
            strict_weights=options.strict_weights,
            **settings,
        )
        image_flags.set_default_channel_swap(classifier, options)
        if image_paths:
            is_gray = classifier.blobs[classifier.inputs[0]].data.shape[1] == 1
            inputs = [caffe.io.load_image(file, color=not is_gray) for file in image_paths]
        predictions = classifier.predict(inputs, not options.center_only)
    with replace_file(options.output_file) as file:
        np.save(file, predictions)
    print(f"Classified {format_count(len(inputs), 'image')}; wrote {options.output_file}")
