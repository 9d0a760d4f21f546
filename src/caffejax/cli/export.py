"""Export a net with its weights as StableHLO, as ONNX, or as the source of a flax module.

The file extension of --to selects the format: .stablehlo or .onnx. With --to=flax, the source is written to the
folder --out. --for writes an ONNX model in the form that an engine takes, runs it there if the engine is installed, and
compares its outputs with the net's.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.errors import CaffejaxError, Problem
from ..base.glog import log, start_logging
from ..base.human_readable import format_count
from . import flags, image_flags, net_flags

if TYPE_CHECKING:
    import numpy as np

    from ..core.program.net import Net
    from ..export import InferenceModel, Uint8Preprocessing
    from ..export.engines import Engine

T = TypeVar("T")
Shapes = Mapping[str, Any]  # by blob name; the values have `shape` and `dtype`

HELP = "export a net as StableHLO, ONNX or flax source"
EXAMPLE = "caffejax export deploy.prototxt --weights=net.caffemodel --to=net.onnx --for=opencv5"

_ANY = "any"
_CLASSIFY, _TRANSFORM_PARAM = "classify", "transform_param"
_CLASSIFY_FLAGS = "mean_file", "raw_scale", "input_scale"  # flags with a counterpart in transform_param
_FORMATS_BY_EXTENSION = {".stablehlo": "stablehlo", ".onnx": "onnx", "flax": "flax"}
_FORMATS_BY_FLAG = {  # the formats to which a flag applies
    "platforms": ("stablehlo",),
    "batch": ("stablehlo", "onnx"),
    "batch_axis": ("stablehlo", "onnx"),
    "opset": ("onnx",),
    "for": ("onnx",),
    "pad_rows": ("onnx",),
    "out": ("flax",),
    "preprocess": ("stablehlo", "onnx"),
    "weights_as": ("flax",),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and flags."""
    from ..export.engines import ENGINES

    net_flags.add_net_argument(parser)
    flags.add(parser, "weights", "the weights; several files are loaded in the given order", metavar="W[,W2]")
    flags.add_switch(parser, "random_weights", "initialise layers without weights by their fillers")
    flags.add(parser, "to", "the file to write, *.stablehlo or *.onnx; or flax", required=True, metavar="FILE|flax")
    flags.add(parser, "out", "with --to=flax: the folder to write", metavar="FOLDER")
    flags.add(parser, "outputs", "the output blobs (default: the net's predictions)", metavar="A,B")
    for_help = (
        "ONNX: write what this engine takes, as the table in docs/exporting_onnx.md says; other flags change the form, "
        "or are refused. The engine then runs the file, see --check"
    )
    flags.add(parser, "for", for_help, choices=tuple(ENGINES))
    check_help = (
        "run the file on drawn inputs, and compare its outputs with the net's: the exit code is 1 if one differs by "
        "more than 0.001 of its largest number (on with --for; --nocheck only writes the file)"
    )
    flags.add_switch(parser, "check", check_help, default=None)
    flags.add(parser, "inputs", "inputs for --check: .npz with an array for each input, or .npy", metavar="FILE")
    flags.add(parser, "report", "an HTML page to write with the result of --check", metavar="FILE")
    size_help = "height and width of the image input (default: the net's)"
    flags.add(parser, "size", size_help, type=image_flags.parse_integers, metavar="H,W")
    batch_help = "the batch size, or any (default: any if the layers allow it, else the net's batch size)"
    flags.add(parser, "batch", batch_help, type=_parse_batch, metavar="any|N")
    flags.add(parser, "batch_axis", "the batch axis of the inputs (default: 0)", type=flags.parse_count, metavar="N")
    flags.add(parser, "platforms", "StableHLO: the platforms it runs on (default: cpu,cuda,tpu)", metavar="A,B")
    flags.add(parser, "opset", "ONNX: the version of the operator set", type=flags.parse_positive, metavar="N")
    pad_rows_help = "ONNX: pad detections with rows of -1 to their maximum number (on for opencv5 and tensorrt)"
    flags.add_switch(parser, "pad_rows", pad_rows_help, default=None)
    weights_as_help = "flax: the format of the weights (default: safetensors)"
    flags.add(parser, "weights_as", weights_as_help, choices=("safetensors", "orbax"))
    phase_help = "the phase whose layers are exported; they always compute as in phase TEST"
    flags.add(parser, "phase", phase_help, choices=("TRAIN", "TEST"), default="TEST")
    net_flags.add_state_flags(parser)
    add_preprocessing_flags(parser)


def run(options: argparse.Namespace) -> None:
    """Export the net."""
    start_logging()
    export_format = _select_format(options)
    _check_target(export_format, options)
    weights_files = flags.split_commas(options.weights)
    if options.report:
        flags.check_output_path(options.report, options.model, options.inputs, options.to, *weights_files)
    from ..export import InferenceModel, find_zero_weights, load_export_weights

    net = net_flags.build_net(options)
    inference_net = net.for_inference(flags.split_commas(options.outputs) if options.outputs else None)
    inference_net = _resize_input(inference_net, options)
    _check_batch_axis(inference_net, options.batch_axis or 0)
    if isinstance(options.batch, int):
        inference_net = inference_net.with_batch(options.batch, options.batch_axis or 0)
    inference_model = InferenceModel(
        inference_net, load_export_weights(net, inference_net, weights_files, random_weights=options.random_weights)
    )
    for warning in find_zero_weights(inference_model):
        log.warning("%s", warning)
    preprocessing = make_preprocessing(net, inference_model, options)
    inputs, outputs = _WRITERS[export_format](inference_model, options, preprocessing)
    log.info(
        "Exported %s: %s to %s",
        format_count(len(inference_model.layers), "layer"),
        _format_shapes(inputs),
        _format_shapes(outputs),
    )
    for note in _describe_omissions(net, inference_model, options):
        log.info("Not exported: %s", note)
    log.info("Wrote %s", options.out if export_format == "flax" else options.to)
    if _is_checked(options):
        _check_file(net, inference_model, preprocessing, inputs, export_format, options)


def _resize_input(net: Net, options: argparse.Namespace) -> Net:
    """Return the net for images of the size `--size`. Without it, warn of an input of 1 x 1 pixels.

    Raises:
        CaffejaxError: if the net does not have exactly one input with four axes, or cannot take the size.
    """
    from ..core.graph.reshape import reshape_graph

    shapes = {name: net.graph.blobs[name].shape for name in net.input_names if net.graph.blobs[name].ndim == 4}
    if options.size is None:
        for name, shape in shapes.items():
            if shape[2:] == (1, 1) and shape[1] in (1, 3):
                log.warning("input '%s' has 1 x 1 pixels, a placeholder: give its size with --size=H,W", name)
        return net
    if len(shapes) != 1:
        names = ", ".join(f"'{name}' {shape}" for name, shape in shapes.items()) or "none"
        raise CaffejaxError(f"--size needs exactly one input with four axes, but the net has {names}")
    ((name, shape),) = shapes.items()
    return net.with_graph(reshape_graph(net.graph, {name: (*shape[:2], *options.size)}), reshaped=True)


def _describe_omissions(net: Net, inference_model: InferenceModel, options: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence for each step between pixels and probabilities that the exported function does not contain."""
    outputs = inference_model.outputs
    for layer in net.graph.layers:
        transform = layer.definition.layer.transform_param
        settings = [f"scale {transform.scale:g}"] if transform.HasField("scale") else []
        if transform.mean_value or transform.mean_file:
            settings.append(f"mean {transform.mean_file or ', '.join(f'{mean:g}' for mean in transform.mean_value)}")
        if settings and options.preprocess is None:
            flag = f", or use --preprocess={_TRANSFORM_PARAM}" if _takes_images(net, inference_model, options) else ""
            yield f"transform_param of layer '{layer.name}' ({'; '.join(settings)}): apply it to the inputs{flag}"
        scores = net.graph.split_roots.get(layer.bottoms[0], layer.bottoms[0]) if layer.bottoms else ""
        if layer.type.traits.takes_logits and scores in outputs:
            yield f"the softmax of layer '{layer.name}': '{scores}' contains scores, not probabilities"


def _takes_images(net: Net, inference_model: InferenceModel, options: argparse.Namespace) -> bool:
    """Return whether `--preprocess=transform_param` is possible."""
    from ..export import read_data_layer_preprocessing

    try:
        read_data_layer_preprocessing(net, inference_model)
    except CaffejaxError:
        return False
    return bool(options.to != "flax")


def _select_format(options: argparse.Namespace) -> str:
    """Return the format that `--to` selects: "stablehlo", "onnx" or "flax".

    Raises:
        CaffejaxError: if flags contradict each other; the error lists all of them.
    """
    export_format = _FORMATS_BY_EXTENSION.get(
        options.to if options.to == "flax" else os.path.splitext(options.to)[1], ""
    )
    problems = (
        [] if export_format else [f"--to={options.to}: give a file that ends in .stablehlo or .onnx, or the word flax"]
    )
    for name, formats in _FORMATS_BY_FLAG.items():
        if export_format and export_format not in formats and getattr(options, name) is not None:
            hint = "; preprocess images before calling the module" if name == "preprocess" else ""
            problems.append(f"--{name} works only with {' and '.join(formats)}{hint}")
    if export_format == "flax" and not options.out:
        problems.append("--to=flax needs --out=FOLDER")
    problems += find_preprocessing_problems(options)
    problems += _find_engine_problems(options)
    if problems:
        raise CaffejaxError(problems)
    return export_format


def _find_engine_problems(options: argparse.Namespace) -> Iterator[str]:
    """Yield a message for each flag that contradicts `--for`, `--check` or `--size`."""
    if options.size is not None and (len(options.size) != 2 or min(options.size) < 1):
        yield "--size must be a height and a width, separated by a comma, such as 300,300"
    engine, flag = _get_engine(options), f"--for={getattr(options, 'for')}"
    if engine.fixed_batch and options.batch == _ANY:
        yield f"--batch=any contradicts {flag}: {engine.title} takes a fixed batch size; give --batch=N"
    if engine.pad_rows and options.pad_rows is False:
        yield f"--nopad_rows contradicts {flag}: {engine.title} takes no shapes that depend on data; leave it out"
    for name in ("inputs", "report"):
        if getattr(options, name) is not None and not _is_checked(options):
            yield f"--{name} works only with --check or --for"


def _is_checked(options: argparse.Namespace) -> bool:
    """Return whether the written file is run."""
    return bool(getattr(options, "for") is not None if options.check is None else options.check)


def _check_target(export_format: str, options: argparse.Namespace) -> None:
    """Raise `CaffejaxError` if the file or folder of the export cannot be written."""
    from ..base.atomic_write import check_writable
    from ..export.flax import check_folder

    if export_format == "flax":
        check_folder(options.out)
    else:
        check_writable(options.to)


def _check_batch_axis(net: Net, axis: int) -> None:
    """Raise `CaffejaxError` if an input does not have this axis; the message names each such input."""
    shapes = {name: net.graph.blobs[name].shape for name in net.input_names}
    short_inputs = [f"{name} {shape}" for name, shape in shapes.items() if len(shape) <= axis]
    if short_inputs:
        raise CaffejaxError(
            f"--batch_axis={axis}: axes are counted from 0, and there is no such axis in {', '.join(short_inputs)}"
        )


def _write_stablehlo(
    inference_model: InferenceModel, options: argparse.Namespace, preprocessing: Uint8Preprocessing | None
) -> tuple[Shapes, Shapes]:
    import jax

    from ..export import PLATFORMS, write_stablehlo

    settings: dict[str, Any] = {
        "platforms": flags.split_commas(options.platforms) or PLATFORMS,
        "batch_axis": options.batch_axis or 0,
        "preprocessing": preprocessing,
    }
    exported = _export_with_batch(
        lambda batch: write_stablehlo(inference_model, options.to, symbolic_batch=batch, **settings), options
    )
    (inputs,), _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    return inputs, jax.tree.unflatten(exported.out_tree, exported.out_avals)


def _write_onnx(
    inference_model: InferenceModel, options: argparse.Namespace, preprocessing: Uint8Preprocessing | None
) -> tuple[Shapes, Shapes]:
    from ..export.stablehlo import require_package

    require_package("onnx", "writes models")
    from ..export.onnx import get_shapes, write_onnx

    engine = _get_engine(options)
    settings: dict[str, Any] = {
        "opset": options.opset or engine.opset,
        "pad_rows": _pads_rows(options),
        "engine": engine,
        "batch_axis": options.batch_axis or 0,
        "preprocessing": preprocessing,
    }
    onnx_model = _export_with_batch(
        lambda batch: write_onnx(inference_model, options.to, symbolic_batch=batch, **settings), options
    )
    return get_shapes(onnx_model.graph.input), get_shapes(onnx_model.graph.output)


def _write_flax(
    inference_model: InferenceModel, options: argparse.Namespace, preprocessing: Uint8Preprocessing | None
) -> tuple[Shapes, Shapes]:
    from ..export.flax import write_flax

    write_flax(inference_model, options.out, weight_format=options.weights_as or "safetensors")
    blobs = inference_model.net.graph.blobs
    return _to_channels_last(inference_model.inputs), _to_channels_last(
        {name: blobs[name] for name in inference_model.outputs}
    )


def _get_engine(options: argparse.Namespace) -> Engine:
    from ..export.engines import ANY_ENGINE, ENGINES

    return ENGINES.get(getattr(options, "for"), ANY_ENGINE)


def _pads_rows(options: argparse.Namespace) -> bool:
    return bool(_get_engine(options).pad_rows if options.pad_rows is None else options.pad_rows)


def _check_file(
    net: Net,
    inference_model: InferenceModel,
    preprocessing: Uint8Preprocessing | None,
    input_shapes: Shapes,
    export_format: str,
    options: argparse.Namespace,
) -> None:
    """Run the written file, and log for each output the difference from the net's.

    Raises:
        CaffejaxError: if an output differs beyond the tolerance, or the engine refuses the file, or is missing although
            `--check` was given.
    """
    from ..export import proof
    from ..export.engines import ENGINES

    engine = ENGINES[getattr(options, "for") or "onnxruntime"]
    package = {"onnx": engine.package, "flax": "flax"}.get(export_format, "jax")
    title = {"onnx": engine.title, "flax": "flax"}.get(export_format, "JAX")
    problem = (
        "checked by onnx's checker and the list of operators of TensorRT 10.0"
        if package is None
        else proof.find_package_problem(package)
    )
    if problem is not None:
        if options.check and package is not None:
            raise CaffejaxError(f"--check: not run in {title}: {problem}")
        log.warning(
            "not run in %s: %s%s", title, problem, f"; {options.report} is not written" if options.report else ""
        )
        return
    inputs = proof.draw_inputs(inference_model, _find_normalizations(net, inference_model, options), preprocessing)
    if options.inputs:
        inputs = proof.read_inputs(options.inputs, inputs)
    pads = export_format != "onnx" or _pads_rows(options)
    expected = proof.compute_expected(inference_model, inputs, preprocessing, pad_rows=pads)
    if export_format == "onnx":
        outputs = proof.run_in_engine(str(package), options.to, inputs)
    elif export_format == "stablehlo":
        outputs = proof.run_stablehlo(options.to, inputs)
    else:
        outputs = proof.run_flax(options.out, inputs, inference_model.outputs)
    differences = proof.compare_outputs(outputs, expected, proof.find_detections(inference_model))
    path = options.out if export_format == "flax" else options.to
    title = f"{title} {proof.get_version(str(package))}"
    for difference in differences:
        log.info("Checked in %s: largest difference of %s", title, difference)
    if options.report:
        from ..export.proof_report import write_report

        write_report(options.report, path, title, differences, inference_model, inputs, outputs, expected)
        log.info("Wrote %s", options.report)
    proof.require_small_differences(differences, path)


def _find_normalizations(
    net: Net, inference_model: InferenceModel, options: argparse.Namespace
) -> dict[str, tuple[np.ndarray, float]]:
    """Return the mean and the scale of the net's image input, if a transform_param or a published net names them."""
    from pathlib import Path

    from ..base.glog import collect_warnings
    from ..core.schema import read_net
    from ..tools.prediction.preprocessing import find_preprocessing

    images = {name: blob.shape for name, blob in inference_model.inputs.items() if blob.ndim == 4}
    if len(images) != 1:
        return {}
    ((name, (_, channels, height, width)),) = images.items()
    try:
        with collect_warnings():
            found = find_preprocessing(read_net(options.model), Path(options.model), (channels, height, width))
    except CaffejaxError:  # such as a mean file that is missing
        return {}
    return {} if found.source.startswith("Caffe's defaults") else {name: (found.mean, found.scale)}


def _to_channels_last(blobs: Shapes) -> Shapes:
    """Return the shapes and dtypes that the blobs have in a flax module: the channels become the last axis."""
    from ..export.flax import channels_last_shape

    return {
        name: SimpleNamespace(shape=channels_last_shape(blob.shape), dtype=blob.dtype) for name, blob in blobs.items()
    }


_WRITERS = {"stablehlo": _write_stablehlo, "onnx": _write_onnx, "flax": _write_flax}


def _export_with_batch(write: Callable[[bool], T], options: argparse.Namespace) -> T:
    """Return the result of `write(True)`, which exports the net with a symbolic batch size.

    If `--batch` is a number, or the engine takes a fixed batch size, return the result of `write(False)` instead, which
    exports with a fixed batch size. If `--batch` is absent and a layer does not support a symbolic batch size, do the
    same and log a warning.
    """
    from ..export import BatchError

    if isinstance(options.batch, int) or _get_engine(options).fixed_batch:
        return write(False)
    try:
        return write(True)
    except BatchError as error:
        problems = list(_add_batch_hint(error))
        if options.batch == _ANY:
            raise BatchError(problems) from error
        for problem in problems:
            log.warning("%s", problem)
        return write(False)


def _add_batch_hint(error: CaffejaxError) -> Iterator[Problem]:
    from dataclasses import replace

    for p in error.problems:
        yield replace(p, message=f"does not support a symbolic batch size: {p.message}; --batch=N sets a fixed size")


def _parse_batch(text: str) -> Any:
    return text if text == _ANY else flags.parse_positive(text)


def _format_shapes(shapes: Shapes) -> str:
    return ", ".join(f"{name} {blob.dtype}[{','.join(map(str, blob.shape))}]" for name, blob in shapes.items())


def add_preprocessing_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--preprocess` and the flags that modify it."""
    preprocess_help = (
        "take uint8 RGB images (N, H, W, C) as inputs and preprocess them: classify does it like `caffejax classify`, "
        "with the flags below; transform_param does it like the net's data layer"
    )
    flags.add(parser, "preprocess", preprocess_help, choices=(_CLASSIFY, _TRANSFORM_PARAM))
    dims_help = "height and width of these images, whose centre is cropped (default: the input's)"
    flags.add(parser, "images_dim", help=dims_help, type=image_flags.parse_integers, metavar="H,W")
    image_flags.add_preprocessing_flags(parser)


def find_preprocessing_problems(options: argparse.Namespace) -> Iterator[str]:
    """Yield a message for each preprocessing flag that contradicts another flag."""
    flag_names = [
        name for name in ("images_dim", "channel_swap", *_CLASSIFY_FLAGS) if getattr(options, name) is not None
    ]
    for name in flag_names:
        if options.preprocess is None:
            yield f"--{name} needs --preprocess={_CLASSIFY}"
        elif options.preprocess == _TRANSFORM_PARAM and name in _CLASSIFY_FLAGS:
            yield f"--{name} works only with --preprocess={_CLASSIFY}: transform_param has its own setting"
    if options.images_dim is not None and (len(options.images_dim) != 2 or min(options.images_dim) < 1):
        yield "--images_dim must be a height and a width, separated by a comma, such as 256,256"


def make_preprocessing(
    net: Net, inference_model: InferenceModel, options: argparse.Namespace
) -> Uint8Preprocessing | None:
    """Return the preprocessing that `--preprocess` selects, or None if the flag is absent.

    Args:
        net: the full net.
        inference_model: the exported part of the net.
        options: the command's flags.
    """
    from ..export import find_image_input, read_data_layer_preprocessing

    if options.preprocess is None:
        return None
    if options.preprocess == _TRANSFORM_PARAM:
        return read_data_layer_preprocessing(net, inference_model, options.images_dim, options.channel_swap)
    with image_flags.convert_value_errors(options.model):
        return _make_classify_preprocessing(find_image_input(inference_model), inference_model, options)


def _make_classify_preprocessing(
    input_name: str, inference_model: InferenceModel, options: argparse.Namespace
) -> Uint8Preprocessing:
    import numpy as np

    from ..export import Uint8Preprocessing, caffe_channel_order
    from ..pycaffe.io import Transformer

    settings, (_, channels, h, w) = (
        image_flags.get_preprocessing_settings(options),
        inference_model.inputs[input_name].shape,
    )
    channel_order = settings["channel_swap"] or caffe_channel_order(channels)
    transformer = Transformer({input_name: inference_model.inputs[input_name].shape})
    transformer.set_channel_swap(input_name, channel_order)
    transformer.set_mean(input_name, np.zeros(channels) if settings["mean"] is None else settings["mean"])
    height, width = options.images_dim or (h, w)
    raw_scale, scale = settings["raw_scale"], settings["input_scale"]
    factor = 1.0 if raw_scale is None else raw_scale / 255
    mean = transformer.mean[input_name]
    return Uint8Preprocessing(
        input_name, (height, width, channels), (h, w), channel_order, factor, mean, 1.0 if scale is None else scale
    )
