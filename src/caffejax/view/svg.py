"""A drawing as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise

from .drawing import Drawing, printable
from .engine import Point, lay_out

_CHARACTER, _LINE = 7.3, 15  # of 12 pixel monospace text
_MARGIN = 12


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as SVG, laid out by the page's library. Text in it is escaped, without control characters.

    Raises:
        CaffejaxError: if the library cannot be run here.
    """
    index = {node: i for i, node in enumerate(drawing.nodes)}
    labels = [printable(label) for label, _ in drawing.nodes.values()]
    said = [printable(label) for _, _, label in drawing.edges]
    sizes = [_size(label, 18, 12) for label in labels]
    found = lay_out(
        sizes,
        [(index[a], index[b]) for a, b, _ in drawing.edges],
        [_size(label, 4, 0) if label else (0, 0) for label in said],
        drawing.rankdir,
    )
    edges = (_edge(label, *led) for label, led in zip(said, found.edges, strict=True))
    styles = (style for _, style in drawing.nodes.values())
    nodes = (_node(*node) for node in zip(labels, styles, found.nodes, sizes, strict=True))
    width, height = (round(side + 2 * _MARGIN) for side in found.size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{-_MARGIN} {-_MARGIN} {width} {height}" '
        'font-family="monospace" font-size="12" text-anchor="middle">\n'
        f"<title>{escape(printable(drawing.name))}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        f'<path d="M{-_MARGIN},{-_MARGIN}h{width}v{height}h{-width}z" fill="white"/>\n'
        + "\n".join([*edges, *nodes])
        + "\n</svg>\n"
    )


def _size(label: str, beside: float, above: float) -> Point:
    lines = label.split("\n")
    return max(map(len, lines)) * _CHARACTER + beside, len(lines) * _LINE + above


def _edge(label: str, points: Iterable[Point], middle: Point) -> str:
    """Draw a line through points, round where it bends."""
    first, *bends, last = points
    path = f"M{_at(first)}"
    for a, b in pairwise(bends):
        path += f"Q{_at(a)} {_at(((a[0] + b[0]) / 2, (a[1] + b[1]) / 2))}"
    path += f"Q{_at(bends[-1])} {_at(last)}" if bends else f"L{_at(last)}"
    halo = 'stroke="white" stroke-width="5" paint-order="stroke"'
    text = f'<text x="{middle[0]:.1f}" y="{middle[1] + 4:.1f}" {halo}>{escape(label)}</text>' if label else ""
    return f'<path d="{path}" fill="none" stroke="black" marker-end="url(#tip)"/>{text}'


def _at(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _node(label: str, style: Mapping[str, str], centre: Point, size: Point) -> str:
    """Draw a box, or an octagon, with lines of text."""
    (x, y), (width, height) = centre, size
    left, top = x - width / 2, y - height / 2
    look = f'fill="{escape(style["fillcolor"])}" stroke="black"'
    if style["shape"] == "octagon":
        cut = min(width, height) * 0.3
        far = ((cut, 0), (width - cut, 0), (width, cut), (width, height - cut))
        corners = [*far, *((width - a, height - b) for a, b in far)]
        points = " ".join(_at((left + a, top + b)) for a, b in corners)
        shape = f'<polygon points="{points}" {look}/>'
    else:
        shape = f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'
    lines = label.split("\n")
    first = y - (len(lines) - 1) * _LINE / 2 + 4
    texts = (f'<text x="{x:.1f}" y="{first + i * _LINE:.1f}">{escape(line)}</text>' for i, line in enumerate(lines))
    return shape + "".join(texts)
