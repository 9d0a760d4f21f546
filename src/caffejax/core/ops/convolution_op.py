"""Convolution and its gradients in XLA's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from .channels import channel_affine, promote
from .custom_gradient import NeededDiffs, make_differentiable
from .implementations import cpu_form
from .platform_dispatch import (
    Arrays,
    Function,
    PlatformOp,
    map_rows,
    mapped_size,
    merge_into_channels,
    merge_into_rows,
    move_to_front,
    split_from_channels,
    split_from_rows,
)
from .window import Window

Axes = Sequence[int | None]


@partial(jax.jit, static_argnames=("window", "relu", "fast"))
def correlate(
    x: Array,
    weight: Array,
    window: Window,
    bias: Array | None = None,
    *,
    factor: Array | None = None,
    relu: bool = False,
    fast: bool = True,
) -> Array:
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
    def forward(*arrays: Array) -> tuple[Array, Any]:
        operation = PlatformOp(
            plain=partial(_correlate, window=window, relu=relu),
            cpu=cpu_form("convolution", _correlate, window=window, relu=relu),
            gpu=partial(_correlate_on_gpu, window=window, relu=relu),
            differentiable=False,
            batch_rule=_correlation_batch_rule,
        )
        (y,) = operation(*arrays)
        return y, (arrays, (y,) if relu else ())

    def backward(residuals: Any, dy: Array, needed: Sequence[bool]) -> list[Array | None]:
        (x, weight, *_), y = residuals
        needs_x, needs_weight, *needs_bias = needed
        options: Any = {
            "window": window,
            "needed": NeededDiffs(needs_x, needs_weight),
            "needs_bias": any(needs_bias),
        }
        operation = PlatformOp(
            plain=partial(_compute_needed_diffs, _compute_diffs, **options),
            cpu=partial(_compute_needed_diffs, cpu_form("convolution_diffs", _compute_diffs), **options),
            tpu=partial(_compute_needed_diffs_on_tpu, **options),
            differentiable=False,
            batch_rule=partial(_diffs_batch_rule, list(needed)),
        )
        diffs = iter(operation(x, dy, weight, *y))
        return [
            next(diffs).astype(a.dtype) if is_needed else None
            for a, is_needed in zip(residuals[0], needed, strict=True)
        ]

    return make_differentiable(forward, backward)


def _correlate(x: Array, weight: Array, bias: Array | None = None, *, window: Window, relu: bool) -> Arrays:
    y = run_in_groups(partial(_convolve, window), x, weight, x.shape[1] // weight.shape[1])
    return (channel_affine(y, None, bias, relu=relu, fast=False).astype(x.dtype),)


def run_in_groups(run: Callable[[Array, Array, int], Array], x: Array, weight: Array, groups: int) -> Array:
    """Return `run(x, weight, groups)`, the grouped convolution, computed one group at a time where that is faster.

    Group k consists of the k-th of `groups` equal parts of the channels of `x`, (batch, channels, ...), and the k-th
    part of the first axis of `weight`.

    In a program for several devices, XLA would gather the full batch for the gradient of a grouped convolution, except
    for a depthwise convolution. In such programs the groups are therefore computed one by one. This is also faster on
    CPUs, and moves less memory on TPUs.
    """
    if groups in (1, weight.shape[0] * weight.shape[1]):
        return run(x, weight, groups)

    def run_grouped(x: Array, weight: Array) -> tuple[Array]:
        return (run(x, weight, groups),)

    def run_separately(x: Array, weight: Array) -> tuple[Array]:
        return (run_group_by_group(lambda x, weight: run(x, weight, 1), x, weight, groups),)

    return PlatformOp(run_grouped, cpu=run_separately, tpu=run_separately, partitioned=run_separately)(x, weight)[0]


def run_group_by_group(run: Callable[[Array, Array], Array], x: Array, weight: Array, groups: int) -> Array:
    """Call `run` on each group of channels of `x` and rows of `weight`, and concatenate the results on axis 1."""
    group_operands = zip(jnp.split(x, groups, 1), jnp.split(weight, groups), strict=True)
    return jnp.concatenate([run(xs, ws) for xs, ws in group_operands], 1)


def _convolve(window: Window, x: Array, weight: Array, groups: int) -> Array:
    return lax.conv_general_dilated(
        x,
        weight,
        window.stride,
        window.padding,
        rhs_dilation=window.dilation,
        dimension_numbers=lax.ConvDimensionNumbers(*(tuple(range(x.ndim)),) * 3),
        feature_group_count=groups,
    )


def _correlate_on_gpu(x: Array, weight: Array, bias: Array | None = None, *, window: Window, relu: bool) -> Arrays:
    """Convolve with equal padding at both ends, if this does not change the number of windows.

    cuDNN supports only equal padding. For unequal padding, XLA copies the input.
    """
    return _correlate(x, weight, bias, window=window.equalize_padding(x.shape[2:]), relu=relu)


def _correlation_batch_rule(operation: Function, arrays: Sequence[Array], axes: Axes) -> Arrays:
    x, *weight_and_bias = arrays
    if not any(a is not None for a in axes[1:]):
        return map_rows(lambda x: operation(x, *weight_and_bias), [x], axes[:1])
    size = mapped_size(arrays, axes)
    x, *weight_and_bias = (move_to_front(a, axis, size) for a, axis in zip(arrays, axes, strict=True))
    (y,) = operation(merge_into_channels(x), *map(merge_into_rows, weight_and_bias))
    return (split_from_channels(y, size),)


def _compute_needed_diffs(
    run: Any,
    x: Array,
    dy: Array,
    weight: Array,
    y: Array | None = None,
    *,
    window: Window,
    needed: NeededDiffs,
    needs_bias: bool,
) -> Arrays:
    dy = dy if y is None else jnp.where(y <= 0, 0, dy)  # not `y > 0`, by which the diff at a NaN would be 0
    diffs = run(x, dy, weight, window=window, needed=needed, needs_bias=needs_bias)
    return tuple(d for d, is_needed in zip(diffs, (needed.x, needed.weight, needs_bias), strict=True) if is_needed)


def _compute_needed_diffs_on_tpu(
    x: Array, dy: Array, weight: Array, y: Array | None = None, *, needed: NeededDiffs, **options: Any
) -> Arrays:
    """Return the needed diffs on a TPU. In the first layer of a float32 net, hide from XLA that `y` is a ReLU's output.

    The input of the first layer is data, which needs no diff. Without the barrier, XLA computes the mask of the ReLU
    from the ReLU's input, and keeps both its input and its output in memory: twice the net's largest array.
    """
    if y is not None and not needed.x and y.dtype == jnp.float32:
        y = lax.optimization_barrier(y)
    return _compute_needed_diffs(_compute_diffs_on_tpu, x, dy, weight, y, needed=needed, **options)


def _compute_diffs(
    x: Array, dy: Array, weight: Array, *, window: Window, needed: NeededDiffs, needs_bias: bool
) -> tuple[Array | None, ...]:
    run, dy = partial(_correlate, window=window, relu=False), dy.astype(x.dtype)
    dx = jax.linear_transpose(lambda x: run(x, weight)[0], x)(dy)[0] if needed.x else None
    d_weight = jax.linear_transpose(lambda weight: run(x, weight)[0], weight)(dy)[0] if needed.weight else None
    return dx, d_weight, jnp.sum(promote(dy), (0, *range(2, dy.ndim))) if needs_bias else None


def _compute_diffs_on_tpu(
    x: Array, dy: Array, weight: Array, *, window: Window, needed: NeededDiffs, needs_bias: bool
) -> tuple[Array | None, ...]:
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


def _diffs_batch_rule(needed: Sequence[bool], operation: Function, arrays: Sequence[Array], axes: Axes) -> Arrays:
    x, dy, weight, *y = arrays
    if axes[2] is None and not any(needed[1:]):
        return map_rows(lambda x, dy, *y: operation(x, dy, weight, *y), [x, dy, *y], [*axes[:2], *axes[3:]])
    size = mapped_size(arrays, axes)
    x, dy, weight, *y = (move_to_front(a, axis, size) for a, axis in zip(arrays, axes, strict=True))
    x, dy, *y = map(merge_into_channels, (x, dy, *y))
    splits = (split_from_channels, split_from_rows, split_from_rows)
    needed_splits = [split for split, is_needed in zip(splits, needed, strict=False) if is_needed]
    diffs = operation(x, dy, merge_into_rows(weight), *y)
    return tuple(split(diff, size) for split, diff in zip(needed_splits, diffs, strict=True))
