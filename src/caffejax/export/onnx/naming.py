"""Other names for values of a graph, in the subgraphs of its nodes as well."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import AttributeProto, NodeProto


def renamed(node: NodeProto, old: str, new: str) -> None:
    """Rename a value wherever a node reads or makes it."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            if name == old:
                names[i] = new
    for inner in _inner(node):
        renamed(inner, old, new)


def reads(node: NodeProto) -> Iterable[str]:
    """Yield the names of all values that a node reads, those of its subgraphs included."""
    yield from node.input
    for inner in _inner(node):
        yield from reads(inner)


def _inner(node: NodeProto) -> Iterable[NodeProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from attribute.g.node
