"""Placeholder Input layers for data layers whose source files are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ..config import DataConfig
from ..errors import CaffejaxError, GraphError, Problem
from ..graph import Graph, build_graph
from ..graph.resolve import is_included
from ..layers import SourceInput, layer_type
from ..paths import find_file
from ..schema.caffe_pb2 import DataParameter, LayerParameter, NetParameter, NetState
from .video.video_data import video_shape

_PATH_FIELDS = ("source", "root_folder", "mean_file", "label_map_file", "name_size_file")
# pixels; the common heights and widths of images, in the order of trying
_COMMON_SIZES = (*((side, side) for side in (224, 227, 256, 299, 32, 28, 512, 64)), (360, 480))
_MNIST_SIZE = 28, 28
_MAX_POOLINGS = 6  # the largest number of pooling layers between the images and an Upsample layer
_NUM_BOX_ROWS = 8  # rows of a batch's label
_POSE_CHANNELS = 6
_DETECTNET_LABEL = (1, 51, 16)  # for each image, a row with the number of objects and 50 rows of objects


class MissingSourceError(Exception):
    """Raised for a layer with a missing source whose settings do not determine the shapes of its tops."""


class AssumedGraph(NamedTuple):
    """A graph in which Input layers replace data layers with missing sources.

    Attributes:
        graph: the graph.
        net: the net with the Input layers.
        assumptions: a sentence for each replaced data layer.
        is_guess: whether the size of some images is a guess, so that other sizes may fit as well.
    """

    graph: Graph
    net: NetParameter
    assumptions: tuple[str, ...] = ()
    is_guess: bool = False


def build_assumed_graphs(
    net: NetParameter,
    state: NetState,
    file: Path,
    data_config: DataConfig = DataConfig(),
    text_problems: Sequence[Problem] = (),
) -> Iterator[AssumedGraph]:
    """Yield the graph of a net whose sources may be missing. Data layers with missing sources become placeholders.

    If the settings do not determine the size of the images, a graph is yielded for each common size that fits the net.

    Args:
        net: the net, as `schema.read_net` returns it.
        state: phase, level and stages.
        file: the net's file.
        data_config: the settings for reading existing data.
        text_problems: the problems of the net's prototxt.

    Raises:
        MissingSourceError: if the settings of a layer whose source is missing do not determine its shapes.
        GraphError, SchemaError: if no size fits; see `build_graph`.
    """
    missing_layers = [
        layer for layer in net.layer if is_included(layer, state) and has_missing_source(layer, file.parent)
    ]
    hints = find_hints(net)
    sizes = guess_sizes(net, missing_layers)
    first_error: CaffejaxError | None = None
    any_size_fits = False
    for size in sizes:
        try:
            placeholder_net = replace_layers(net, missing_layers, size, hints) if missing_layers else net
            graph = build_graph(
                placeholder_net, state, file=str(file), data_config=data_config, text_problems=text_problems
            )
        except CaffejaxError as failure:
            first_error = first_error or failure
        else:
            any_size_fits = True
            is_guess = len(sizes) > 1
            sentences = tuple(describe_placeholder(layer, size, is_guess, hints) for layer in missing_layers)
            yield AssumedGraph(graph, placeholder_net, sentences, is_guess)
    if first_error is not None and not any_size_fits:
        raise first_error


def has_missing_source(layer: LayerParameter, folder: Path | None) -> bool:
    """Return whether a layer reads from a file or folder that does not exist."""
    try:
        if layer.bottom or not isinstance(layer_type(layer.type).implementation, SourceInput):
            return False
    except GraphError:
        return False
    paths = [(name, value) for message in _find_param_messages(layer) for name, value in _find_paths(message)]
    return any(value and not os.path.exists(find_file(value, folder)) for name, value in paths if name != "root_folder")


def guess_sizes(net: NetParameter, layers: Sequence[LayerParameter]) -> Sequence[tuple[int, int]]:
    """Return the heights and widths of images to try, in pixels, or one pair if the settings determine all sizes.

    The first sizes are powers of 2 times the largest size that Upsample layers state, because the net pools the images
    to that size.
    """
    if all(_find_image_size(layer) is not None for layer in layers):
        return _COMMON_SIZES[:1]
    params = [layer.upsample_param for layer in net.layer if layer.HasField("upsample_param")]
    largest_size = max(((p.upsample_h, p.upsample_w) for p in params if p.upsample_h and p.upsample_w), default=None)
    pooled_sizes = (
        [(largest_size[0] << n, largest_size[1] << n) for n in reversed(range(_MAX_POOLINGS))] if largest_size else []
    )
    return [*pooled_sizes, *_COMMON_SIZES]


class ReaderHints(NamedTuple):
    """Properties of the tops of data layers that follow from the layers that read them.

    Attributes:
        labels: the label blobs of DetectNetTransformation layers. Settings of Data layers do not state their shape.
        channels: the number of channels of blobs that Slice layers divide at equal distances, such as pairs of images.
    """

    labels: frozenset[str] = frozenset()
    channels: Mapping[str, int] = MappingProxyType({})


def find_hints(net: NetParameter) -> ReaderHints:
    """Return what the layers of a net require of the tops of its data layers."""
    labels = frozenset(
        layer.bottom[1] for layer in net.layer if layer.type == "DetectNetTransformation" and len(layer.bottom) > 1
    )
    slices = [layer for layer in net.layer if layer.type == "Slice" and len(layer.bottom) == 1]
    channels = {layer.bottom[0]: _sliced_channels(layer) for layer in slices}
    return ReaderHints(labels, {blob: n for blob, n in channels.items() if n})


def _sliced_channels(layer: LayerParameter) -> int:
    """Return the number of channels that a Slice layer divides into equal parts, or 0 if its parts are not equal."""
    p = layer.slice_param
    size = p.slice_point[0] if p.slice_point else 0
    is_equal = list(p.slice_point) == [size * k for k in range(1, len(layer.top))]
    return size * len(layer.top) if is_equal and p.axis == 1 and p.slice_dim == 1 else 0


def make_placeholder(layer: LayerParameter, size: tuple[int, int], hints: ReaderHints) -> LayerParameter:
    """Return an Input layer with the tops and shapes of a data layer.

    Args:
        layer: the data layer.
        size: height and width in pixels of images whose size is not in the settings.
        hints: what the layers that read the tops require; see `find_hints`.

    Raises:
        MissingSourceError: if the settings do not determine the shapes.
    """
    batch_size = next((m.batch_size for m in _find_param_messages(layer) if getattr(m, "batch_size", 0)), 1)
    height, width = _find_image_size(layer) or size
    is_digit = _find_image_size(layer) is None and size == _MNIST_SIZE  # MNIST's
    channels = 1 if layer.transform_param.force_gray or _is_gray(layer) or is_digit else 3
    if layer.type == "Data" and layer.top:  # pairs of images are joined along the channels
        channels = hints.channels.get(layer.top[0], channels * max(1, layer.data_param.images_per_blob))
    image_shape = video_shape(layer, height, width) if layer.type == "VideoData" else (channels, height, width)
    if layer.type == "Data" and layer.top and layer.top[0] in hints.labels:
        image_shape = _DETECTNET_LABEL
    if layer.type == "CPMData":
        image_shape = _POSE_CHANNELS, height, width
    shapes = [[batch_size, *image_shape], *_label_shapes(layer, batch_size, height, width)]
    if layer.type == "HDF5Data" or len(shapes) < len(layer.top):
        raise MissingSourceError(
            f"the source of layer '{layer.name}' ({layer.type}) is missing, and its settings do not determine the "
            "shapes of its tops"
        )
    placeholder = LayerParameter(
        name=layer.name, type="Input", top=layer.top, include=layer.include, exclude=layer.exclude
    )
    for shape in shapes[: len(layer.top)]:
        placeholder.input_param.shape.add(dim=shape)
    return placeholder


def replace_layers(
    net: NetParameter, missing_layers: Sequence[LayerParameter], size: tuple[int, int], hints: ReaderHints
) -> NetParameter:
    """Return the net with placeholders instead of the layers in `missing_layers`; see `make_placeholder`."""
    layer_ids = {id(layer) for layer in missing_layers}
    new_net = NetParameter()
    new_net.CopyFrom(net)
    del new_net.layer[:]
    new_net.layer.extend(
        make_placeholder(layer, size, hints) if id(layer) in layer_ids else layer for layer in net.layer
    )
    return new_net


def describe_placeholder(layer: LayerParameter, size: tuple[int, int], is_guess: bool, hints: ReaderHints) -> str:
    """Return a sentence about the shapes that were assumed for a layer."""
    shapes = ", ".join("x".join(map(str, s.dim)) for s in make_placeholder(layer, size, hints).input_param.shape)
    guess_note = (
        " (a guess, because no setting states the size of the images)"
        if is_guess and _find_image_size(layer) is None
        else ""
    )
    sentence = f"the source of layer '{layer.name}' ({layer.type}) is absent and was not opened"
    return f"{sentence}; its tops are assumed to be {shapes}{guess_note}"


def _find_param_messages(layer: LayerParameter) -> Iterator[Any]:
    """Yield the parameter messages of a layer, such as its data_param."""
    for field, value in layer.ListFields():
        if isinstance(value, Message) and field.name.endswith("_param"):
            yield value


def _find_paths(message: Message) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each field that names a file or folder."""
    for field, value in message.ListFields():
        if field.name in _PATH_FIELDS and isinstance(value, str):
            yield field.name, os.fspath(value)


def _find_image_size(layer: LayerParameter) -> tuple[int, int] | None:
    """Return the height and width of the images, or None if the settings do not determine them."""
    t = layer.transform_param
    if t.crop_size:
        return t.crop_size, t.crop_size
    sizes = [
        (t.crop_h, t.crop_w),
        (layer.dense_image_data_param.crop_height, layer.dense_image_data_param.crop_width),
        *((resize.height, resize.width) for resize in t.resize_param),
        *((p.crop_size, p.crop_size) for p in [layer.image_data_param] if layer.type == "VideoData"),
        *(
            (p.new_height, p.new_width)
            for p in (layer.image_data_param, layer.video_data_param, layer.dense_image_data_param)
        ),
        (layer.window_data_param.crop_size, layer.window_data_param.crop_size),
        *((p.crop_size_y, p.crop_size_x) for p in [layer.cpm_transform_param] if layer.type == "CPMData"),
    ]
    return next(((h, w) for h, w in sizes if h and w), None)


def _is_gray(layer: LayerParameter) -> bool:
    return layer.HasField("image_data_param") and not layer.image_data_param.is_color


def _label_shapes(layer: LayerParameter, batch_size: int, height: int, width: int) -> list[list[int]]:
    """Return the shapes of the tops after the images: labels, boxes, or maps of labels."""
    match layer.type:
        case "AnnotatedData":
            return [[1, 1, _NUM_BOX_ROWS, 8]]
        case "ImageSegData" | "DenseImageData" | "ImageLabelmapData":
            divisor = layer.dense_image_data_param.label_divide_factor or 1
            return [[batch_size, 1, height // divisor, width // divisor], [batch_size, 1, 1, 2]]
        case "CPMData":
            param = layer.cpm_transform_param
            return [
                [
                    batch_size,
                    2 * (param.num_parts + 1),
                    height // (param.stride or 1),
                    width // (param.stride or 1),
                ]
            ]
        case "Data":
            return [[batch_size, *_label_shape(layer.data_param, height, width)]]
        case "ImageData" | "WindowData" | "VideoData":
            return [[batch_size]]
        case _:
            return []


def _label_shape(param: DataParameter, height: int, width: int) -> list[int]:
    """Return the shape of the label of an image, or of MyCaffe's pairs of images and images with several labels.

    The number of several labels that are not one-hot is in the source alone; a label for each pixel is assumed.
    """
    if param.label_type == "MULTIPLE":
        return [param.one_hot_label_size, 1, 1] if param.one_hot_label_size else [height * width]
    return [param.images_per_blob] if param.output_all_labels and param.images_per_blob > 1 else []
