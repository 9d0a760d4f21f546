"""A picture of the error along the depth of a net."""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from pathlib import Path

from ...atomic import replacing
from ...errors import CaffejaxError
from .comparison import Comparison, Kind, Row

_LINES: dict[Kind, str] = {"top": "tops, forward", "diff": "diffs, backward", "grad": "gradients of params"}
_LEAST = 1e-9  # equal arrays are drawn here


def draw_errors(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Draw the relative error of every array, layers from left to right; the name's end says the format.

    What random numbers decide is left out.

    Raises:
        CaffejaxError: if matplotlib is missing, or the picture cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaffejaxError("pictures need matplotlib: pip install 'caffejax[plot]'") from error
    places = {name: i for i, name in enumerate(dict.fromkeys(row.layer for row in comparison.rows))}
    figure = Figure(figsize=(max(6.4, min(20.0, 0.14 * len(places) + 3)), 5), layout="constrained")
    axes = figure.add_subplot()
    for kind, label in _LINES.items():
        worst: dict[str, float] = {}
        for row in comparison.rows:
            if row.kind == kind and row.distance is not None and row.verdict != "random":
                worst[row.layer] = max(_drawn(row), worst.get(row.layer, 0.0))
        if worst:
            points = sorted((places[name], error) for name, error in worst.items())
            axes.plot(*zip(*points, strict=True), marker=".", label=label)
    if any(row.distance is not None and _drawn(row) == _LEAST for row in comparison.rows):
        axes.axhline(_LEAST, color="lightgrey", zorder=0, label=f"equal, or off by {_LEAST:g} at most")
    axes.axhline(comparison.rtol, color="grey", linestyle=":", label=f"rtol {comparison.rtol:g}")
    if (first := comparison.first) is not None:
        axes.axvline(places[first.layer], color="red", linestyle="--", label=f"first parts: {_plain(first.layer)}")
    axes.set_yscale("log")
    axes.set_ylabel("largest error, as a share of the array's scale")
    step = -(-len(places) // 120)
    shown = [(i, name) for name, i in places.items() if i % step == 0]
    axes.set_xticks([i for i, _ in shown], [_plain(name) for _, name in shown], rotation=90, fontsize=6)
    axes.legend()
    picture = BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # of a name, which the font does not have
            figure.savefig(picture, format=Path(path).suffix[1:] or None)
    except ValueError as error:
        raise CaffejaxError(f"{os.fspath(path)}: {error}") from error
    with replacing(path) as file:
        file.write(picture.getvalue())


def _drawn(row: Row) -> float:
    assert row.distance is not None
    return min(max(row.distance.relative, _LEAST), 1e3)


def _plain(name: str) -> str:
    """Return a name that matplotlib takes for no formula."""
    return name.replace("$", r"\$")
