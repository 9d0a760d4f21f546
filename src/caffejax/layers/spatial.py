"""Kernel, stride, pad and dilation of convolution, in the several ways Caffe writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import require
from ..kernels.window import Window
from .context import Shape


def convolution_window(p: Any, n_axes: int) -> Window:
    """Read the window of a ConvolutionParameter over `n_axes` spatial axes.

    Raises:
        LayerError: for numbers that are missing, zero, or given twice.
    """
    window = Window.symmetric(
        kernel=_per_axis(p, "kernel_size", ("kernel_h", "kernel_w"), n_axes, None),
        stride=_per_axis(p, "stride", ("stride_h", "stride_w"), n_axes, 1),
        pad=_per_axis(p, "pad", ("pad_h", "pad_w"), n_axes, 0),
        dilation=_dilation(p, n_axes),
    )
    for name in ("kernel", "stride", "dilation"):
        require(all(v > 0 for v in getattr(window, name)), f"{name} must be positive: {getattr(window, name)}")
    return window


# other names that forks have for `dilation`: by axis as kernel_h is, and DeepLab's
DILATION_OF_FORKS = ("dilation_h", "dilation_w", "hole", "hole_h", "hole_w")


def _dilation(p: Any, n_axes: int) -> Shape:
    given = [name for name in ("hole", "hole_h", "hole_w") if p.HasField(name)]
    if not given:
        return _per_axis(p, "dilation", ("dilation_h", "dilation_w"), n_axes, 1)
    own = [name for name in ("dilation_h", "dilation_w") if p.HasField(name)] + ["dilation"] * bool(p.dilation)
    require(not own, f"give either {given[0]} or {own[0] if own else ''}, which mean the same, not both")
    if given == ["hole"]:
        return (p.hole,) * n_axes
    require(given == ["hole_h", "hole_w"], "give either hole or both of hole_h and hole_w")
    require(n_axes == 2, f"hole_h and hole_w need 2 spatial axes, not {n_axes}; use dilation")
    return (p.hole_h, p.hole_w)


def _per_axis(p: Any, name: str, pair: Sequence[str], n_axes: int, default: int | None) -> Shape:
    values = list(getattr(p, name))
    if any(p.HasField(field) for field in pair):
        require(n_axes == 2, f"{pair[0]} and {pair[1]} need 2 spatial axes, not {n_axes}; use {name}")
        require(not values, f"give either {name} or {pair[0]} and {pair[1]}, not both")
        require(
            name == "pad" or all(p.HasField(field) for field in pair),
            f"{pair[0]} and {pair[1]} must both be given",
        )
        return tuple(getattr(p, f) if p.HasField(f) else default or 0 for f in pair)
    if not values:
        require(default is not None or n_axes == 0, f"{name} (or {' and '.join(pair)}) must be given")
        return (default or 0,) * n_axes
    require(
        len(values) in (1, n_axes),
        f"{name} must be given once or once per spatial axis: {len(values)} values for {n_axes} axes",
    )
    return tuple(values * n_axes if len(values) == 1 else values)


def convolution_output(size: Shape, window: Window) -> Shape:
    """Return the output size along each axis, rounded towards zero as Caffe's integer division does.

    Raises:
        LayerError: if the kernel does not fit.
    """
    axes = zip(size, window.extent, window.stride, window.padding, strict=True)
    out = tuple(int((n + low + high - extent) / stride) + 1 for n, extent, stride, (low, high) in axes)
    require(
        all(n > 0 for n in out),
        f"the kernel does not fit: input {size}, kernel extent {window.extent}, pad {window.low}",
    )
    return out
