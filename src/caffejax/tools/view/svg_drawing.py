"""Drawings of nodes and edges in the DOT language or as SVG.

The layout of SVG drawings is computed by dagre, the layout library of the HTML page. It runs in the JavaScript engine
V8 of the package mini-racer, which has wheels for all platforms and needs no other program. The scripts have no access
to files or the network, and receive only sizes and indices, no names.
"""

from __future__ import annotations

import atexit
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from ...base.errors import CaffejaxError
from ...base.human_readable import format_bytes
from .html_page import LAYOUT_SCRIPT, read_asset, read_library

_INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")  # except line breaks


@dataclass
class Drawing:
    """A net as nodes and edges.

    Attributes:
        name: the net's name.
        rankdir: the direction of the layout: "LR", "RL", "TB" or "BT".
        nodes: the (label, style) of each node, by its name.
        edges: the (source node, target node, label) of each edge, with the names of the nodes.
    """

    name: str
    rankdir: str
    nodes: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)

    def to_dot(self) -> str:
        """Return the drawing in the DOT language."""
        lines = [f"digraph {_quote(self.name)} {{", f"rankdir={self.rankdir};"]
        for node, (label, style) in self.nodes.items():
            settings = ", ".join(f"{key}={_quote(value)}" for key, value in style.items())
            lines.append(f"{_quote(node)} [label={_quote(label, style['shape'] == 'record')}, {settings}];")
        for source, target, label in self.edges:
            lines.append(f"{_quote(source)} -> {_quote(target)} [label={_quote(label)}];")
        return "\n".join([*lines, "}\n"])


def strip_control_characters(text: str) -> str:
    """Return text without control characters and lone surrogates, which are invalid in drawings."""
    return _INVISIBLE.sub("", text)


def _quote(text: str, is_record: bool = False) -> str:
    """Return text as a quoted string of the DOT language, with additional escapes for labels of records."""
    text = strip_control_characters(text)
    for character in '\\"' + ("{}|<>" if is_record else ""):
        text = text.replace(character, f"\\{character}")
    return '"' + text.replace("\n", "\\n") + '"'


Point = tuple[float, float]
_MAX_LAYOUT_SECONDS = 300  # time limit of a layout, in seconds
_MAX_LAYOUT_BYTES = 4 << 30  # memory limit of a layout, in bytes
_abandoned_engines: list[Any] = []  # engines that timed out; a late answer needs their event loops


@dataclass(frozen=True)
class Layout:
    """Positions in a drawing, in pixels.

    Attributes:
        size: (width, height) of the drawing.
        nodes: centres of the nodes.
        edges: the (points, centre of the label) of each edge.
    """

    size: Point
    nodes: tuple[Point, ...]
    edges: tuple[tuple[tuple[Point, ...], Point], ...]


def lay_out(
    sizes: Sequence[Point], edges: Sequence[tuple[int, int]], label_sizes: Sequence[Point], rankdir: str
) -> Layout:
    """Lay out a directed graph in ranks. Edges that close a cycle run backwards.

    Args:
        sizes: (width, height) of each node.
        edges: (source, target) indices of nodes.
        label_sizes: (width, height) of the label of each edge; (0, 0) without a label.
        rankdir: "LR", "RL", "TB" or "BT".

    Raises:
        CaffejaxError: if the package mini-racer is not installed, or if the graph is too large.
    """
    node_objects = [{"id": str(i), "width": width, "height": height} for i, (width, height) in enumerate(sizes)]
    edge_objects = [
        {"from": str(a), "to": str(b), "width": width, "height": height}
        for (a, b), (width, height) in zip(edges, label_sizes, strict=True)
    ]
    script = f"JSON.stringify(layOut({json.dumps(node_objects)}, {json.dumps(edge_objects)}, {json.dumps(rankdir)}))"
    layout = _get_thread().submit(_evaluate_script, script).result()
    return Layout(
        size=(layout["width"], layout["height"]),
        nodes=tuple(map(_parse_point, layout["nodes"])),
        edges=tuple(
            (tuple(map(_parse_point, edge["points"])), _parse_point(edge["label"])) for edge in layout["edges"]
        ),
    )


def _parse_point(position: dict[str, float]) -> Point:
    return position["x"], position["y"]


@cache
def _get_thread() -> ThreadPoolExecutor:
    """Return a thread for mini-racer, which cannot wait in one with an event loop, such as a notebook's.

    It makes all engines: on CPUs with memory protection keys, one that another thread makes ends the process.
    """
    return ThreadPoolExecutor(1)


def _evaluate_script(script: str) -> Any:
    engine = _get_engine()
    from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException

    try:
        return json.loads(engine.eval(script, timeout_sec=_MAX_LAYOUT_SECONDS, max_memory=_MAX_LAYOUT_BYTES))
    except (JSOOMException, JSTimeoutException) as error:
        _get_engine.cache_clear()
        _abandoned_engines.append(engine)
        atexit.unregister(engine.close)
        raise _make_size_error(
            f"its layout needs more than {_MAX_LAYOUT_SECONDS} s or {format_bytes(_MAX_LAYOUT_BYTES)}"
        ) from error
    except JSEvalException as error:
        if "call stack" not in str(error):
            raise
        raise _make_size_error("its longest path is too long") from error


def _make_size_error(reason: str) -> CaffejaxError:
    return CaffejaxError(f"the net is too large to be laid out: {reason}; draw only one phase, or write a .dot file")


def can_draw_svg() -> bool:
    """Return whether the package mini-racer is installed, which drawing to SVG needs."""
    return find_spec("py_mini_racer") is not None


@cache
def _get_engine() -> Any:
    try:
        from py_mini_racer import MiniRacer
    except ImportError as error:
        raise CaffejaxError(
            "drawing to .svg needs Graphviz's program 'dot' or the package mini-racer, and neither was found: install "
            "graphviz with the system's package manager, or pip install mini-racer; .dot files need neither"
        ) from error
    engine = MiniRacer()
    atexit.register(engine.close)  # later its threads cannot call Python, and close() would wait forever
    engine.eval("\n".join([read_asset("polyfills.js"), read_library(), read_asset(LAYOUT_SCRIPT)]))
    return engine


_CHARACTER_WIDTH, _LINE_HEIGHT = (
    7.3,
    15,
)  # width of a character and height of a line, in pixels, in monospace text of 12 pixels
_MARGIN = 12


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as the text of an SVG file. Labels are escaped and lose their control characters.

    Raises:
        CaffejaxError: if the layout library cannot run.
    """
    node_indices = {node: i for i, node in enumerate(drawing.nodes)}
    labels = [strip_control_characters(label) for label, _ in drawing.nodes.values()]
    edge_labels = [strip_control_characters(label) for _, _, label in drawing.edges]
    sizes = [_measure_label(label, 18, 12) for label in labels]
    layout = lay_out(
        sizes,
        [(node_indices[a], node_indices[b]) for a, b, _ in drawing.edges],
        [_measure_label(label, 4, 0) if label else (0, 0) for label in edge_labels],
        drawing.rankdir,
    )
    edges = (
        _format_edge(label, *points_and_label)
        for label, points_and_label in zip(edge_labels, layout.edges, strict=True)
    )
    styles = (style for _, style in drawing.nodes.values())
    nodes = (_format_node(*node) for node in zip(labels, styles, layout.nodes, sizes, strict=True))
    width, height = (round(side + 2 * _MARGIN) for side in layout.size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{-_MARGIN} {-_MARGIN} {width} {height}" '
        'font-family="monospace" font-size="12" text-anchor="middle">\n'
        f"<title>{escape(strip_control_characters(drawing.name))}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        f'<path d="M{-_MARGIN},{-_MARGIN}h{width}v{height}h{-width}z" fill="white"/>\n'
        + "\n".join([*edges, *nodes])
        + "\n</svg>\n"
    )


def _measure_label(label: str, x_margin: float, y_margin: float) -> Point:
    lines = label.split("\n")
    return max(map(len, lines)) * _CHARACTER_WIDTH + x_margin, len(lines) * _LINE_HEIGHT + y_margin


def _format_edge(label: str, points: Iterable[Point], label_center: Point) -> str:
    """Return the SVG of an edge: a smooth line through `points`, and a label centred at `label_center`."""
    first, *bends, last = points
    path = f"M{_format_point(first)}"
    for a, b in pairwise(bends):
        path += f"Q{_format_point(a)} {_format_point(((a[0] + b[0]) / 2, (a[1] + b[1]) / 2))}"
    path += f"Q{_format_point(bends[-1])} {_format_point(last)}" if bends else f"L{_format_point(last)}"
    halo = 'stroke="white" stroke-width="5" paint-order="stroke"'
    text = (
        f'<text x="{label_center[0]:.1f}" y="{label_center[1] + 4:.1f}" {halo}>{escape(label)}</text>' if label else ""
    )
    return f'<path d="{path}" fill="none" stroke="black" marker-end="url(#tip)"/>{text}'


def _format_point(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _format_node(label: str, style: Mapping[str, str], center: Point, size: Point) -> str:
    """Return the SVG of a node: a box or an octagon with lines of text."""
    (x, y), (width, height) = center, size
    left, top = x - width / 2, y - height / 2
    attributes = f'fill="{escape(style["fillcolor"])}" stroke="black"'
    if style["shape"] == "octagon":
        corner = min(width, height) * 0.3
        right_corners = ((corner, 0), (width - corner, 0), (width, corner), (width, height - corner))
        corners = [*right_corners, *((width - a, height - b) for a, b in right_corners)]
        points = " ".join(_format_point((left + a, top + b)) for a, b in corners)
        shape = f'<polygon points="{points}" {attributes}/>'
    else:
        shape = f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {attributes}/>'
    lines = label.split("\n")
    first_baseline = y - (len(lines) - 1) * _LINE_HEIGHT / 2 + 4
    texts = (
        f'<text x="{x:.1f}" y="{first_baseline + i * _LINE_HEIGHT:.1f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return shape + "".join(texts)
