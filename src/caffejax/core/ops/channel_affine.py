"""Scale, bias and ReLU for each channel, the usual operations after a convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from . import elementwise
from .channel_reductions import CHANNELS_FIRST, Channels
from .implementations import cpu_form
from .platform_dispatch import PlatformOp


def channel_affine(
    x: jax.Array, factor: jax.Array | None, bias: jax.Array | None, *, relu: bool = False, fast: bool = True
) -> jax.Array:
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


def add_bias_to_rows(x: jax.Array, bias: jax.Array, *, fast: bool = True) -> jax.Array:
    """Return `x + bias`, for `x` of shape (*rows, outputs) and a bias of shape (outputs,).

    If `fast` is true, CPUs run the implementation that is tuned for them.
    """
    return PlatformOp(_add, cpu_form("add_bias_to_rows", _add))(x, bias)[0] if fast else x + bias


def _add(x: jax.Array, bias: jax.Array) -> tuple[jax.Array]:
    return (x + bias,)


def affine_along_channels(
    c: Channels, x: jax.Array, factor: jax.Array | None, bias: jax.Array | None, relu: bool
) -> jax.Array:
    """Return the result of `channel_affine` for an array `x` with the channel axis `c`."""
    x = x if factor is None else x * c.broadcast(factor, x)
    x = x if bias is None else x + c.broadcast(bias, x)
    return elementwise.relu(x) if relu else x


def apply_affine(
    c: Channels, x: jax.Array, *factor_and_bias: jax.Array, has_factor: bool, relu: bool
) -> tuple[jax.Array]:
    """Return the result of `affine_along_channels`, as a tuple; `factor_and_bias` are those that are not None."""
    factor, *bias = factor_and_bias if has_factor else (None, *factor_and_bias)
    return (affine_along_channels(c, x, factor, bias[0] if bias else None, relu),)
