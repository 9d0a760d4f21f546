"""Pooling, and what takes means over windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.window import Shape, Window
from ....layers.pooling import around, pool_method, window_and_size, window_areas
from .registry import Call, Tops, emits


@emits(
    "Pooling",
    operators="MaxPool, AveragePool (and Mul, where windows reach beyond the padding), GlobalMaxPool, "
    "GlobalAveragePool",
    unless="STOCHASTIC, two tops, or windows that leave out much of the plane",
)
def pooling(call: Call) -> Tops | None:
    """Pooling with the padding that Caffe's sizes, which round up, ask for."""
    method = pool_method(call.param)
    if len(call.shapes) != 1 or method == "STOCHASTIC":
        return None
    window, out = window_and_size(call.context, call.like)
    size = call.x.shape[2:]
    if out == (1, 1) and window.kernel == size and not any(window.low):
        return call.emit("GlobalMaxPool" if method == "MAX" else "GlobalAveragePool")
    if method == "AVE":
        name = averaged(call, call.name(call.x), window, out)
        return None if name is None else call.top(name)
    window = around(call.like, window, out)
    pads = _pads(window)
    return None if pads is None else call.emit("MaxPool", pads=pads, **_slides(window))


def averaged(call: Call, name: str, window: Window, out: Shape) -> str | None:
    """Add means over windows, divided by as many cells as each has in the padded plane; None if no operator can."""
    areas = window_areas(call.x.shape[2:], window, out)
    window = around(call.like, window, out)
    pads, b = _pads(window), call.builder
    if pads is None:
        return None
    means: str = b.node("AveragePool", [name], pads=pads, count_include_pad=1, **_slides(window))
    cells = np.float32(np.prod(window.kernel))
    if np.all(areas == cells):
        return means
    found: str = b.node("Mul", [means, call.array(cells / areas, "cells")])
    return found


def _slides(window: Window) -> dict[str, Any]:
    return {"kernel_shape": list(window.kernel), "strides": list(window.stride)}


def _pads(window: Window) -> list[int] | None:
    """Return the padding as ONNX has it: none that is negative, or wider than the kernel."""
    low, high = zip(*window.padding, strict=True)
    fits = all(0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True))
    return [*low, *high] if fits else None
