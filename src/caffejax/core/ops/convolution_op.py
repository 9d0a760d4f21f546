"""Convolution and its gradients in XLA's operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .batch_axis import (
    mapped_size,
    merge_into_channels,
    merge_into_rows,
    move_to_front,
    split_from_channels,
    split_from_rows,
)
from .channel_affine import channel_affine
from .channel_groups import count_groups, run_in_groups
from .channel_reductions import promote
from .custom_gradient import NeededDiffs, make_differentiable
from .implementations import cpu_form
from .platform_dispatch import PlatformOp
from .window import Window

Arrays = tuple[jax.Array, ...]
Axes = Sequence[int | None]


@partial(jax.jit, static_argnames=("window", "relu", "fast"))
def correlate(
    x: jax.Array,
    weight: jax.Array,
    window: Window,
    bias: jax.Array | None = None,
    *,
    factor: jax.Array | None = None,
    relu: bool = False,
    fast: bool = True,
) -> jax.Array:
    """Correlate an array with a weight, multiply by a factor, add a bias, and apply a ReLU if `relu` is true.

    Args:
        x: (batch, inputs, *size).
        weight: (outputs, inputs / groups, *kernel). The number of groups follows from the shapes.
        window: the window over the spatial axes.
        bias: (outputs,), or None.
        factor: (outputs,), or None.
        relu: whether to set negative results to 0.
        fast: whether to use the platform implementations with their custom gradient, instead of XLA's convolution with
            JAX's gradient.

    Returns:
        (batch, outputs, *output size), of the dtype of `x`.
    """
    window = window.drop_negative_padding(x.shape[2:])
    num_results = x.shape[0] * weight.shape[0] * math.prod(window.output_size(x.shape[2:]))
    # scaling the output is cheaper; the sizes of an export may be symbols, which do not compare
    if factor is not None and isinstance(num_results, int) and num_results < weight.size:
        y = correlate(x, weight, window, fast=fast)
        return channel_affine(y, factor, bias, relu=relu, fast=fast)
    if factor is not None:
        weight = (weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))).astype(x.dtype)
    arrays = (x, weight) if bias is None else (x, weight, bias)
    return _make_correlation(window, relu)(*arrays) if fast else _correlate(*arrays, window=window, relu=relu)[0]


def _make_correlation(window: Window, relu: bool) -> Any:
    def forward(*arrays: jax.Array) -> tuple[jax.Array, Any]:
        (y,) = _correlation_operation(window, relu)(*arrays)
        return y, (arrays, y if relu else None)

    def backward(residuals: Any, dy: jax.Array, needed: Sequence[bool]) -> list[jax.Array | None]:
        (x, weight, *_), y = residuals
        needs_x, needs_weight, *needs_bias = needed
        needed_diffs = NeededDiffs(needs_x, needs_weight)
        diffs_operation = _diffs_operation(window, needed_diffs, any(needs_bias), y is not None)
        diffs = iter(diffs_operation(x, dy, weight, *(() if y is None else (y,))))
        return [
            next(diffs).astype(a.dtype) if is_needed else None
            for a, is_needed in zip(residuals[0], needed, strict=True)
        ]

    return make_differentiable(forward, backward)


def _correlation_operation(window: Window, relu: bool) -> PlatformOp:
    return PlatformOp(
        plain=partial(_correlate, window=window, relu=relu),
        cpu=cpu_form("convolution", _correlate, window=window, relu=relu),
        gpu=partial(_correlate_on_gpu, window=window, relu=relu),
        differentiable=False,
        batch_rule=partial(_correlation_batch_rule, window=window, relu=relu),
    )


def _correlate(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, window: Window, relu: bool) -> Arrays:
    y = run_in_groups(partial(_convolve, window), x, weight, count_groups(x.shape[1], weight))
    return (channel_affine(y, None, bias, relu=relu, fast=False).astype(x.dtype),)


def _convolve(window: Window, x: jax.Array, weight: jax.Array, groups: int) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        weight,
        window.stride,
        window.padding,
        rhs_dilation=window.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(*(tuple(range(x.ndim)),) * 3),
        feature_group_count=groups,
    )


def _correlate_on_gpu(
    x: jax.Array, weight: jax.Array, bias: jax.Array | None = None, *, window: Window, relu: bool
) -> Arrays:
    """Convolve with equal padding at both ends, if this does not change the number of windows.

    cuDNN supports only equal padding. For unequal padding, XLA copies the input.
    """
    return _correlate(x, weight, bias, window=window.equalize_padding(x.shape[2:]), relu=relu)


def _correlation_batch_rule(arrays: Sequence[jax.Array], axes: Axes, *, window: Window, relu: bool) -> Arrays:
    size = mapped_size(arrays, axes)
    x, *weight_and_bias = arrays
    if not any(a is not None for a in axes[1:]):
        (y,) = _correlation_operation(window, relu)(merge_into_rows(move_to_front(x, axes[0], size)), *weight_and_bias)
        return (split_from_rows(y, size),)
    x, *weight_and_bias = (move_to_front(a, axis, size) for a, axis in zip(arrays, axes, strict=True))
    (y,) = _correlation_operation(window, relu)(merge_into_channels(x), *map(merge_into_rows, weight_and_bias))
    return (split_from_channels(y, size),)


def _diffs_operation(window: Window, needed: NeededDiffs, needs_bias: bool, relu: bool) -> PlatformOp:
    """Return the operation that maps `(x, dy, weight)`, or `(x, dy, weight, y)` with a ReLU, to the needed diffs."""
    options: Any = {"window": window, "needed": needed, "needs_bias": needs_bias}
    return PlatformOp(
        plain=partial(_compute_needed_diffs, _compute_diffs, **options),
        cpu=partial(_compute_needed_diffs, cpu_form("convolution_diffs", _compute_diffs), **options),
        tpu=partial(_compute_needed_diffs_on_tpu, **options),
        differentiable=False,
        batch_rule=partial(_diffs_batch_rule, **options, relu=relu),
    )


def _compute_needed_diffs(
    run: Any,
    x: jax.Array,
    dy: jax.Array,
    weight: jax.Array,
    y: jax.Array | None = None,
    *,
    window: Window,
    needed: NeededDiffs,
    needs_bias: bool,
) -> Arrays:
    dy = dy if y is None else jnp.where(y <= 0, 0, dy)  # not `y > 0`, by which the diff at a NaN would be 0
    diffs = run(x, dy, weight, window=window, needed=needed, needs_bias=needs_bias)
    return tuple(d for d, is_needed in zip(diffs, (needed.x, needed.weight, needs_bias), strict=True) if is_needed)


def _compute_needed_diffs_on_tpu(
    x: jax.Array,
    dy: jax.Array,
    weight: jax.Array,
    y: jax.Array | None = None,
    *,
    needed: NeededDiffs,
    **options: Any,
) -> Arrays:
    """Return the needed diffs on a TPU. In the first layer of a float32 net, hide from XLA that `y` is a ReLU's output.

    The input of the first layer is data, which needs no diff. Without the barrier, XLA computes the mask of the ReLU
    from the ReLU's input, and keeps both its input and its output in memory: twice the net's largest array.
    """
    if y is not None and not needed.x and y.dtype == jnp.float32:
        y = lax.optimization_barrier(y)
    return _compute_needed_diffs(_compute_diffs_on_tpu, x, dy, weight, y, needed=needed, **options)


def _compute_diffs(
    x: jax.Array, dy: jax.Array, weight: jax.Array, *, window: Window, needed: NeededDiffs, needs_bias: bool
) -> tuple[jax.Array | None, ...]:
    run, dy = partial(_correlate, window=window, relu=False), dy.astype(x.dtype)
    dx = jax.linear_transpose(lambda x: run(x, weight)[0], x)(dy)[0] if needed.x else None
    d_weight = jax.linear_transpose(lambda weight: run(x, weight)[0], weight)(dy)[0] if needed.weight else None
    return dx, d_weight, jnp.sum(promote(dy), (0, *range(2, dy.ndim))) if needs_bias else None


def _compute_diffs_on_tpu(
    x: jax.Array, dy: jax.Array, weight: jax.Array, *, window: Window, needed: NeededDiffs, needs_bias: bool
) -> tuple[jax.Array | None, ...]:
    """Return the diffs on a TPU. For a float32 input of one channel, the weight's diff is computed from patches.

    The TPU compiler takes minutes or longer for a convolution that computes this diff in full precision.
    """
    if not (needed.weight and x.shape[1] == 1 and x.dtype == jnp.float32):
        return _compute_diffs(x, dy, weight, window=window, needed=needed, needs_bias=needs_bias)
    needed_without_weight = NeededDiffs(needed.x, weight=False)
    dx, _, d_bias = _compute_diffs(x, dy, weight, window=window, needed=needed_without_weight, needs_bias=needs_bias)
    padded = jnp.pad(x[:, 0], [(0, 0), *((max(low, 0), max(high, 0)) for low, high in window.padding)])
    patches = jnp.stack([padded[(slice(None), *cells)] for cells in window.cells(dy.shape[2:])], 1)
    summed_axes = (0, *range(2, dy.ndim))
    return dx, jnp.tensordot(dy, patches, (summed_axes, summed_axes)).reshape(weight.shape), d_bias


def _diffs_batch_rule(
    arrays: Sequence[jax.Array], axes: Axes, *, window: Window, needed: NeededDiffs, needs_bias: bool, relu: bool
) -> Arrays:
    size = mapped_size(arrays, axes)
    x, dy, weight, *y = (move_to_front(a, axis, size) for a, axis in zip(arrays, axes, strict=True))
    if axes[2] is None and not (needed.weight or needs_bias):
        rows = map(merge_into_rows, (x, dy))
        (dx,) = _diffs_operation(window, needed, needs_bias, relu)(*rows, arrays[2], *map(merge_into_rows, y))
        return (split_from_rows(dx, size),)
    merged_arrays = [
        merge_into_channels(x),
        merge_into_channels(dy),
        merge_into_rows(weight),
        *map(merge_into_channels, y),
    ]
    diffs = iter(_diffs_operation(window, needed, needs_bias, relu)(*merged_arrays))
    split_functions = (split_from_channels, split_from_rows, split_from_rows)
    return tuple(
        f(next(diffs), size)
        for f, is_needed in zip(split_functions, (needed.x, needed.weight, needs_bias), strict=True)
        if is_needed
    )
