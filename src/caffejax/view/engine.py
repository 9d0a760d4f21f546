"""The page's layout library outside of browsers, run by V8.

V8 comes from the package mini-racer, which has wheels for all platforms, needs no program beside it, and gives scripts
no access to files or network. It sees numbers only, no names.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import CaffejaxError
from ..sizes import in_words
from .page import LAYOUT, asset, library

Point = tuple[float, float]
_LONGEST = 300  # seconds
_MEMORY = 4 << 30  # bytes
_given_up: list[Any] = []  # their last answers may come late, and need the event loops that are closed with them


@dataclass(frozen=True)
class Layout:
    """Where things are drawn, in pixels.

    Attributes:
        size: of the drawing.
        nodes: the nodes' centres.
        edges: for each edge the points that it is led through, and the middle of its label.
    """

    size: Point
    nodes: tuple[Point, ...]
    edges: tuple[tuple[tuple[Point, ...], Point], ...]


def lay_out(sizes: Sequence[Point], edges: Sequence[tuple[int, int]], labels: Sequence[Point], rankdir: str) -> Layout:
    """Lay out a directed graph in ranks; edges that close a cycle lead back.

    Args:
        sizes: the nodes' widths and heights.
        edges: from node, to node, by index.
        labels: the sizes of the edges' labels; (0, 0) for none.
        rankdir: "LR", "RL", "TB" or "BT".

    Raises:
        CaffejaxError: if the package mini-racer is not installed, or the graph is too large for it.
    """
    nodes = [{"id": str(i), "width": width, "height": height} for i, (width, height) in enumerate(sizes)]
    ends = [
        {"from": str(a), "to": str(b), "width": width, "height": height}
        for (a, b), (width, height) in zip(edges, labels, strict=True)
    ]
    found = _run(f"JSON.stringify(layOut({json.dumps(nodes)}, {json.dumps(ends)}, {json.dumps(rankdir)}))")
    return Layout(
        size=(found["width"], found["height"]),
        nodes=tuple(map(_point, found["nodes"])),
        edges=tuple((tuple(map(_point, edge["points"])), _point(edge["label"])) for edge in found["edges"]),
    )


def _point(place: dict[str, float]) -> Point:
    return place["x"], place["y"]


def _run(script: str) -> Any:
    """Run a script in a thread of its own: mini-racer cannot wait where an event loop runs, as it does in notebooks."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run_here, script).result()


def _run_here(script: str) -> Any:
    engine = _engine()
    from py_mini_racer import JSEvalException, JSOOMException, JSTimeoutException

    try:
        return json.loads(engine.eval(script, timeout_sec=_LONGEST, max_memory=_MEMORY))
    except (JSOOMException, JSTimeoutException) as error:
        _engine.cache_clear()
        _given_up.append(engine)
        atexit.unregister(engine.close)
        raise _too_large(f"{_LONGEST} s and {in_words(_MEMORY)} do not suffice") from error
    except JSEvalException as error:
        if "call stack" not in str(error):
            raise
        raise _too_large("its longest path is too long") from error


def _too_large(why: str) -> CaffejaxError:
    return CaffejaxError(f"the net is too large to be laid out: {why}; draw one phase, or write a .dot")


@cache
def _engine() -> Any:
    try:
        from py_mini_racer import MiniRacer
    except ImportError as error:
        raise CaffejaxError(
            "drawing to .svg needs Graphviz's program 'dot', which was not found, or the package mini-racer: install "
            'the package graphviz, or pip install "caffejax[draw]"; .dot needs neither'
        ) from error
    engine = MiniRacer()
    atexit.register(engine.close)  # later its threads cannot call Python any more, and closing waits for them for ever
    engine.eval("\n".join([asset("engine.js"), library(), asset(LAYOUT)]))
    return engine
