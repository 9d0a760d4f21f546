"""Diagrams of the documentation: how a net becomes a program, dtypes with bfloat16, and the windows of Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chart_style import COLORS, new_figure, save_figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from caffejax import Net

POOLING = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 1 dim: 8 } } }
layer { name: "pool" type: "Pooling" bottom: "x" top: "pool"
  pooling_param { kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2 round_mode: ROUND } }
"""


def _draw_box(axes: Any, x: float, title: str, text: str = "", color: str = COLORS[0], width: float = 1.5) -> None:
    axes.add_patch(
        FancyBboxPatch((x, 0), width, 1, boxstyle="round,pad=0.08", facecolor=color, alpha=0.18, linewidth=0)
    )
    axes.text(x + width / 2, 0.72 if text else 0.5, title, ha="center", va="center", weight="bold", fontsize=8.5)
    axes.text(x + width / 2, 0.26, text, ha="center", va="center", fontsize=7.5)


def _draw_arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], text: str = "", **style: Any) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color="#444444", **style))
    if text:
        axes.text((start[0] + end[0]) / 2, start[1] + 0.13, text, ha="center", fontsize=7.5, style="italic")


def _draw_chain(axes: Any, boxes: Sequence[tuple[str, str, str]], arrows: Sequence[str], gap: float = 1.0) -> None:
    """Draw boxes (title, text, color) in a row, with arrows between them."""
    width = 1.5
    for index, (title, text, color) in enumerate(boxes):
        x = index * (width + gap)
        _draw_box(axes, x, title, text, color, width)
        if index:
            _draw_arrow(axes, (x - gap + 0.1, 0.5), (x - 0.1, 0.5), arrows[index - 1])
    axes.set(xlim=(-0.2, len(boxes) * (width + gap) - gap + 0.2), ylim=(-0.3, 1.25))
    axes.axis("off")


def pipeline() -> None:
    """Draw the way from a prototxt to trained params."""
    figure, (axes,) = new_figure(width=11, height=1.5)
    boxes = [
        ("prototxt", "text or binary,\nof any age", COLORS[2]),
        ("NetParameter", "upgraded,\nall fields known", COLORS[1]),
        ("Graph", "layers, shapes,\nshared params", COLORS[1]),
        ("LayerSchedule", "fused, divided,\nrecomputed", COLORS[1]),
        ("pure functions", "init, apply, loss,\nfreeze", COLORS[0]),
        ("one program", "gradient and\nupdate, compiled", COLORS[0]),
    ]
    _draw_chain(axes, boxes, ["schema", "graph", "program", "program", "solver"])
    save_figure(figure, "pipeline")


def bfloat16() -> None:
    """Draw which arrays of a small net are bfloat16."""
    figure, (axes,) = new_figure(width=11, height=2.1)
    bfloat16_color, float32_color = COLORS[3], COLORS[0]
    boxes = [
        ("data", "float32", float32_color),
        ("Convolution", "products in bfloat16,\nsums in float32", bfloat16_color),
        ("BatchNorm, ReLU", "statistics\nin float32", bfloat16_color),
        ("InnerProduct", "products in bfloat16,\nsums in float32", bfloat16_color),
        ("SoftmaxWithLoss", "computes\nin float32", float32_color),
        ("loss", "float32", float32_color),
    ]
    _draw_chain(axes, boxes, ["rounded", "bfloat16", "bfloat16", "bfloat16", "float32"])
    for index in (1, 3):
        x = index * 2.5 + 0.75
        axes.text(x, 1.78, "weight: float32, rounded\ngradient: rounded once, float32", ha="center", fontsize=7.5)
        _draw_arrow(axes, (x, 1.7), (x, 1.12))
    axes.set_ylim(-0.2, 2.25)
    save_figure(figure, "bfloat16")


def pooling() -> None:
    """Draw the windows of Pooling over eight cells, with Caffe's rounding up and with rounding down."""
    figure, axes = new_figure(2, width=9, height=1.9)
    for axis, (mode, title) in zip(axes, {"CEIL": "Caffe: rounded up", "FLOOR": "rounded down"}.items(), strict=True):
        num_windows = Net(POOLING.replace("ROUND", mode), "TEST").graph.blobs["pool"].shape[-1]
        for cell_index in range(8):
            axis.add_patch(Rectangle((cell_index, 0), 1, 0.8, facecolor="white", edgecolor="#888888"))
        for window_index in range(num_windows):
            exceeds_input = window_index * 2 + 3 > 8
            style = {"color": COLORS[3 if exceeds_input else 0], "linewidth": 4, "solid_capstyle": "butt"}
            axis.plot(
                [2 * window_index + 0.08, 2 * window_index + 2.92], [-0.35 - 0.35 * (window_index % 2)] * 2, **style
            )
        axis.set(xlim=(-0.1, 9.2), ylim=(-1, 1))
        axis.set_title(f"{title}: {num_windows} windows", loc="left")
        axis.axis("off")
    figure.suptitle("Pooling of 8 cells, kernel_size 3, stride 2", fontsize=10)
    save_figure(figure, "pooling_windows")
