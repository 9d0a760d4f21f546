"""A graph of labelled nodes and edges, to be drawn elsewhere: as text in the DOT language, or laid out as SVG."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")  # all but line breaks


@dataclass
class Drawing:
    """A net as nodes and edges.

    Attributes:
        name: the net's.
        rankdir: where it runs to: "LR", "RL", "TB" or "BT".
        nodes: label and style by node.
        edges: from node, to node, label.
    """

    name: str
    rankdir: str
    nodes: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)

    def to_dot(self) -> str:
        """Return the drawing in the DOT language."""
        lines = [f"digraph {_quoted(self.name)} {{", f"rankdir={self.rankdir};"]
        for node, (label, style) in self.nodes.items():
            settings = ", ".join(f"{key}={_quoted(value)}" for key, value in style.items())
            lines.append(f"{_quoted(node)} [label={_quoted(label, style['shape'] == 'record')}, {settings}];")
        for source, target, label in self.edges:
            lines.append(f"{_quoted(source)} -> {_quoted(target)} [label={_quoted(label)}];")
        return "\n".join([*lines, "}\n"])


def printable(text: str) -> str:
    """Return text without control characters and halves of characters, which no drawing can have."""
    return _INVISIBLE.sub("", text)


def _quoted(text: str, record: bool = False) -> str:
    """Return a string of the DOT language; in a record's label some characters more have a meaning."""
    text = printable(text)
    for mark in '\\"' + ("{}|<>" if record else ""):
        text = text.replace(mark, f"\\{mark}")
    return '"' + text.replace("\n", "\\n") + '"'
