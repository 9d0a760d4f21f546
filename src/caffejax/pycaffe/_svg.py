"""A layered drawing of a directed graph as SVG: nodes in ranks, edges downwards or to the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape

_CHARACTER, _LINE = 7.2, 15  # of 12 pixel monospace text
_GAP, _RANK_GAP, _MARGIN = 18, 46, 12
_SWEEPS = 4

Nodes = Mapping[str, tuple[str, Mapping[str, str]]]
Edge = tuple[str, str, str]


def to_svg(nodes: Nodes, edges: Iterable[Edge], rankdir: str) -> str:
    """Draws a graph.

    Args:
        nodes: label and style (shape, fillcolor) by node; edges of layers that work in place lead back.
        edges: from, to, label.
        rankdir: "LR", "RL", "TB" or "BT".
    """
    edges = list(edges)
    sideways = rankdir in ("LR", "RL")
    sizes = {n: _size(label) for n, (label, _) in nodes.items()}
    ranks = _ranks(nodes, edges)
    order = _order(nodes, edges, ranks)
    depth = [max(sizes[n][not sideways] for n in row) for row in order]
    span = [sum(sizes[n][sideways] + _GAP for n in row) for row in order]
    places: dict[str, tuple[float, float]] = {}
    along = float(_MARGIN)
    for row, thick, wide in zip(order, depth, span, strict=True):
        across = _MARGIN + (max(span) - wide + _GAP) / 2
        for n in row:
            centre = across + sizes[n][sideways] / 2
            places[n] = (along + thick / 2, centre) if sideways else (centre, along + thick / 2)
            across += sizes[n][sideways] + _GAP
        along += thick + _RANK_GAP
    long, wide = along - _RANK_GAP + _MARGIN, max(span, default=0.0) - _GAP + 2 * _MARGIN
    width, height = (long, wide) if sideways else (wide, long)
    if rankdir in ("RL", "BT"):
        places = {n: (width - x, y) if sideways else (x, height - y) for n, (x, y) in places.items()}
    parts = [_edge(e, places, sizes, sideways, ranks) for e in edges]
    parts += [_node(nodes[n], places[n], sizes[n]) for row in order for n in row]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="monospace" font-size="12" text-anchor="middle">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _size(label: str) -> tuple[float, float]:
    lines = label.split("\n")
    return max(map(len, lines)) * _CHARACTER + 18, len(lines) * _LINE + 12


def _ranks(nodes: Nodes, edges: list[Edge]) -> dict[str, int]:
    """Each node after all that lead to it; edges that close a cycle do not count."""
    followers: dict[str, list[str]] = defaultdict(list)
    for source, target, _ in edges:
        followers[source].append(target)
    finished: dict[str, None] = {}
    open_nodes: set[str] = set()
    forward: list[tuple[str, str]] = []
    for start in nodes:
        stack = [] if start in finished else [(start, iter(followers[start]))]
        open_nodes.update(n for n, _ in stack)
        while stack:
            node, rest = stack[-1]
            for follower in rest:
                if follower in open_nodes:
                    continue
                forward.append((node, follower))
                if follower not in finished:
                    open_nodes.add(follower)
                    stack.append((follower, iter(followers[follower])))
                    break
            else:
                stack.pop()
                open_nodes.discard(node)
                finished[node] = None
    ranks = dict.fromkeys(nodes, 0)
    leads_to: dict[str, list[str]] = defaultdict(list)
    for source, target in forward:
        leads_to[source].append(target)
    for node in reversed(finished):  # in topological order
        for target in leads_to[node]:
            ranks[target] = max(ranks[target], ranks[node] + 1)
    return ranks


def _order(nodes: Nodes, edges: list[Edge], ranks: Mapping[str, int]) -> list[list[str]]:
    """The nodes of each rank, each near the mean place of its neighbours."""
    order: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in nodes:
        order[ranks[node]].append(node)
    neighbours: dict[str, list[str]] = defaultdict(list)
    for source, target, _ in edges:
        neighbours[source].append(target)
        neighbours[target].append(source)
    for _ in range(_SWEEPS):
        place = {n: (i + 0.5) / len(row) for row in order for i, n in enumerate(row)}
        for row in order:
            near = {n: sum(place[m] for m in neighbours[n]) / (len(neighbours[n]) or 1) for n in row}
            row.sort(key=near.__getitem__)
            place.update({n: (i + 0.5) / len(row) for i, n in enumerate(row)})
    return order


def _node(node: tuple[str, Mapping[str, str]], place: tuple[float, float], size: tuple[float, float]) -> str:
    (label, style), (x, y), (w, h) = node, place, size
    left, right, top, bottom = x - w / 2, x + w / 2, y - h / 2, y + h / 2
    paint = f'fill="{escape(style["fillcolor"])}" stroke="black"'
    if style["shape"] == "octagon":
        c = 7  # what the corners lose
        corners = ((left + c, top), (right - c, top), (right, top + c), (right, bottom - c))
        corners += ((right - c, bottom), (left + c, bottom), (left, bottom - c), (left, top + c))
        shape = f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" {paint}/>'
    else:
        shape = f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" {paint}/>'
    lines = label.split("\n")
    first = y - (len(lines) - 1) * _LINE / 2 + 4
    texts = (f'<text x="{x:.1f}" y="{first + i * _LINE:.1f}">{escape(s)}</text>' for i, s in enumerate(lines))
    return shape + "".join(texts)


def _edge(
    edge: Edge,
    places: Mapping[str, tuple[float, float]],
    sizes: Mapping[str, tuple[float, float]],
    sideways: bool,
    ranks: Mapping[str, int],
) -> str:
    source, target, label = edge
    (x1, y1), (x2, y2) = places[source], places[target]
    axis = 0 if sideways else 1
    sign = 1 if (x1, y1)[axis] < (x2, y2)[axis] else -1
    back = 0.3 if ranks[target] <= ranks[source] else 0.0  # beside the edge that it goes back along
    out1, out2 = sign * sizes[source][axis] / 2, -sign * sizes[target][axis] / 2
    beside = back * min(sizes[source][1 - axis], sizes[target][1 - axis])
    if sideways:
        x1, x2, y1, y2 = x1 + out1, x2 + out2, y1 + beside, y2 + beside
        bend = f"{(x1 + x2) / 2:.1f},{y1:.1f} {(x1 + x2) / 2:.1f},{y2:.1f}"
    else:
        y1, y2, x1, x2 = y1 + out1, y2 + out2, x1 + beside, x2 + beside
        bend = f"{x1:.1f},{(y1 + y2) / 2:.1f} {x2:.1f},{(y1 + y2) / 2:.1f}"
    path = f'<path d="M{x1:.1f},{y1:.1f} C{bend} {x2:.1f},{y2:.1f}" fill="none" stroke="black" marker-end="url(#tip)"/>'
    text = f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 - 3:.1f}">{escape(label)}</text>' if label else ""
    return path + text
