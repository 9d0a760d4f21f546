"""Pooling: maxima and averages."""

from __future__ import annotations

from ....errors import require
from ....kernels.window import Window
from ....layers.pooling import pool_method, window_pair
from ..building import Emission, writes
from ..program import Shape, Value


@writes("Pooling")
def pooling(e: Emission) -> Value:
    """Write nnx.max_pool or nnx.avg_pool with the padding that Caffe's rounding asks for."""
    method = pool_method(e.p)
    require(method != "STOCHASTIC", "pools at random in training (STOCHASTIC), which flax does not; use MAX or AVE")
    require(len(e.layer.tops) == 1, "has a second top with the places of the maxima, which is not supported")
    x, shape = e.last(e.bottoms[0]), e.tops[0]
    size, out = tuple(x.shape[2:]), shape[2:]
    if e.p.global_pooling:
        return _whole(e, method, x)
    window = Window.symmetric(
        window_pair(e.p, "kernel_size", "kernel_h", "kernel_w"),
        window_pair(e.p, "stride", "stride_h", "stride_w"),
        window_pair(e.p, "pad", "pad_h", "pad_w"),
    )
    if window.kernel == size and not any(window.low) and out == (1, 1):
        return _whole(e, method, x)
    if method == "MAX":
        return _maxima(e, x, window, out)
    return _averages(e, x, window, out)


def _whole(e: Emission, method: str, x: Value) -> Value:
    function = "jnp.max" if method == "MAX" else "jnp.mean"
    return e.call(f"{function}({{0}}, axis=(1, 2), keepdims=True)", x, shape=e.tops[0], order=x.order)


def _maxima(e: Emission, x: Value, window: Window, out: Shape) -> Value:
    padding = padding_of(window, tuple(x.shape[2:]), out)
    text = f"nnx.max_pool({{0}}, {_settings(window, padding)})"
    ends = zip(x.shape[2:], window.low, window.stride, out, strict=True)
    if any((o - 1) * stride - low >= n for n, low, stride, o in ends):  # a window of padding alone
        text = f"jnp.maximum({text}, jnp.finfo({{0}}.dtype).min)"
    return e.call(text, x, shape=e.tops[0], order=x.order)


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
    strides = "" if window.stride == (1, 1) else f", strides={window.stride}"
    padded = f", padding={padding}" if any(map(any, padding)) else ""
    return f"{window.kernel}{strides}{padded}"
