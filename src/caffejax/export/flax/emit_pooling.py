"""Emitters for pooling layers."""

from __future__ import annotations

from ...base.errors import require
from ...core.layers.pooling import pool_method, read_height_width
from ...core.ops.window import Window
from ...forks.c3d.c3d_layers import volume_windows
from ...forks.c3d.nd_layers import read_nd_pooling
from .emit_context import FLAX, FlaxCall
from .ir import Shape, Value


@FLAX.rule("Pooling")
def pooling(e: FlaxCall) -> Value | tuple[Value, ...]:
    """Emit nnx.max_pool or nnx.avg_pool, with the padding that Caffe's rounding of sizes requires.

    If the layer has a second top, which receives the positions of maxima, emit the helper max_pool_with_indices.
    """
    method = pool_method(e.param)
    require(method != "STOCHASTIC", "has the pooling method STOCHASTIC, which flax does not support; use MAX or AVE")
    x, has_positions = e.to_channels_last(e.bottoms[0]), len(e.layer.tops) > 1
    if e.param.global_pooling:
        require(
            not has_positions, "has global_pooling and a second top for the positions of maxima, which is not supported"
        )
        return _emit_global_pooling(e, method, x)
    window = Window.symmetric(
        read_height_width(e.param, "kernel_size", "kernel_h", "kernel_w"),
        read_height_width(e.param, "stride", "stride_h", "stride_w"),
        read_height_width(e.param, "pad", "pad_h", "pad_w"),
    )
    return _emit_max_pool_with_indices(e, x, window) if has_positions else _emit_pooling(e, method, x, window)


def _emit_max_pool_with_indices(e: FlaxCall, x: Value, window: Window) -> tuple[Value, ...]:
    output_size = e.top_shape[2:]
    require(
        not _has_padding_only_window(x, window, output_size),
        "has windows that contain only padding, so their maxima have no positions; this is not supported",
    )
    arguments = _pooling_arguments(window, compute_padding(window, tuple(x.shape[2:]), output_size))
    helper = "max_pool_with_indices"
    return e.add_multi_output_step(f"{helper}({{0}}, {arguments})", x, e.top_shapes, helpers=[helper])


@FLAX.rule("Pooling3D")
def pooling3d(e: FlaxCall) -> Value:
    """Emit pooling over time, height and width."""
    return _emit_symmetric_pooling(e, *volume_windows(e.context, e.bottoms[0]))


@FLAX.rule("NdPooling")
def nd_pooling(e: FlaxCall) -> Value:
    """Emit pooling over any number of spatial axes."""
    return _emit_symmetric_pooling(e, *read_nd_pooling(e.param, e.bottoms[0]))


def _emit_symmetric_pooling(e: FlaxCall, method: str, end_padded: Window, _: Shape) -> Value:
    return _emit_pooling(
        e,
        method,
        e.to_channels_last(e.bottoms[0]),
        Window.symmetric(end_padded.kernel, end_padded.stride, end_padded.low),
    )


def _emit_pooling(e: FlaxCall, method: str, x: Value, window: Window) -> Value:
    output_size = e.top_shape[2:]
    if window.kernel == tuple(x.shape[2:]) and not any(window.low) and set(output_size) == {1}:
        return _emit_global_pooling(e, method, x)
    if method == "MAX":
        return _emit_max_pool(e, x, window, output_size)
    return _emit_average_pool(e, x, window, output_size)


def _emit_global_pooling(e: FlaxCall, method: str, x: Value) -> Value:
    function, axes = "jnp.max" if method == "MAX" else "jnp.mean", tuple(range(1, len(x.shape) - 1))
    return e.add_step(f"{function}({{0}}, axis={axes}, keepdims=True)", x, shape=e.top_shape, order=x.order)


def _emit_max_pool(e: FlaxCall, x: Value, window: Window, output_size: Shape) -> Value:
    padding = compute_padding(window, tuple(x.shape[2:]), output_size)
    text = f"nnx.max_pool({{0}}, {_pooling_arguments(window, padding)})"
    if _has_padding_only_window(x, window, output_size):
        text = f"jnp.maximum({text}, jnp.finfo({{0}}.dtype).min)"
    return e.add_step(text, x, shape=e.top_shape, order=x.order)


def _has_padding_only_window(x: Value, window: Window, output_size: Shape) -> bool:
    """Return whether, along any axis, the last pooling window contains only padding."""
    ends = zip(x.shape[2:], window.low, window.stride, output_size, strict=True)
    return any((o - 1) * stride - low >= n for n, low, stride, o in ends)


def _emit_average_pool(e: FlaxCall, x: Value, window: Window, output_size: Shape) -> Value:
    """Emit average pooling with Caffe's divisor: the number of cells of each window inside the padded input."""
    size = tuple(x.shape[2:])
    padding = compute_padding(window, size, output_size)
    is_asymmetric = any(high > low for low, high in padding)
    if is_asymmetric and any(window.low):
        widths = ", ".join(str((low, low)) for low in window.low)
        padded_size = tuple(n + 2 * low for n, low in zip(size, window.low, strict=True))
        x = e.add_step(
            f"jnp.pad({{0}}, ((0, 0), {widths}, (0, 0)))",
            x,
            shape=(*x.shape[:2], *padded_size),
            order=x.order,
            blob=x.blob,
        )
        padding = tuple((0, high - low) for low, high in padding)
    padding_flag = ", count_include_pad=False" if is_asymmetric else ""
    text = f"nnx.avg_pool({{0}}, {_pooling_arguments(window, padding)}{padding_flag})"
    return e.add_step(text, x, shape=e.top_shape, order=x.order)


def compute_padding(window: Window, size: Shape, output_size: Shape) -> tuple[tuple[int, int], ...]:
    """Return the padding (low, high) of each spatial axis for pooling in flax.

    It is Caffe's symmetric padding (low, low) if flax then computes the same output size as Caffe. Otherwise `high` is
    the padding that Caffe's output size requires.
    """
    fitted_padding = window.fit_padding(size, output_size).padding
    are_equal = (a == b for a, b in zip(window.output_size(size), output_size, strict=True))
    return tuple(
        (low, low) if is_equal else (low, high) for (low, high), is_equal in zip(fitted_padding, are_equal, strict=True)
    )


def _pooling_arguments(window: Window, padding: tuple[tuple[int, int], ...]) -> str:
    strides = "" if set(window.stride) == {1} else f", strides={window.stride}"
    padding_argument = f", padding={padding}" if any(map(any, padding)) else ""
    return f"{window.kernel}{strides}{padding_argument}"
