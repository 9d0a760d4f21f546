"""Layers as OpenCV lists them: names, types, shapes of tops, and counts of operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from .custom_layers import get_opencv_type, is_custom

if TYPE_CHECKING:
    from ..core.graph import Graph, Layer, Param

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


class Node(NamedTuple):
    """A layer as OpenCV lists it.

    Attributes:
        name: OpenCV's name.
        type: OpenCV's type.
        layer: the layer, in a graph in which no two layers write the same blob.
        params: the parameters and statistics that OpenCV assigns to this layer.
        tops: the names of its tops in that graph, or of its bottoms for a layer without tops, such as Silence. The
            Scale layer that OpenCV adds for an Axpy layer has none.
    """

    name: str
    type: str
    layer: Layer
    params: tuple[Param, ...]
    tops: tuple[str, ...]


def find_top_shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    """Return the shapes of a layer's tops in OpenCV, if the net has the input shapes of `graph`.

    DetectionOutput has `keep_top_k` rows for each image. Detections are sorted by image and descending score; rows of
    zeros follow them.
    """
    shapes = tuple(graph.blobs[top].shape for top in node.tops)
    if not node.layer.tops:
        return shapes[:1] * len(shapes)
    if node.type == "DetectionOutput" and (keep := node.layer.definition.layer.detection_output_param.keep_top_k) > 0:
        return ((1, 1, keep * graph.blobs[node.layer.bottoms[0]].shape[0], 7),)
    return shapes


def list_nodes(graph: Graph, inference_graph: Graph) -> Iterator[Node]:
    """Yield the layers of a net with OpenCV's names and types.

    Args:
        graph: the net's graph.
        inference_graph: the same net as a graph in which no two layers write the same blob.
    """
    from ..core.graph.inference_graph import find_inference_names

    layers = {layer.key: layer for layer in inference_graph.layers}
    names = find_inference_names(graph)
    counts = Counter[str]()
    for original in graph.layers:
        if original.is_inserted_split:
            continue
        num_previous = counts[original.name]
        counts[original.name] += 1
        if original.type.is_input:
            continue
        name = f"{original.name}_{num_previous}" if num_previous else original.name
        layer, message = layers.get(original.key), original.definition.layer
        if layer is None:  # the layer has no tops
            layer = replace(original, bottoms=tuple(names[bottom] for bottom in original.bottoms))
        node_type = get_opencv_type(message)
        settings = message.batch_norm_param
        if node_type == "BatchNorm" and settings.HasField("use_global_stats") and not settings.use_global_stats:
            yield Node(f"{name}/mvn", "MVN", layer, (), layer.tops)
        elif node_type == "Axpy" and not is_custom(message):
            yield Node(f"{name}/scale", "Scale", layer, (), ())
            node_type = "Eltwise"
        elif node_type == "Convolution":
            name = str(message.top[0])
        elif node_type == "ConvolutionDepthwise":
            node_type = "Convolution"
        yield Node(name, node_type, layer, layer.params, layer.tops or layer.bottoms)


_OPERATIONS_PER_ELEMENT = {  # operations for each element of the top
    **dict.fromkeys(("AbsVal", "HardSwish", "Log", "PReLU", "ReLU", "Softplus", "TanH"), 1),
    **dict.fromkeys(("ELU", "ReLU6", "Scale"), 2),
    **dict.fromkeys(("BatchNorm", "Exp", "Mish", "Sigmoid", "Swish"), 3),
    "Softmax": 4,
    "BNLL": 5,
}


def count_operations(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    """Return the number of operations that OpenCV counts for a layer with bottoms and tops of these shapes.

    Types for which OpenCV has no rule, such as Concat and Normalize, count as 0.
    """
    if is_custom(node.layer.definition.layer):
        return 0
    if node.type in _OPERATIONS_PER_ELEMENT:
        return _OPERATIONS_PER_ELEMENT[node.type] * prod(tops[0])
    rule = _OPERATION_COUNTERS.get(node.type)
    return rule(node, bottoms, tops) if rule else 0


def _count_convolution(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    return prod(tops[0]) * (2 * prod(node.params[0].spec.shape[2:]) * bottoms[0][1] + 1)


def _count_deconvolution(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    channels, _, *window = node.params[0].spec.shape
    return 2 * channels * prod(window) * prod(bottoms[0])


def _count_inner_product(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    return 3 * node.params[0].spec.shape[-1] * prod(tops[0])


def _count_eltwise(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    return len(bottoms) * prod(tops[0])


def _count_power(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    return (2 if node.layer.definition.layer.power_param.power == 1 else 10) * prod(tops[0])


def _count_pooling(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    settings = node.layer.definition.layer.pooling_param
    window = (settings.kernel_h or settings.kernel_size) * (settings.kernel_w or settings.kernel_size)
    if settings.global_pooling:
        window = 1
    return prod(tops[0]) * (window + (settings.pool != settings.MAX))


def _count_lrn(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    settings = node.layer.definition.layer.lrn_param
    images, channels, *plane = tops[0]
    if settings.norm_region == settings.WITHIN_CHANNEL:
        return prod(tops[0]) * (2 * settings.local_size**2 + 2)
    half = (settings.local_size - 1) // 2
    # OpenCV counts a sum over a window that slides over the channels, with a rule for the first and last windows
    sums = 2 * channels - 1 + 2 * half * (images - 1) if channels > half else 2 * images * channels
    return prod(plane) * (4 * images * channels + sums)


def _count_mvn(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    normalizes_variance = node.layer.definition.layer.mvn_param.normalize_variance
    return 6 * prod(tops[0]) + 3 * prod(tops[0][: 2 if normalizes_variance else 1])


def _count_prior_box(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    per_cell = tops[0][2] // prod(bottoms[0][2:])
    return sum(prod(bottom[2:]) * per_cell for bottom in bottoms)


_OPERATION_COUNTERS: dict[str, Callable[[Node, Shapes, Shapes], int]] = {
    "Convolution": _count_convolution,
    "Deconvolution": _count_deconvolution,
    "Eltwise": _count_eltwise,
    "InnerProduct": _count_inner_product,
    "LRN": _count_lrn,
    "MVN": _count_mvn,
    "Pooling": _count_pooling,
    "Power": _count_power,
    "PriorBox": _count_prior_box,
}
