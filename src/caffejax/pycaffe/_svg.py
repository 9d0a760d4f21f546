"""A layered drawing of a directed graph as SVG: nodes in ranks, edges downwards or to the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise

_CHARACTER, _LINE = 7.2, 15  # of 12 pixel monospace text
_GAP, _RANK_GAP, _MARGIN = 22, 46, 12
_SWEEPS = 4

Nodes = Mapping[str, tuple[str, Mapping[str, str]]]
Edge = tuple[str, str, str]


def to_svg(nodes: Nodes, edges: Iterable[Edge], rankdir: str) -> str:
    """Draw a graph, each node in a rank after those that lead to it, and near its neighbours in the next ranks.

    Args:
        nodes: label and style (shape, fillcolor) by node; edges of layers that work in place lead back.
        edges: from, to, label.
        rankdir: "LR", "RL", "TB" or "BT".
    """
    edges = list(edges)
    across, along = (1, 0) if rankdir in ("LR", "RL") else (0, 1)  # which of x and y
    ranks = _ranks(nodes, edges)
    sizes = {n: _size(label) for n, (label, _) in nodes.items()}
    chains = [_chain(e, i, ranks) for i, e in enumerate(edges)]
    for chain in chains:
        for step, bend in enumerate(chain[1:-1], 1):
            sizes[bend], ranks[bend] = (0, 0), ranks[chain[0]] + step
    order = _order(sizes, [pair for chain in chains for pair in pairwise(chain)], ranks)
    widths = [sum(sizes[n][across] + _GAP for n in row) - _GAP for row in order]
    total = [0.0, 0.0]
    total[across] = max(widths, default=0) + 2 * _MARGIN
    places: dict[str, tuple[float, float]] = {}
    position = float(_MARGIN)
    gap = (
        _RANK_GAP if along else max(_RANK_GAP, max((len(label) for _, _, label in edges), default=0) * _CHARACTER + 24)
    )
    for row, width in zip(order, widths, strict=True):
        thick = max(sizes[n][along] for n in row)
        beside = (total[across] - width) / 2
        for n in row:
            centre = beside + sizes[n][across] / 2, position + thick / 2
            places[n] = centre if along else centre[::-1]
            beside += sizes[n][across] + _GAP
        position += thick + gap
    total[along] = position - gap + _MARGIN
    if rankdir in ("RL", "BT"):
        places = {n: (x, total[1] - y) if along else (total[0] - x, y) for n, (x, y) in places.items()}
    back = [ranks[target] <= ranks[source] for source, target, _ in edges]
    parts = [_edge(e[2], c, b, places, sizes, along) for e, c, b in zip(edges, chains, back, strict=True)]
    parts += [_node(node, places[n], sizes[n]) for n, node in nodes.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total[0]:.0f}" height="{total[1]:.0f}" '
        f'font-family="monospace" font-size="12" text-anchor="middle">\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _chain(edge: Edge, number: int, ranks: Mapping[str, int]) -> list[str]:
    """Return the nodes that an edge is led along: its two, and one in each rank between, so that it evades others."""
    source, target, _ = edge
    return [source, *(f"\0{number}/{rank}" for rank in range(ranks[source] + 1, ranks[target])), target]


def _size(label: str) -> tuple[float, float]:
    lines = label.split("\n")
    return max(map(len, lines)) * _CHARACTER + 18, len(lines) * _LINE + 12


def _ranks(nodes: Nodes, edges: list[Edge]) -> dict[str, int]:
    """Order each node after all that lead to it; edges that close a cycle do not count."""
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


def _order(nodes: Iterable[str], edges: list[tuple[str, str]], ranks: Mapping[str, int]) -> list[list[str]]:
    """Return the nodes of each rank, each near the mean place of its neighbours."""
    order: list[list[str]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for node in nodes:
        order[ranks[node]].append(node)
    neighbours: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
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
        corners = [(left + c, top), (right - c, top), (right, top + c), (right, bottom - c)]
        corners += ((right - c, bottom), (left + c, bottom), (left, bottom - c), (left, top + c))
        shape = f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" {paint}/>'
    else:
        shape = f'<rect x="{left:.1f}" y="{top:.1f}" width="{w:.1f}" height="{h:.1f}" {paint}/>'
    lines = label.split("\n")
    first = y - (len(lines) - 1) * _LINE / 2 + 4
    texts = (f'<text x="{x:.1f}" y="{first + i * _LINE:.1f}">{escape(s)}</text>' for i, s in enumerate(lines))
    return shape + "".join(texts)


def _edge(
    label: str,
    chain: list[str],
    back: bool,
    places: Mapping[str, tuple[float, float]],
    sizes: Mapping[str, tuple[float, float]],
    along: int,
) -> str:
    points = [list(places[n]) for n in chain]
    sign = 1 if points[0][along] < points[-1][along] else -1
    points[0][along] += sign * sizes[chain[0]][along] / 2
    points[-1][along] -= sign * sizes[chain[-1]][along] / 2
    if back:  # beside the edge that it goes back along
        for point in points:
            point[1 - along] += 0.3 * min(sizes[n][1 - along] for n in chain)
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        bends = ((x1, y), (x2, y)) if along else ((x, y1), (x, y2))
        path += " C" + " ".join(f"{a:.1f},{b:.1f}" for a, b in (*bends, (x2, y2)))
    x, y = points[-1]
    place = (x + 4, y - 10, "start") if along else (x - 12, y - 4, "end")
    text = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">'.format(*place) + f"{escape(label)}</text>" if label else ""
    return f'<path d="{path}" fill="none" stroke="black" marker-end="url(#tip)"/>{text}'
