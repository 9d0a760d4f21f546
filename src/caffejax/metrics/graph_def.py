"""A net's graph in TensorBoard's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph import Graph, Layer


def graph_def(graph: Graph) -> Any:
    """Return a tensorboardX GraphDef: a node for each layer, with the shapes of its tops and params.

    Splits that the net added are left out: who reads a split blob is joined to the layer that computes it.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    made_by: dict[str, str] = {}  # by blob: the node and number of the top that holds it now
    nodes = []
    for layer in graph.layers:
        inputs = [made_by.get(bottom, bottom) for bottom in layer.bottoms]
        if layer.inserted_split:
            made_by |= dict.fromkeys(layer.tops, inputs[0])
            continue
        nodes.append(_node(layer, inputs, [graph.blobs[top].shape for top in layer.tops]))
        made_by |= {top: f"{layer.key}:{i}" if i else layer.key for i, top in enumerate(layer.tops)}
    return GraphDef(node=nodes, versions=VersionDef(producer=22))


def _node(layer: Layer, inputs: Sequence[str], tops: Sequence[tuple[int, ...]]) -> Any:
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    def shapes(of: Sequence[tuple[int, ...]]) -> Any:
        dims = [[TensorShapeProto.Dim(size=n) for n in shape] for shape in of]
        return AttrValue(list=AttrValue.ListValue(shape=[TensorShapeProto(dim=dim) for dim in dims]))

    attributes = {"_output_shapes": shapes(tops)}  # the name under which TensorBoard writes shapes on edges
    if layer.params:
        attributes["params"] = shapes([param.spec.shape for param in layer.params])
    return NodeDef(name=layer.key, op=layer.type.name, input=inputs, attr=attributes)
