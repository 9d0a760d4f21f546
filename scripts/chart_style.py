"""The style of the documentation's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
COLORS = ("#00796b", "#4db6ac", "#8d99ae", "#f4a259", "#5b6c8f", "#c0392b")  # the site's teal first
MAX_BYTES = 120_000
mpl.rcParams.update(
    {
        "axes.prop_cycle": mpl.cycler(color=COLORS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "font.size": 9,
        "legend.frameon": False,
        "figure.dpi": 100,
    }
)


def new_figure(
    columns: int = 1, rows: int = 1, width: float = 9.0, height: float = 4.0, **subplot_options: Any
) -> tuple[Figure, list[Any]]:
    """Return a figure of `width` x `height` inches, and its axes row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **subplot_options)
    return figure, list(axes.flat)


def save_figure(figure: Figure, name: str) -> None:
    """Write a figure as a picture of the documentation; see `keep`."""
    path = PICTURES / f"{name}.png"
    figure.savefig(path, bbox_inches="tight", pad_inches=0.1)
    save_quantized(path, name)


def save_quantized(file: Path, name: str, colors: int = 128) -> None:
    """Keep a file as a picture of the documentation, in few colors.

    Raises:
        SystemExit: if the file would be too large for a repository.
    """
    path = PICTURES / f"{name}.png"
    with Image.open(file) as image:
        image.convert("RGB").quantize(colors).save(path, optimize=True)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise SystemExit(f"{path} has {size} bytes, more than {MAX_BYTES}")
    print(f"wrote {path.name}, {size // 1000} kB", flush=True)


def draw_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    number_format: str = "{:.2f}",
    first_color: int = 0,
) -> None:
    """Draw a group of horizontal bars for each name in `groups`, the first on top, with a bar for each series.

    The first series has the color with the number `first_color`.
    """
    thickness = 0.8 / max(len(series), 2)
    for index, (label, values) in enumerate(series.items()):
        positions = [position + (index - (len(series) - 1) / 2) * thickness for position in range(len(groups))]
        bars = axes.barh(
            positions, [value or 0 for value in values], thickness, label=label, color=COLORS[first_color + index]
        )
        axes.bar_label(
            bars, ["" if value is None else number_format.format(value) for value in values], padding=2, fontsize=7
        )
    axes.set_yticks(range(len(groups)), groups)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.1)
