"""Pooling: maxima and averages."""

from __future__ import annotations

from ....errors import require
from ....kernels.window import Window
from ....layers.c3d.nd import nd_windows
from ....layers.c3d.pooling3d import volume_windows
from ....layers.pooling import pool_method, window_pair
from ..building import Emission, writes
from ..program import Shape, Value


@writes("Pooling")
def pooling(e: Emission) -> Value | tuple[Value, ...]:
    """Write nnx.max_pool or nnx.avg_pool with the padding that Caffe's rounding asks for, and maxima's places."""
    method = pool_method(e.p)
    require(method != "STOCHASTIC", "pools at random in training (STOCHASTIC), which flax does not; use MAX or AVE")
    x, placed = e.last(e.bottoms[0]), len(e.layer.tops) > 1
    if e.p.global_pooling:
        require(not placed, "has a second top with the places of maxima over whole planes, which is not supported")
        return _whole(e, method, x)
    window = Window.symmetric(
        window_pair(e.p, "kernel_size", "kernel_h", "kernel_w"),
        window_pair(e.p, "stride", "stride_h", "stride_w"),
        window_pair(e.p, "pad", "pad_h", "pad_w"),
    )
    return _with_places(e, x, window) if placed else _pooled(e, method, x, window)


def _with_places(e: Emission, x: Value, window: Window) -> tuple[Value, ...]:
    out = e.tops[0][2:]
    require(not _sees_padding_alone(x, window, out), "has windows of padding alone, whose maxima have no place")
    settings = _settings(window, padding_of(window, tuple(x.shape[2:]), out))
    helper = "max_pool_with_places"
    return e.split(f"{helper}({{0}}, {settings})", x, e.tops, helpers=[helper])


@writes("Pooling3D")
def pooling3d(e: Emission) -> Value:
    """Write the same over time and the plane."""
    return _over_volume(e, *volume_windows(e.layer.context, e.bottoms[0]))


@writes("NdPooling")
def nd_pooling(e: Emission) -> Value:
    """Write the same over any number of axes."""
    return _over_volume(e, *nd_windows(e.layer.context, e.bottoms[0]))


def _over_volume(e: Emission, method: str, ended: Window, _: Shape) -> Value:
    return _pooled(e, method, e.last(e.bottoms[0]), Window.symmetric(ended.kernel, ended.stride, ended.low))


def _pooled(e: Emission, method: str, x: Value, window: Window) -> Value:
    out = e.tops[0][2:]
    if window.kernel == tuple(x.shape[2:]) and not any(window.low) and set(out) == {1}:
        return _whole(e, method, x)
    if method == "MAX":
        return _maxima(e, x, window, out)
    return _averages(e, x, window, out)


def _whole(e: Emission, method: str, x: Value) -> Value:
    function, axes = "jnp.max" if method == "MAX" else "jnp.mean", tuple(range(1, len(x.shape) - 1))
    return e.call(f"{function}({{0}}, axis={axes}, keepdims=True)", x, shape=e.tops[0], order=x.order)


def _maxima(e: Emission, x: Value, window: Window, out: Shape) -> Value:
    padding = padding_of(window, tuple(x.shape[2:]), out)
    text = f"nnx.max_pool({{0}}, {_settings(window, padding)})"
    if _sees_padding_alone(x, window, out):
        text = f"jnp.maximum({text}, jnp.finfo({{0}}.dtype).min)"
    return e.call(text, x, shape=e.tops[0], order=x.order)


def _sees_padding_alone(x: Value, window: Window, out: Shape) -> bool:
    """Return whether the last window of an axis begins behind the last number."""
    ends = zip(x.shape[2:], window.low, window.stride, out, strict=True)
    return any((o - 1) * stride - low >= n for n, low, stride, o in ends)


def _averages(e: Emission, x: Value, window: Window, out: Shape) -> Value:
    """Write averages over the part of each window inside of the padded plane: padding counts, what lies beyond not."""
    size = tuple(x.shape[2:])
    padding = padding_of(window, size, out)
    beyond = any(high > low for low, high in padding)
    if beyond and any(window.low):
        around = ", ".join(str((low, low)) for low in window.low)
        padded = tuple(n + 2 * low for n, low in zip(size, window.low, strict=True))
        x = e.call(
            f"jnp.pad({{0}}, ((0, 0), {around}, (0, 0)))",
            x,
            shape=(*x.shape[:2], *padded),
            order=x.order,
            blob=x.blob,
        )
        padding = tuple((0, high - low) for low, high in padding)
    counted = ", count_include_pad=False" if beyond else ""
    text = f"nnx.avg_pool({{0}}, {_settings(window, padding)}{counted})"
    return e.call(text, x, shape=e.tops[0], order=x.order)


def padding_of(window: Window, size: Shape, out: Shape) -> tuple[tuple[int, int], ...]:
    """Return (low, high) of each axis: Caffe's own where flax, which rounds down, then has as many windows."""
    needed = window.ending(size, out).padding
    fits = (a == b for a, b in zip(window.output(size), out, strict=True))
    return tuple((low, low) if as_many else (low, high) for (low, high), as_many in zip(needed, fits, strict=True))


def _settings(window: Window, padding: tuple[tuple[int, int], ...]) -> str:
    strides = "" if set(window.stride) == {1} else f", strides={window.stride}"
    padded = f", padding={padding}" if any(map(any, padding)) else ""
    return f"{window.kernel}{strides}{padded}"
