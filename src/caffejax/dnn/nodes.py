"""Layers as OpenCV lists them: names, types, shapes of tops, and counts of operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from .custom_layers import get_opencv_type, is_custom

if TYPE_CHECKING:
    from ..core.graph import Graph, Layer, Param
    from ..core.schema.caffe_pb2 import LayerParameter

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
    keep = node.layer.definition.layer.detection_output_param.keep_top_k
    if get_rules(node.type).has_detections and keep > 0:
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
        node = Node(name, get_opencv_type(message), layer, layer.params, layer.tops or layer.bottoms)
        yield from get_rules(node.type).convert(node)


@dataclass(frozen=True)
class TypeRules:
    """OpenCV's rules for the layers of a type.

    Attributes:
        count_operations: the number of operations of a layer with bottoms and tops of the given shapes; 0 for types for
            which OpenCV has no rule, such as Concat and Normalize.
        convert: returns the layers as which OpenCV lists a layer of Caffe.
        set_defaults: sets OpenCV's defaults in a layer that has just been read.
        has_detections: whether the top has `keep_top_k` rows (image, class, score, box) for each image, sorted by image
            and descending score.
        has_optional_bias: whether the blobs may be set to a weight alone, which removes the bias.
        has_row_vectors: whether a blob with one axis is shown as a row, not as a column.
    """

    count_operations: Callable[[Node, Shapes, Shapes], int] = lambda node, bottoms, tops: 0
    convert: Callable[[Node], Iterator[Node]] = lambda node: iter([node])
    set_defaults: Callable[[LayerParameter], None] = lambda layer: None
    has_detections: bool = False
    has_optional_bias: bool = False
    has_row_vectors: bool = False


def get_rules(type_name: str) -> TypeRules:
    """Return the rules for a layer type of OpenCV or Caffe, or the default rules if the type has none."""
    return TYPE_RULES.get(type_name, _DEFAULT_RULES)


def count_operations(node: Node, bottoms: Shapes, tops: Shapes) -> int:
    """Return the number of operations that OpenCV counts for a layer with bottoms and tops of these shapes."""
    return 0 if is_custom(node.layer.definition.layer) else get_rules(node.type).count_operations(node, bottoms, tops)


def _count_per_element(number: int) -> Callable[[Node, Shapes, Shapes], int]:
    return lambda node, bottoms, tops: number * prod(tops[0])


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


def _convert_axpy(node: Node) -> Iterator[Node]:
    if is_custom(node.layer.definition.layer):
        yield node
        return
    yield Node(f"{node.name}/scale", "Scale", node.layer, (), ())
    yield node._replace(type="Eltwise")


def _convert_batch_norm(node: Node) -> Iterator[Node]:
    settings = node.layer.definition.layer.batch_norm_param
    if settings.HasField("use_global_stats") and not settings.use_global_stats:
        yield Node(f"{node.name}/mvn", "MVN", node.layer, (), node.layer.tops)
    yield node


def _convert_convolution(node: Node) -> Iterator[Node]:
    yield node._replace(name=str(node.layer.definition.layer.top[0]))


def _convert_depthwise(node: Node) -> Iterator[Node]:
    yield node._replace(type="Convolution")


def _clip_boxes(layer: LayerParameter) -> None:
    if not layer.prior_box_param.HasField("clip"):
        layer.prior_box_param.clip = True


def _match_by_count(layer: LayerParameter) -> None:
    if len(layer.bottom) == 2:
        layer.scale_param.match_by_count = True


_DEFAULT_RULES = TypeRules()
TYPE_RULES: dict[str, TypeRules] = {  # by OpenCV's name of the type, or Caffe's where OpenCV has none
    **dict.fromkeys(
        ("AbsVal", "HardSwish", "Log", "PReLU", "ReLU", "Softplus", "TanH"), TypeRules(_count_per_element(1))
    ),
    **dict.fromkeys(("ELU", "ReLU6"), TypeRules(_count_per_element(2))),
    **dict.fromkeys(("Exp", "Mish", "Sigmoid", "Swish"), TypeRules(_count_per_element(3))),
    "Axpy": TypeRules(convert=_convert_axpy),
    "BNLL": TypeRules(_count_per_element(5)),
    "BatchNorm": TypeRules(_count_per_element(3), _convert_batch_norm),
    "Convolution": TypeRules(_count_convolution, _convert_convolution, has_optional_bias=True),
    "ConvolutionDepthwise": TypeRules(convert=_convert_depthwise),
    "Deconvolution": TypeRules(_count_deconvolution, has_optional_bias=True),
    "DetectionOutput": TypeRules(has_detections=True),
    "Eltwise": TypeRules(_count_eltwise),
    "InnerProduct": TypeRules(_count_inner_product, has_row_vectors=True),
    "LRN": TypeRules(_count_lrn),
    "MVN": TypeRules(_count_mvn),
    "Pooling": TypeRules(_count_pooling),
    "Power": TypeRules(_count_power),
    "PriorBox": TypeRules(_count_prior_box, set_defaults=_clip_boxes),
    "Scale": TypeRules(_count_per_element(2), set_defaults=_match_by_count),
    "Softmax": TypeRules(_count_per_element(4)),
}
