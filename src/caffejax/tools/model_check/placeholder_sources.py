"""Placeholder Input layers for data layers whose source files are missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from ...base.config import NetConfig
from ...base.errors import CaffejaxError, GraphError, Problem
from ...base.paths import find_file
from ...core.graph import Graph, build_graph
from ...core.graph.resolve import is_included, layer_problems
from ...core.layers import LayerDefinition, SourceInput, type_of
from ...core.schema.caffe_pb2 import LayerParameter, NetParameter, NetState, Phase

_SOURCE_FIELDS = ("source", "mean_file")  # files and folders without which a data layer cannot be opened
_PATH_FIELDS = (*_SOURCE_FIELDS, "label_map_file", "name_size_file")
# pixels; the common heights and widths of images, in the order of trying
_COMMON_SIZES = (*((side, side) for side in (224, 227, 256, 299, 32, 28, 512, 64)), (360, 480), (540, 960))
_MNIST_SIZE = 28, 28
_MAX_POOLINGS = 6  # the largest number of pooling layers between the images and an Upsample layer
_DETECTNET_PARAMS = ("detectnet_groundtruth_param", "detectnet_augmentation_param")
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
    config: NetConfig = NetConfig(),
    text_problems: Sequence[Problem] = (),
    *,
    check_settings: bool = False,
) -> Iterator[AssumedGraph]:
    """Yield the graph of a net whose sources may be missing. Data layers with missing sources become placeholders.

    If the settings do not determine the size of the images, a graph is yielded for each common size that fits the net.

    Args:
        net: the net, as `schema.read_net` returns it.
        state: phase, level and stages.
        file: the net's file.
        config: the settings for reading existing data.
        text_problems: the problems of the net's prototxt.
        check_settings: whether invalid settings of data layers with missing sources are errors, the same as if the
            sources existed.

    Raises:
        MissingSourceError: if the settings of a layer whose source is missing do not determine its shapes.
        GraphError, SchemaError: if no size fits; see `build_graph`.
    """
    missing_layers = [
        layer for layer in net.layer if is_included(layer, state) and has_missing_source(layer, file.parent)
    ]
    setting_problems: list[Problem] = []
    if check_settings:
        problems_by_layer = [_find_setting_problems(layer, state, file, config) for layer in missing_layers]
        setting_problems = [problem for problems in problems_by_layer for problem in problems]
        # build_graph reports the problems of layers that stay as they are
        missing_layers = [x for x, problems in zip(missing_layers, problems_by_layer, strict=True) if not problems]
    hints = find_hints(net)
    sizes = guess_sizes(net, missing_layers)
    first_error: CaffejaxError | None = None
    any_size_fits = False
    for size in sizes:
        try:
            placeholder_net = replace_layers(net, missing_layers, size, hints, file.parent) if missing_layers else net
            graph = build_graph(placeholder_net, state, file=str(file), config=config, text_problems=text_problems)
        except MissingSourceError:
            if setting_problems:
                raise GraphError(setting_problems) from None
            raise
        except CaffejaxError as failure:
            first_error = first_error or failure
        else:
            any_size_fits = True
            is_guess = len(sizes) > 1
            sentences = tuple(
                describe_placeholder(layer, size, is_guess, hints, file.parent) for layer in missing_layers
            )
            yield AssumedGraph(graph, placeholder_net, sentences, is_guess)
    if first_error is not None and not any_size_fits:
        raise first_error


def has_missing_source(layer: LayerParameter, folder: Path | None) -> bool:
    """Return whether a layer reads from a file or folder that does not exist."""
    return not layer.bottom and _find_source_input(layer) is not None and bool(_find_missing_sources(layer, folder))


def _find_source_input(layer: LayerParameter) -> SourceInput | None:
    """Return the implementation of a layer that reads from a source, or None for other layers and unknown types."""
    try:
        implementation = type_of(layer).implementation
    except GraphError:
        return None
    return implementation if isinstance(implementation, SourceInput) else None


def find_missing_files(layer: LayerParameter, folder: Path | None) -> dict[str, str]:
    """Return the files and folders that a layer names and that do not exist, by field, such as `data_param.source`.

    Args:
        layer: the layer.
        folder: the folder of the net, or None.
    """
    paths = {name: path for message, value in _find_param_fields(layer) for name, path in _find_paths(message, value)}
    return {name: path for name, path in paths.items() if path and not os.path.exists(find_file(path, folder))}


def _find_missing_sources(layer: LayerParameter, folder: Path | None) -> dict[str, str]:
    files = find_missing_files(layer, folder)
    names = [(name, field) for name in _SOURCE_FIELDS for field in files if field.endswith(f".{name}")]
    return {field: files[field] for _, field in names}


def _find_setting_problems(layer: LayerParameter, state: NetState, file: Path, config: NetConfig) -> Sequence[Problem]:
    """Return the problems of a data layer's settings that can be found without its source."""
    phase: Any = Phase.Name(layer.phase if layer.HasField("phase") else state.phase)
    source_input = _find_source_input(layer)
    try:
        if source_input is not None and source_input.check is not None:
            source_input.check(LayerDefinition(layer, phase, str(file), config))
    except CaffejaxError as error:
        return error.problems
    return list(layer_problems(layer))


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

    They count for sources of arrays of any shape, such as Datums, whose shape the settings do not state.

    Attributes:
        labels: the label blobs of DetectNetTransformation layers.
        channels: the number of channels of blobs that Slice layers divide at equal distances, such as pairs of images.
    """

    labels: frozenset[str] = frozenset()
    channels: Mapping[str, int] = MappingProxyType({})


def find_hints(net: NetParameter) -> ReaderHints:
    """Return what the layers of a net require of the tops of its data layers."""
    labels = frozenset(
        layer.bottom[1]
        for layer in net.layer
        if len(layer.bottom) > 1 and any(layer.HasField(name) for name in _DETECTNET_PARAMS)
    )
    slices = [layer for layer in net.layer if layer.HasField("slice_param") and len(layer.bottom) == 1]
    channels = {layer.bottom[0]: _sliced_channels(layer) for layer in slices}
    return ReaderHints(labels, {blob: n for blob, n in channels.items() if n})


def _sliced_channels(layer: LayerParameter) -> int:
    """Return the number of channels that a Slice layer divides into equal parts, or 0 if its parts are not equal."""
    p = layer.slice_param
    size = p.slice_point[0] if p.slice_point else 0
    is_equal = list(p.slice_point) == [size * k for k in range(1, len(layer.top))]
    return size * len(layer.top) if is_equal and p.axis == 1 and p.slice_dim == 1 else 0


def make_placeholder(
    layer: LayerParameter, size: tuple[int, int], hints: ReaderHints, folder: Path | None
) -> LayerParameter:
    """Return an Input layer with the tops and shapes of a data layer.

    Args:
        layer: the data layer.
        size: height and width in pixels of images whose size is not in the settings.
        hints: what the layers that read the tops require; see `find_hints`.
        folder: the folder of the net, or None.

    Raises:
        MissingSourceError: if the settings do not determine the shapes.
    """
    batch_size = next((m.batch_size for m in _find_param_messages(layer) if getattr(m, "batch_size", 0)), 1)
    height, width = _find_image_size(layer) or size
    is_digit = _find_image_size(layer) is None and size == _MNIST_SIZE  # MNIST's
    channels = 1 if layer.transform_param.force_gray or _is_gray(layer) or is_digit else 3
    channels *= max(1, layer.data_param.images_per_blob)  # pairs of images are joined along the channels
    source_input = _find_source_input(layer)
    image_shape: tuple[int, ...] = channels, height, width
    if source_input is not None and source_input.example_shape is not None:
        image_shape = source_input.example_shape(layer, height, width)
    if source_input is not None and source_input.any_shape and layer.top:
        image_shape = hints.channels.get(layer.top[0], channels), height, width
        if layer.top[0] in hints.labels:
            image_shape = _DETECTNET_LABEL
    find_label_shapes = source_input.label_shapes if source_input is not None else None
    label_shapes = find_label_shapes(layer, batch_size, height, width) if find_label_shapes is not None else None
    shapes = [(batch_size, *image_shape), *(label_shapes or ())]
    if label_shapes is None or len(shapes) < len(layer.top):
        raise MissingSourceError(
            f"{_describe_missing_sources(layer, folder)}: the source of layer '{layer.name}' ({layer.type}) is "
            "missing, and its settings do not determine the shapes of its tops"
        )
    placeholder = LayerParameter(
        name=layer.name, type="Input", top=layer.top, include=layer.include, exclude=layer.exclude
    )
    for shape in shapes[: len(layer.top)]:
        placeholder.input_param.shape.add(dim=shape)
    return placeholder


def _describe_missing_sources(layer: LayerParameter, folder: Path | None) -> str:
    """Return a text such as "data_param.source train_lmdb does not exist"."""
    files = [f"{field} '{path}'" for field, path in _find_missing_sources(layer, folder).items()]
    return f"{' and '.join(files)} {'does' if len(files) == 1 else 'do'} not exist"


def replace_layers(
    net: NetParameter,
    missing_layers: Sequence[LayerParameter],
    size: tuple[int, int],
    hints: ReaderHints,
    folder: Path | None,
) -> NetParameter:
    """Return the net with placeholders instead of the layers in `missing_layers`; see `make_placeholder`."""
    layer_ids = {id(layer) for layer in missing_layers}
    new_net = NetParameter()
    new_net.CopyFrom(net)
    del new_net.layer[:]
    new_net.layer.extend(
        make_placeholder(layer, size, hints, folder) if id(layer) in layer_ids else layer for layer in net.layer
    )
    return new_net


def describe_placeholder(
    layer: LayerParameter, size: tuple[int, int], is_guess: bool, hints: ReaderHints, folder: Path | None
) -> str:
    """Return a sentence about the missing files of a layer and the shapes that were assumed for it."""
    placeholder = make_placeholder(layer, size, hints, folder)
    shapes = ", ".join("x".join(map(str, shape.dim)) for shape in placeholder.input_param.shape)
    guess_note = (
        " (a guess, because no setting states the size of the images)"
        if is_guess and _find_image_size(layer) is None
        else ""
    )
    is_source_missing = any(field.endswith(".source") for field in _find_missing_sources(layer, folder))
    outcome = "is absent and was not opened" if is_source_missing else "was not opened"
    sentence = (
        f"{_describe_missing_sources(layer, folder)}: the source of layer '{layer.name}' ({layer.type}) {outcome}"
    )
    return f"{sentence}; its tops are assumed to be {shapes}{guess_note}"


def _find_param_messages(layer: LayerParameter) -> Iterator[Any]:
    return (message for _, message in _find_param_fields(layer))


def _find_param_fields(message: Message) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each parameter message in a message, such as data_param of a layer."""
    for field, value in message.ListFields():
        if isinstance(value, Message) and field.name.endswith("_param"):
            yield field.name, value


def _find_paths(name: str, message: Message) -> Iterator[tuple[str, str]]:
    """Yield the full name and the value of each field that names a file or folder, in a message called `name`."""
    for field, value in message.ListFields():
        if field.name in _PATH_FIELDS and isinstance(value, str):
            yield f"{name}.{field.name}", os.fspath(value)
    for inner_name, inner_message in _find_param_fields(message):
        yield from _find_paths(f"{name}.{inner_name}", inner_message)


def _find_image_size(layer: LayerParameter) -> tuple[int, int] | None:
    """Return the height and width of the images, or None if the settings do not determine them."""
    t = layer.transform_param
    if t.crop_size:
        return t.crop_size, t.crop_size
    source_input = _find_source_input(layer)
    if source_input is not None and source_input.image_size is not None and (size := source_input.image_size(layer)):
        return size
    sizes = [
        (t.crop_h, t.crop_w),
        (layer.dense_image_data_param.crop_height, layer.dense_image_data_param.crop_width),
        *((resize.height, resize.width) for resize in t.resize_param),
        *(
            (p.new_height, p.new_width)
            for p in (layer.image_data_param, layer.video_data_param, layer.dense_image_data_param)
        ),
        (layer.window_data_param.crop_size, layer.window_data_param.crop_size),
    ]
    return next(((h, w) for h, w in sizes if h and w), None)


def _is_gray(layer: LayerParameter) -> bool:
    return layer.HasField("image_data_param") and not layer.image_data_param.is_color
