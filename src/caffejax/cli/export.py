"""Export a net with its weights as StableHLO, as ONNX, or as the source of a flax module.

The file extension of --to selects the format: .stablehlo or .onnx. With --to=flax, the source is written to the
folder --out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.errors import CaffejaxError, Problem
from ..base.glog import log, start_logging
from ..base.human_readable import format_count
from . import flags, image_flags, net_flags

if TYPE_CHECKING:
    from ..core.program.net import Net
    from ..export import InferenceModel, Uint8Preprocessing

T = TypeVar("T")
Shapes = Mapping[str, Any]  # by blob name; the values have `shape` and `dtype`

HELP = "export a net as StableHLO, ONNX or flax source"
EXAMPLE = "caffejax export deploy.prototxt --weights=net.caffemodel --to=net.stablehlo"

_ANY = "any"
_CLASSIFY, _TRANSFORM_PARAM = "classify", "transform_param"
_CLASSIFY_FLAGS = "mean_file", "raw_scale", "input_scale"  # flags with a counterpart in transform_param
_FORMATS_BY_EXTENSION = {".stablehlo": "stablehlo", ".onnx": "onnx", "flax": "flax"}
_FORMATS_BY_FLAG = {  # the formats to which a flag applies
    "platforms": ("stablehlo",),
    "batch": ("stablehlo", "onnx"),
    "batch_axis": ("stablehlo", "onnx"),
    "opset": ("onnx",),
    "pad_rows": ("onnx",),
    "out": ("flax",),
    "preprocess": ("stablehlo", "onnx"),
    "weights_as": ("flax",),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and flags."""
    net_flags.add_net_argument(parser)
    flags.add(parser, "weights", "the weights; several files are loaded in the given order", metavar="W[,W2]")
    flags.add_switch(parser, "random_weights", "initialise layers without weights by their fillers")
    flags.add(parser, "to", "the file to write, *.stablehlo or *.onnx; or flax", required=True, metavar="FILE|flax")
    flags.add(parser, "out", "with --to=flax: the folder to write", metavar="FOLDER")
    flags.add(parser, "outputs", "the output blobs (default: the net's predictions)", metavar="A,B")
    batch_help = "the batch size, or any (default: any if the layers allow it, else the net's batch size)"
    flags.add(parser, "batch", batch_help, type=_parse_batch, metavar="any|N")
    flags.add(parser, "batch_axis", "the batch axis of the inputs (default: 0)", type=flags.parse_count, metavar="N")
    flags.add(parser, "platforms", "StableHLO: the platforms it runs on (default: cpu,cuda,tpu)", metavar="A,B")
    flags.add(parser, "opset", "ONNX: the version of the operator set", type=flags.parse_positive, metavar="N")
    pad_rows_help = "ONNX: pad detections with rows of -1 to their maximum number"
    flags.add_switch(parser, "pad_rows", pad_rows_help)
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
    from ..export import InferenceModel, find_zero_weights, load_export_weights

    net = net_flags.build_net(options)
    inference_net = net.for_inference(flags.split_commas(options.outputs) if options.outputs else None)
    _check_batch_axis(inference_net, options.batch_axis or 0)
    if isinstance(options.batch, int):
        inference_net = inference_net.with_batch(options.batch, options.batch_axis or 0)
    weights_files = flags.split_commas(options.weights)
    inference_model = InferenceModel(
        inference_net, load_export_weights(net, inference_net, weights_files, random_weights=options.random_weights)
    )
    for warning in find_zero_weights(inference_model):
        log.warning("%s", warning)
    inputs, outputs = _WRITERS[export_format](net, inference_model, options)
    log.info(
        "Exported %s: %s to %s",
        format_count(len(inference_model.layers), "layer"),
        _format_shapes(inputs),
        _format_shapes(outputs),
    )
    for note in _describe_omissions(net, inference_net.outputs, options):
        log.info("Not exported: %s", note)
    log.info("Wrote %s", options.out if export_format == "flax" else options.to)


def _describe_omissions(net: Net, outputs: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence for each step between pixels and probabilities that the exported function does not contain."""
    for layer in net.graph.layers:
        transform = layer.definition.layer.transform_param
        settings = [f"scale {transform.scale:g}"] if transform.HasField("scale") else []
        if transform.mean_value or transform.mean_file:
            settings.append(f"mean {transform.mean_file or ', '.join(f'{mean:g}' for mean in transform.mean_value)}")
        if settings and options.preprocess is None:
            flag = "" if options.to == "flax" else f", or use --preprocess={_TRANSFORM_PARAM}"
            yield f"transform_param of layer '{layer.name}' ({'; '.join(settings)}): apply it to the inputs{flag}"
        scores = net.graph.split_roots.get(layer.bottoms[0], layer.bottoms[0]) if layer.bottoms else ""
        if layer.type.traits.takes_logits and scores in outputs:
            yield f"the softmax of layer '{layer.name}': '{scores}' contains scores, not probabilities"


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
        if export_format and export_format not in formats and getattr(options, name) not in (None, False):
            hint = "; preprocess images before calling the module" if name == "preprocess" else ""
            problems.append(f"--{name} works only with {' and '.join(formats)}{hint}")
    if export_format == "flax" and not options.out:
        problems.append("--to=flax needs --out=FOLDER")
    problems += find_preprocessing_problems(options)
    if problems:
        raise CaffejaxError(problems)
    return export_format


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


def _write_stablehlo(net: Net, inference_model: InferenceModel, options: argparse.Namespace) -> tuple[Shapes, Shapes]:
    import jax

    from ..export import PLATFORMS, write_stablehlo

    settings: dict[str, Any] = {
        "platforms": flags.split_commas(options.platforms) or PLATFORMS,
        "batch_axis": options.batch_axis or 0,
        "preprocessing": make_preprocessing(net, inference_model, options),
    }
    exported = _export_with_batch(
        lambda batch: write_stablehlo(inference_model, options.to, symbolic_batch=batch, **settings), options
    )
    (inputs,), _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
    return inputs, jax.tree.unflatten(exported.out_tree, exported.out_avals)


def _write_onnx(net: Net, inference_model: InferenceModel, options: argparse.Namespace) -> tuple[Shapes, Shapes]:
    from ..export.stablehlo import require_package

    require_package("onnx", "writes models")
    from ..export.onnx import DEFAULT_OPSET, get_shapes, write_onnx

    settings: dict[str, Any] = {
        "opset": options.opset or DEFAULT_OPSET,
        "pad_rows": bool(options.pad_rows),
        "batch_axis": options.batch_axis or 0,
        "preprocessing": make_preprocessing(net, inference_model, options),
    }
    onnx_model = _export_with_batch(
        lambda batch: write_onnx(inference_model, options.to, symbolic_batch=batch, **settings), options
    )
    return get_shapes(onnx_model.graph.input), get_shapes(onnx_model.graph.output)


def _write_flax(net: Net, inference_model: InferenceModel, options: argparse.Namespace) -> tuple[Shapes, Shapes]:
    from ..export.flax import write_flax

    write_flax(inference_model, options.out, weight_format=options.weights_as or "safetensors")
    blobs = inference_model.net.graph.blobs
    return _to_channels_last(inference_model.inputs), _to_channels_last(
        {name: blobs[name] for name in inference_model.outputs}
    )


def _to_channels_last(blobs: Shapes) -> Shapes:
    """Return the shapes and dtypes that the blobs have in a flax module: the channels become the last axis."""
    from ..export.flax import channels_last_shape

    return {
        name: SimpleNamespace(shape=channels_last_shape(blob.shape), dtype=blob.dtype) for name, blob in blobs.items()
    }


_WRITERS = {"stablehlo": _write_stablehlo, "onnx": _write_onnx, "flax": _write_flax}


def _export_with_batch(write: Callable[[bool], T], options: argparse.Namespace) -> T:
    """Return the result of `write(True)`, which exports the net with a symbolic batch size.

    If `--batch` is a number, return the result of `write(False)` instead, which exports with a fixed batch size. If
    `--batch` is absent and a layer does not support a symbolic batch size, do the same and log a warning.
    """
    from ..export import BatchError

    if isinstance(options.batch, int):
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
