"""Scale, bias and ReLU for each channel, the usual operations after a convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from . import elementwise
from .channel_reductions import CHANNELS_FIRST, CHANNELS_LAST, Channels
from .layout import to_channels_first, to_channels_last
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
    plain, cpu = partial(_apply, **static_options), partial(_apply_on_cpu, **static_options)
    return (PlatformOp(plain, cpu) if fast else plain)(*arrays)[0]


def add_bias_to_rows(x: jax.Array, bias: jax.Array, *, fast: bool = True) -> jax.Array:
    """Return `x + bias`, for `x` of shape (*rows, outputs) and a bias of shape (outputs,).

    If `fast` is true, CPUs run the implementation that is tuned for them.
    """
    return PlatformOp(_add, _add_on_cpu)(x, bias)[0] if fast else x + bias


def _add(x: jax.Array, bias: jax.Array) -> tuple[jax.Array]:
    return (x + bias,)


def _add_on_cpu(x: jax.Array, bias: jax.Array) -> tuple[jax.Array]:
    return (affine_along_channels(CHANNELS_LAST, x, None, bias, relu=False),)


def affine_along_channels(
    c: Channels, x: jax.Array, factor: jax.Array | None, bias: jax.Array | None, relu: bool
) -> jax.Array:
    """Return the result of `channel_affine` for an array `x` with the channel axis `c`."""
    x = x if factor is None else x * c.broadcast(factor, x)
    x = x if bias is None else x + c.broadcast(bias, x)
    return elementwise.relu(x) if relu else x


def _apply(x: jax.Array, *factor_and_bias: jax.Array, has_factor: bool, relu: bool) -> tuple[jax.Array]:
    return (affine_along_channels(CHANNELS_FIRST, x, *_split_factor_and_bias(factor_and_bias, has_factor), relu),)


def _apply_on_cpu(x: jax.Array, *factor_and_bias: jax.Array, has_factor: bool, relu: bool) -> tuple[jax.Array]:
    return (
        to_channels_first(
            affine_along_channels(
                CHANNELS_LAST, to_channels_last(x), *_split_factor_and_bias(factor_and_bias, has_factor), relu
            )
        ),
    )


def _split_factor_and_bias(
    factor_and_bias: tuple[jax.Array, ...], has_factor: bool
) -> tuple[jax.Array | None, jax.Array | None]:
    factor, *bias = factor_and_bias if has_factor else (None, *factor_and_bias)
    return factor, bias[0] if bias else None
