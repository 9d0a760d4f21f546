"""Predict the classes of pictures, the boxes of objects, or a label for each pixel.

The net's outputs determine the kind of results. Scores that the net compares with labels by SoftmaxWithLoss are
converted to probabilities. Pictures are resized to the net's input. Mean, scale and channel order come from the flags,
otherwise from the transform_param of the net or of a train net in its folder, otherwise from a table of published nets;
if none of these has them, they are Caffe's defaults (no mean, scale 1, B G R). A log line names the source.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import CaffejaxError, DataError, GraphError, Problem
from ..base.glog import log, start_logging
from . import device_flags, flags, image_flags, net_flags

if TYPE_CHECKING:
    import numpy as np

    from ..core.program.net import Net
    from ..core.schema.caffe_pb2 import NetParameter
    from ..tools.prediction.preprocessing import Preprocessing
    from ..tools.prediction.results import ClassNames, Result

HELP = "classify pictures, detect objects in them or label their pixels"
EXAMPLE = "caffejax predict deploy.prototxt cat.jpg --weights=net.caffemodel --labels=synset_words.txt --out=result.png"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    net_flags.add_net_argument(parser)
    parser.add_argument("images", help="the pictures", metavar="IMAGE", nargs="+")
    flags.add(parser, "weights", "the net's weights: .caffemodel[.h5], .npz, ...", metavar="FILES")
    flags.add_switch(parser, "random_weights", "initialise the layers that the weights lack by their fillers")
    flags.add(
        parser,
        "labels",
        "the class names: a text file with one on each line, or SSD's labelmap.prototxt",
        metavar="FILE",
    )
    out_help = (
        "draw the results: a .png or .jpg file, or a folder, which is created; a name without extension is a folder"
    )
    flags.add(parser, "out", out_help, metavar="FILE|FOLDER")
    flags.add_json_flag(parser)
    flags.add(parser, "top", "the number of classes to print", type=flags.parse_positive, default=5, metavar="N")
    flags.add(
        parser, "threshold", "the minimum score of a box", type=image_flags.parse_finite_float, default=0.5, metavar="X"
    )
    flags.add(
        parser, "batch", "the number of pictures to run at once", type=flags.parse_positive, default=16, metavar="N"
    )
    flags.add(
        parser, "output", "the blobs to interpret, separated by commas (default: the net's outputs)", metavar="A,B"
    )
    group = flags.get_group(parser, "how pixels from 0 to 255 are converted to the net's input")
    flags.add(
        group, "mean", "the mean to subtract: a number for each channel, .binaryproto or .npy", metavar="B,G,R|FILE"
    )
    flags.add(group, "scale", "factor after the subtraction", type=image_flags.parse_finite_float, metavar="X")
    flags.add(group, "channels", "the net's channel order", choices=("BGR", "RGB"))
    flags.add(
        group,
        "size",
        "height and width of the input (default: the net's)",
        type=image_flags.parse_integers,
        metavar="H,W",
    )
    net_flags.add_strict_flag(parser)
    net_flags.add_state_flags(parser)
    device_flags.add_device_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Print and draw the results."""
    start_logging()
    import jax

    from ..base.paths import check_exist, find_file
    from ..core.graph.reshape import reshape_graph
    from ..core.schema import read_net
    from ..tools.prediction.preprocessing import find_preprocessing
    from ..tools.prediction.results import (
        check_outputs,
        draw_results,
        find_logits,
        find_main_outputs,
        find_names_problem,
        find_tiny_map,
        format_result,
        make_results,
        read_names,
    )

    if not (options.weights or options.random_weights):
        raise CaffejaxError(
            "name the net's weights with --weights=FILE; --random_weights predicts with the fillers' weights; "
            "`caffejax demo digits` trains a small net"
        )
    check_exist([options.model, *flags.split_commas(options.weights), *([options.labels] if options.labels else [])])
    output_paths = _find_output_paths(options)
    net_param = read_net(options.model)
    label_map = find_file(_remove_output_files(net_param), Path(options.model).parent)
    labels = options.labels or (str(label_map) if label_map.is_file() else None)
    class_names = read_names(labels) if labels else {}
    with device_flags.default_device_scope(options):
        full_net = _build_net(net_param, options)
        net = full_net.for_inference(flags.split_commas(options.output) or None)
        blob, shape = _find_image_input(net, options)
        # The shapes in the prototxt decide nothing: fully convolutional nets run at other sizes, too.
        graph = reshape_graph(net.graph, {blob: (net.graph.blobs[blob].shape[0], *shape)})
        if not options.output and (main_outputs := find_main_outputs(full_net.graph, graph)) != net.outputs:
            auxiliary_outputs = ", ".join(name for name in net.outputs if name not in main_outputs)
            log.info(
                "Output: %s; auxiliary outputs, with smaller loss weights: %s (see --output)",
                ", ".join(main_outputs),
                auxiliary_outputs,
            )
            net = full_net.for_inference(main_outputs)
            graph = reshape_graph(net.graph, {blob: graph.blobs[blob].shape})
        check_outputs(graph)
        if not options.size and (output := find_tiny_map(graph)) and max(shape[1:]) > 2:
            height, width = graph.blobs[output].shape[2:]
            message = (
                f"with the prototxt's input of {shape[1]} x {shape[2]} pixels, the output '{output}' has only "
                f"{height} x {width}: give the size of the input with --size=H,W"
            )
            raise GraphError(Problem(message, options.model))
        if labels and (problem := find_names_problem(graph, class_names)):
            log.warning("%s: %s", labels, problem)
        preprocessing = find_preprocessing(
            net_param,
            Path(options.model),
            shape,
            mean=options.mean,
            scale=options.scale,
            channels=options.channels,
        )
        log.info("Preprocessing: %d x %d, %s", *shape[1:], preprocessing)
        pictures = _read_pictures(options, gray=shape[0] == 1)
        score_names = find_logits(net_param)
        strict = options.strict_weights or not options.random_weights
        frozen_net = net.freeze(net_flags.load_variables(net, options.weights, strict))
        results: list[list[Result]] = []
        for start in range(0, len(pictures), options.batch):
            batch = pictures[start : start + options.batch]
            outputs = frozen_net({blob: preprocessing(batch, shape[1:])})
            outputs |= {name: jax.nn.softmax(outputs[name], 1) for name in score_names & outputs.keys()}
            sizes = [picture.shape[:2] for picture in batch]
            results += make_results(net.graph, outputs, sizes, top_k=options.top, threshold=options.threshold)
    for path, picture, image_results in zip(output_paths, pictures, results, strict=False):
        _write_picture(path, draw_results(picture, image_results, class_names, path))
    if options.json:
        flags.print_json(_make_json_report(options, preprocessing, shape[1:], results, class_names))
        return
    for image, image_results in zip(options.images, results, strict=True):
        for result in image_results:
            print(f"{image}{f' ({result.blob})' if len(image_results) > 1 else ''}")
            print("\n".join(f"  {line}" for line in format_result(result, class_names).splitlines()))
    for path in output_paths:
        log.info("Wrote %s", path)


def _remove_output_files(net: NetParameter) -> str:
    """Remove `save_output_param`, with which published deploy nets write files, from DetectionOutput layers.

    Return the path of the label map in `save_output_param`, or "" without one.
    """
    label_map_file = ""
    for layer in net.layer:
        label_map_file = label_map_file or layer.detection_output_param.save_output_param.label_map_file
        if layer.HasField("detection_output_param"):
            layer.detection_output_param.ClearField("save_output_param")
    return label_map_file


def _build_net(net: NetParameter, options: argparse.Namespace) -> Net:
    """Build the net. Data layers with missing sources become inputs of assumed sizes, which are logged.

    If several sizes are possible, the first that fits the weights is used.
    """
    from ..core.graph import make_net_state
    from ..core.program.net import Net
    from ..tools.model_check.check import compare_weights
    from ..tools.model_check.placeholder_sources import MissingSourceError, build_assumed_graphs, has_missing_source

    state = make_net_state(net, "TEST", options.level, net_flags.get_stages(options))
    path, config = Path(options.model), flags.make_config(options)
    if any(has_missing_source(layer, path.parent) for layer in net.layer):
        try:
            candidates = list(build_assumed_graphs(net, state, path, config))
        except MissingSourceError as error:
            raise CaffejaxError(Problem(str(error), options.model)) from error
        weights = [Path(name) for name in flags.split_commas(options.weights)]
        fitting_candidates = (c for c in candidates if not any(compare_weights(c.graph, w).mismatched for w in weights))
        candidate = candidates[0] if len(candidates) == 1 else next(fitting_candidates, candidates[0])
        for sentence in candidate.assumptions:
            log.warning("%s", sentence)
        net = candidate.net
    return Net(net, state=state, config=config, file=options.model)


def _find_output_paths(options: argparse.Namespace) -> list[Path]:
    """Return the output file of each picture, or an empty list if `--out` is absent.

    `--out` is a folder if it exists as a folder, has no extension, or ends with a slash.

    Raises:
        CaffejaxError: if a file cannot be written or is also an input, if several pictures would have the same output
            file, or if there are several pictures and `--out` is not a folder.
    """
    if options.out is None:
        return []
    out = Path(options.out)
    if not (out.is_dir() or not out.suffix or options.out.endswith(("/", os.sep))):
        if len(options.images) > 1:
            raise CaffejaxError(
                f"--out={out} must be a folder, because there are {len(options.images)} pictures: choose a name "
                f"without extension, or add a slash ({out}/)"
            )
        paths = [out]
    else:
        paths = [out / f"{Path(image).stem}.png" for image in options.images]
        if len(set(paths)) < len(paths):
            raise CaffejaxError(f"--out={out}: results of pictures with the same name would overwrite each other")
        existing_path = next(path for path in (out, *out.absolute().parents) if os.path.lexists(path))
        if not existing_path.is_dir():
            raise CaffejaxError(f"--out={out} must be a folder, but '{existing_path}' is a file; choose another path")
        if existing_path != out:
            return paths  # in a new folder
    for path in paths:
        image_flags.check_image_path(str(path))
        flags.check_output_path(str(path), options.model, options.labels, *options.images)
    return paths


def _find_image_input(net: Net, options: argparse.Namespace) -> tuple[str, tuple[int, int, int]]:
    """Return the name of the net's only input, and its shape (C, H, W).

    Raises:
        GraphError: if the net has several inputs, or its input is not an image.
    """
    shapes = {name: tuple(net.graph.blobs[name].shape) for name in net.input_names}
    if len(shapes) != 1 or any(len(shape) != 4 or shape[1] not in (1, 3) for shape in shapes.values()):
        inputs = ", ".join(f"'{name}' {shape}" for name, shape in shapes.items()) or "none"
        message = f"predict needs one input of images, (N, 1, H, W) or (N, 3, H, W), but the net's inputs are {inputs}"
        raise GraphError(Problem(message, options.model))
    ((name, (_, channels, height, width)),) = shapes.items()
    size = options.size or (height, width)
    if len(size) != 2 or min(size) < 1:
        raise CaffejaxError("--size must be a height and a width, separated by a comma, such as 300,300")
    if not options.size and 1 in size:
        message = f"the input '{name}' has {height} x {width} pixels, a placeholder: give its size with --size=H,W"
        raise GraphError(Problem(message, options.model))
    return name, (channels, *size)


def _read_pictures(options: argparse.Namespace, gray: bool) -> list[np.ndarray]:
    """Return the pictures as uint8, (H, W, 3) with channels B, G, R, or (H, W) if `gray`.

    Raises:
        DataError: if files cannot be read; the error lists all of them.
    """
    from ..base.errors import locate_errors
    from ..base.paths import read_bytes
    from ..core.data.image_decoding import COLOR, GRAY, decode_pixels

    pictures, problems = [], list[Problem]()
    for path in options.images:
        try:
            with locate_errors(file=path):
                pictures.append(
                    decode_pixels(
                        read_bytes(path, DataError), GRAY if gray else COLOR, options.max_image_pixels, str(path)
                    )
                )
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(problems)
    return pictures


def _write_picture(path: Path, picture: bytes) -> None:
    from ..base.atomic_write import make_write_problem, replace_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaffejaxError(make_write_problem(path.parent, error)) from error
    with replace_file(path) as file:
        file.write(picture)


def _make_json_report(
    options: argparse.Namespace,
    preprocessing: Preprocessing,
    size: tuple[int, int],
    results: list[list[Result]],
    class_names: ClassNames,
) -> dict[str, object]:
    mean = preprocessing.mean.mean(axis=(1, 2)).tolist()
    settings = {"size": size, "channels": preprocessing.channels, "mean": mean, "scale": preprocessing.scale}
    images = [
        {"image": image, "results": {result.blob: result.rows(class_names) for result in image_results}}
        for image, image_results in zip(options.images, results, strict=True)
    ]
    return {
        "net": options.model,
        "weights": options.weights,
        "preprocessing": {**settings, "from": preprocessing.source},
        "images": images,
    }
