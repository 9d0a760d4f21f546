"""Pooling by maxima and means."""

from __future__ import annotations

import numpy as np

from ...kernels.window import Window
from ...layers.pooling import around, pool_method, window_and_size, window_areas
from ..program import Value
from .registry import Call, lowers


@lowers("Pooling")
def pooling(call: Call) -> Value | None:
    """Maxima or means, where oneDNN divides by as many cells as Caffe."""
    method = pool_method(call.param)
    if method == "STOCHASTIC":
        return None
    window, out = window_and_size(call.context, call.like)
    around_all = around(call.like, window, out)
    low, high = zip(*around_all.padding, strict=True)
    if any(not 0 <= pad < kernel for pads in (low, high) for pad, kernel in zip(pads, window.kernel, strict=True)):
        return None
    word = "max" if method == "MAX" else _mean(call.x.shape[2:], window, around_all, out)
    if word is None:
        return None
    return call.writer.add(word, [call.x], call.out, kernel=window.kernel, stride=window.stride, low=low, high=high)


def _mean(size: tuple[int, ...], window: Window, around_all: Window, out: tuple[int, ...]) -> str | None:
    """Return which of oneDNN's means divides by what Caffe's does: by all cells, or by those of the plane."""
    areas = window_areas(size, window, out)
    if np.all(areas == np.prod(window.kernel)):
        return "padded_mean"
    ranges = []
    for n, kernel, stride, low, o in zip(size, window.kernel, window.stride, around_all.low, out, strict=True):
        start = np.arange(o) * stride - low
        ranges.append(np.minimum(start + kernel, n) - np.maximum(start, 0))
    return "mean" if np.array_equal(np.outer(*ranges), areas) else None
