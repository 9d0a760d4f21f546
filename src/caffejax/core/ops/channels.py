"""Sums over all axes except the channel axis; and scale, bias and ReLU for each channel, as after a convolution."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from . import elementwise
from .implementations import cpu_form
from .platform_dispatch import Arrays, PlatformOp
from .vma import vary


class Channels:
    """The channel axis of arrays (batch, channels, *space), with the reductions and broadcasts that depend on it.

    `cpu` has a subclass for arrays with the channels last.
    """

    def sums(self, x: Array) -> Array:
        """Return the sum of each channel, (channels,)."""
        return jnp.sum(x, (0, *range(2, x.ndim)))

    def broadcast(self, b: Array, x: Array) -> Array:
        """Return `b`, (channels,), in a shape that broadcasts against `x` along the channel axis."""
        return b.reshape(-1, *(1,) * (x.ndim - 2))

    def moments(self, x: Array, mean_estimate: Array, axis_name: str | None) -> Arrays:
        """Return mean and variance of each channel, (channels,) each, in one pass over `x - mean_estimate`."""
        mean_estimate = mean_estimate.astype(x.dtype)
        offsets, count = x - self.broadcast(mean_estimate, x), math.prod((x.shape[0], *x.shape[2:]))
        sums = self.sums(offsets), self.sums(jnp.square(offsets))
        mean_offset, square_mean = divide_sums(axis_name, count, *sums)
        return mean_estimate + mean_offset, jnp.maximum(square_mean - jnp.square(mean_offset), 0)

    def normalization_sums(self, x_hat: Array, masked_dy: Array, arguments: Arrays, relu: bool) -> Arrays:
        """Return the diffs of factor and bias of a normalization, (channels,) each.

        Args:
            x_hat: the standardized input.
            masked_dy: the diff of the output, 0 where a ReLU's result is not positive.
            arguments: what these two are computed from, for a form that computes them and the sums in one pass.
            relu: whether a ReLU follows.
        """
        return self.sums(masked_dy * x_hat), self.sums(masked_dy)


CHANNELS_FIRST = Channels()


def divide_sums(axis_name: str | None, count: int, *sums: Array) -> Arrays:
    """Divide sums of `count` numbers by the count, (channels,) each, over the devices of a mesh axis if there is one.

    XLA combines the sums of separate arrays into one all-reduce. On TPUs this saves the fusions that stack the arrays
    and take them apart again. On GPUs it adds fusions.
    """
    if axis_name is not None:
        sum_stacked, sum_separately = partial(_sum_stacked, axis_name), partial(_sum_separately, axis_name)
        varying_sums = (vary(s, frozenset({axis_name})) for s in sums)
        sums = PlatformOp(sum_stacked, sum_stacked, tpu=sum_separately)(*varying_sums)
        count *= jax.lax.axis_size(axis_name)
    return tuple(s / count for s in sums)


def _sum_stacked(axis_name: str, *sums: Array) -> Arrays:
    return tuple(jax.lax.psum(jnp.stack(sums), axis_name))


def _sum_separately(axis_name: str, *sums: Array) -> Arrays:
    return tuple(jax.lax.psum(sums, axis_name))


def promote(x: Array) -> Array:
    """Convert an array to at least float32, for sums, statistics and logarithms."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def channel_affine(
    x: Array, factor: Array | None, bias: Array | None, *, relu: bool = False, fast: bool = True
) -> Array:
    """Multiply each channel by a factor and add a bias, then apply a ReLU if `relu` is true.

    Args:
        x: (batch, channels, *space).
        factor: (channels,), or None for no factor.
        bias: (channels,), or None for no bias.
        relu: whether to set negative results to 0.
        fast: whether CPUs run the implementation that is tuned for them.
    """
    static_options: Any = {"has_factor": factor is not None, "relu": relu}
    arrays = (x, *(b for b in (factor, bias) if b is not None))
    plain = partial(apply_affine, CHANNELS_FIRST)
    if not fast:
        return plain(*arrays, **static_options)[0]
    return PlatformOp(partial(plain, **static_options), cpu_form("channel_affine", plain, **static_options))(*arrays)[0]


def add_bias_to_rows(x: Array, bias: Array, *, fast: bool = True) -> Array:
    """Return `x + bias`, for `x` of shape (*rows, outputs) and a bias of shape (outputs,).

    If `fast` is true, CPUs run the implementation that is tuned for them.
    """
    return PlatformOp(_add, cpu_form("add_bias_to_rows", _add))(x, bias)[0] if fast else x + bias


def _add(x: Array, bias: Array) -> tuple[Array]:
    return (x + bias,)


def affine_along_channels(c: Channels, x: Array, factor: Array | None, bias: Array | None, relu: bool) -> Array:
    """Return the result of `channel_affine` for an array `x` with the channel axis `c`."""
    x = x if factor is None else x * c.broadcast(factor, x)
    x = x if bias is None else x + c.broadcast(bias, x)
    return elementwise.relu(x) if relu else x


def apply_affine(c: Channels, x: Array, *factor_and_bias: Array, has_factor: bool, relu: bool) -> tuple[Array]:
    """Return the result of `affine_along_channels`, as a tuple; `factor_and_bias` are those that are not None."""
    factor, *bias = factor_and_bias if has_factor else (None, *factor_and_bias)
    return (affine_along_channels(c, x, factor, bias[0] if bias else None, relu),)
