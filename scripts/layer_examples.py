"""Examples of each layer type for the pages of layers: a prototxt that was built, the shapes that result, and a call.

They are the layers that the files of tests of types ask about. Types that need a file to read have theirs here.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from google.protobuf import text_format

from caffejax.core.graph import Graph, Layer
from caffejax.core.layers import LayerType, type_of
from caffejax.core.program.layer_function import name_blobs, parse_layer
from caffejax.core.schema import read_net
from caffejax.core.schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from caffejax.tools.model_check.placeholder_sources import build_assumed_graphs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from layer_suite import list_cases

_WIDTH = 110
_ROWS = 2
_IMAGES = 'top: "data" top: "label" transform_param { crop_size: 224 mirror: true mean_value: 104 }'
_RESIZED = 'top: "data" top: "label" transform_param { resize_param { resize_mode: WARP height: 300 width: 300 } }'
_DATA = 'source: "train_lmdb" batch_size: 32 backend: LMDB'
_LIST = 'source: "train.txt" batch_size: 32 shuffle: true'

# of types that read files or are fed, and of those whose case is not for readers
_EXTRA_EXAMPLES = f"""
layer {{ name: "data" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: 32 dim: 3 dim: 224 dim: 224 }} shape {{ dim: 32 }} }} }}
layer {{ name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param {{ batch_size: 32 channels: 3 height: 224 width: 224 }} }}
layer {{ name: "data" type: "Data" {_IMAGES} data_param {{ {_DATA} }} }}
layer {{ name: "data" type: "ImageData" {_IMAGES}
  image_data_param {{ {_LIST} root_folder: "images/" new_height: 256 new_width: 256 }} }}
layer {{ name: "data" type: "Data" {_IMAGES} data_param {{ {_DATA} shuffle: true }} }}
layer {{ name: "data" type: "ImageData" {_IMAGES} image_data_param {{ {_LIST} short_side: 256 }} }}
layer {{ name: "data" type: "Data" {_RESIZED} data_param {{ {_DATA} }} }}
layer {{ name: "data" type: "ImageData" {_RESIZED} image_data_param {{ {_LIST} }} }}
layer {{ name: "data" type: "ImageGtData" top: "data" top: "label" transform_param {{ mirror: true mean_value: 104 }}
  image_gt_data_param {{ {_LIST} resize_height: 480 resize_width: 640 downsample_rate: 8 field_h: 40 field_w: 40 }} }}
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ {_LIST} }} }}
layer {{ name: "data" type: "WindowData" {_IMAGES}
  window_data_param {{ source: "windows.txt" batch_size: 32 fg_threshold: 0.5 bg_threshold: 0.5 fg_fraction: 0.25
    context_pad: 16 crop_mode: "warp" }} }}
layer {{ name: "data" type: "AnnotatedData" top: "data" top: "label"
  transform_param {{ mean_value: 104 resize_param {{ resize_mode: WARP height: 300 width: 300 }} }}
  data_param {{ {_DATA} }} annotated_data_param {{ label_map_file: "labelmap.prototxt" }} }}
layer {{ name: "data" type: "FrcnnRoiData" top: "data" top: "im_info" top: "gt_boxes"
  window_data_param {{ source: "voc2007.trainval" config: "voc_config.json" root_folder: "JPEGImages/" }} }}
layer {{ name: "data" type: "BoxData" top: "data" top: "label" transform_param {{ mean_value: 104 }}
  data_param {{ {_DATA} side: 7 }} }}
layer {{ name: "data" type: "CustomData" top: "image0" top: "image1" top: "flow" data_param {{ {_DATA}
  rand_permute: true slice_point: 3 slice_point: 6 encoding: UINT8 encoding: UINT8 encoding: UINT16FLOW }} }}
layer {{ name: "data" type: "LaneData" top: "data" top: "label" top: "lines"
  transform_param {{ mean_value: 104 resize_param {{ height: 512 width: 512 }} }}
  data_param {{ {_DATA} }} annotated_data_param {{ seg_scales: 4 }} }}
layer {{ name: "data" type: "ImageSegData" {_IMAGES} image_data_param {{ {_LIST} label_type: PIXEL }} }}
layer {{ name: "data" type: "DenseImageData" {_IMAGES} dense_image_data_param {{ {_LIST} }} }}
layer {{ name: "data" type: "ImageLabelmapData" {_IMAGES} image_data_param {{ {_LIST} }} }}
layer {{ name: "data" type: "VideoData" {_IMAGES} video_data_param {{ {_LIST} new_length: 16 }} }}
layer {{ name: "data" type: "CPMData" top: "data" top: "label" data_param {{ source: "people_lmdb" batch_size: 10 }}
  cpm_transform_param {{ num_parts: 56 np_in_lmdb: 17 stride: 8 target_dist: 0.6 max_rotate_degree: 40 }} }}
layer {{ name: "rpn-data" type: "FrcnnAnchorTarget" bottom: "scores" bottom: "boxes" bottom: "im_info" top: "labels"
  top: "targets" top: "inside_weights" top: "outside_weights" window_data_param {{ config: "voc_config.json" }} }}
layer {{ name: "proposal" type: "FrcnnProposal" bottom: "scores" bottom: "deltas" bottom: "im_info" top: "rois"
  window_data_param {{ config: "voc_config.json" }} }}
layer {{ name: "roi-data" type: "FrcnnProposalTarget" bottom: "rois" bottom: "boxes" top: "sampled" top: "labels"
  top: "targets" top: "inside_weights" top: "outside_weights" window_data_param {{ config: "voc_config.json" }} }}
layer {{ name: "softplus" type: "Python" bottom: "x" top: "y" python_param {{ module: "jax.nn" layer: "softplus" }} }}
layer {{ name: "norm" type: "BN" bottom: "x" top: "x" bn_param {{ bn_mode: INFERENCE scale_filler {{ value: 1 }} }} }}
layer {{ name: "evaluate" type: "DetectionEvaluate" bottom: "found" bottom: "truth" bottom: "sizes" top: "y"
  detection_evaluate_param {{ num_classes: 3 }} }}
"""
_INPUT_SHAPES = {"x": (_ROWS, 5), "found": (6, 7), "truth": (4, 7), "sizes": (_ROWS, 3)}
_INPUT_SHAPES |= {"scores": (1, 6, 5, 6), "deltas": (1, 12, 5, 6), "im_info": (1, 3), "rois": (9, 5), "boxes": (4, 5)}
_FRCNN_CONFIG = Path(__file__).parents[1] / "tests" / "forks" / "rcnn" / "frcnn_config.json"


class Examples:
    """Examples of all types, built as they are asked for."""

    def __init__(self) -> None:
        self._nets: dict[LayerType, tuple[NetParameter, str, bool]] = {}
        for layer in read_net(_EXTRA_EXAMPLES).layer:
            input_layers = [LayerParameter(name=b, type="Input", top=[b]) for b in layer.bottom]
            for input_layer in input_layers:
                input_layer.input_param.shape.add(dim=_INPUT_SHAPES[input_layer.name])
            is_random = layer.type in ("FrcnnAnchorTarget", "FrcnnProposalTarget")
            self._nets[type_of(layer)] = NetParameter(layer=[*input_layers, layer]), "TRAIN", is_random
        for case in list_cases():
            net = read_net(case.prototxt(_ROWS))
            if [layer.name for layer in net.layer if layer.type != "Input"] == ["layer"]:  # not one of several
                self._nets.setdefault(type_of(net.layer[-1]), (_rename_blobs(net), case.phase, case.random))

    def __getitem__(self, t: LayerType) -> list[str]:
        """Return the lines of a type's example in blocks; what comes out of it stands above as a comment."""
        net, phase, is_random = self._net(t)
        graph = _build_graph(net, phase)
        layer = net.layer[-1]
        params = [p.spec.shape for p in graph.layers[-1].params]
        description = _describe_shapes(graph, layer.bottom, layer.top) + (
            f"; params {_format_shapes(params)}" if params else ""
        )
        lines = ["```", f"# {description}", *_format_layer(layer), "```"]
        return (
            lines if t.is_input else [*lines, "", "```python", *_format_call(graph.layers[-1], layer, is_random), "```"]
        )

    def _net(self, t: LayerType) -> tuple[NetParameter, str, bool]:
        if t not in self._nets:
            sys.exit(
                f"layer type {t.name} of {t.docs.origin}: no case in the files of tests of types is an example of it"
            )
        return self._nets[t]


def _rename_blobs(net: NetParameter) -> NetParameter:
    """Give a case's blobs the names that people give them."""
    layer = net.layer[-1]
    t = type_of(layer)
    indices = t.gradient.indices
    labels = (
        indices.positions(len(layer.bottom)) if indices.num_classes is not None and not indices.gathers else frozenset()
    )
    data = [b for i, b in enumerate(layer.bottom) if i not in labels]
    names = dict(_number_blobs("x", data))
    names |= _number_blobs("label", [b for i, b in enumerate(layer.bottom) if i in labels])
    if t.signature.loss and layer.top:
        names |= {layer.top[0]: "loss", **_number_blobs("y", layer.top[1:])}
    else:
        names |= _number_blobs("y", layer.top)
    for net_layer in net.layer:
        net_layer.bottom[:] = [names[b] for b in net_layer.bottom]
        net_layer.top[:] = [names[b] for b in net_layer.top]
    layer.name = t.name.lower()
    return net


def _number_blobs(name: str, blobs: Sequence[str]) -> dict[str, str]:
    return {b: name if len(blobs) == 1 else f"{name}{i}" for i, b in enumerate(blobs)}


def _build_graph(net: NetParameter, phase: Any) -> Graph:
    """Build a net beside which there are a list of HDF5 files and a config of caffe-faster-rcnn, and no other data."""
    with tempfile.TemporaryDirectory() as folder:
        reads_hdf5 = any(layer.type == "HDF5Data" for layer in net.layer)
        if reads_hdf5:
            with h5py.File(f"{folder}/train.h5", "w") as file:
                file["data"], file["label"] = np.zeros((32, 3, 224, 224), np.uint8), np.zeros(32)
            Path(folder, "train.txt").write_text(f"{folder}/train.h5\n")
        shutil.copy(_FRCNN_CONFIG, Path(folder, "voc_config.json"))
        return next(build_assumed_graphs(net, NetState(phase=phase), Path(folder) / "net.prototxt")).graph


def _describe_shapes(graph: Graph, bottoms: Sequence[str], tops: Sequence[str]) -> str:
    """Say what goes in and what comes out, such as `x 2x5 gives y 2x4`."""
    inputs, outputs = (
        ", ".join(f"{b} {_format_shapes([graph.blobs[b].shape])}" for b in dict.fromkeys(n)) for n in (bottoms, tops)
    )
    return f"{inputs} gives {outputs or 'nothing'}" if inputs else outputs


def _format_shapes(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join("x".join(map(str, shape)) or "()" for shape in shapes)


def _format_layer(layer: LayerParameter) -> Iterator[str]:
    """Write a layer: what all layers have first, then each message of parameters on lines of its own."""
    common_fields = LayerParameter()
    common_fields.CopyFrom(layer)
    param_fields = _list_param_fields(layer)
    for name in param_fields:
        common_fields.ClearField(name)
    lines = _wrap(f"layer {{ {_format_message(common_fields)}", "  ")
    for name in param_fields:
        lines += [f"  {line}" for line in _wrap(f"{name} {{ {_format_message(getattr(layer, name))} }}", "  ")]
    lines[-1] += " }"
    yield from lines


def _format_call(layer: Layer, definition: LayerParameter, is_random: bool) -> Iterator[str]:
    """Write the call of the layer as a function of arrays, in the phase of the example if it matters."""
    settings = LayerParameter()
    settings.CopyFrom(definition)
    for name in ("name", "type", "bottom", "top"):
        settings.ClearField(name)
    param = layer.type.signature.param
    if len(name_blobs(LayerParameter(type=definition.type), len(layer.bottoms)).top) != len(layer.tops):
        settings.top[:] = definition.top
    text = _format_message(settings)
    if [field.name for field, _ in settings.ListFields()] == [param]:
        fields = _format_message(getattr(settings, param))
        # the name of the message may choose a variant
        text = fields if parse_layer(definition.type, fields).HasField(param) else text
    arguments = ["params"] if any(p.spec.learnable for p in layer.all_params) else []
    arguments += definition.bottom
    has_state = any(not p.spec.learnable for p in layer.all_params)
    arguments += ["state=state"] if has_state else []
    arguments += ["key=key"] if is_random else []
    in_phase = [f'phase="{layer.context.phase}"'] if (has_state or is_random) and layer.context.training else []
    tops = ", ".join(definition.top) or "()"
    if has_state:
        tops = f"({tops}), state" if len(definition.top) > 1 else f"{tops}, state"
    start, call = f"{tops} = caffejax.layer(", f")({', '.join(arguments)})"
    line = start + ", ".join([f'"{definition.type}"', *([_quote(text)] if text else []), *in_phase]) + call
    if len(line) <= _WIDTH:
        yield line
        return
    lines = [f"{x} " for x in _wrap(text, "")]
    yield start
    yield f'    "{definition.type}",'
    yield from (f"    {_quote(x.strip() if x is lines[-1] else x)}{',' * (x is lines[-1])}" for x in lines)
    yield from (f"    {x}," for x in in_phase)
    yield call


def _quote(text: str) -> str:
    return repr(text) if '"' in text else f'"{text}"'


def _list_param_fields(layer: LayerParameter) -> list[str]:
    return [field.name for field, _ in layer.ListFields() if field.name.endswith("_param")]


def _format_message(message: Any) -> str:
    """Write a message on one line, whole numbers as such."""
    return re.sub(r"(: -?\d+)\.0\b", r"\1", text_format.MessageToString(message, as_one_line=True).strip())


def _wrap(text: str, indent: str) -> list[str]:
    joined_fields = text.replace(": ", ":\0")  # a field and its value stay together
    lines = textwrap.wrap(
        joined_fields, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]
