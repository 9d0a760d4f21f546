"""Scale, bias and ReLU of each channel: the epilogue of a convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from .channel_reductions import CHANNELS_FIRST, CHANNELS_LAST, Channels
from .elementwise import relu as maximum_with_0
from .layout import channels_first, channels_last
from .platform_dispatch import Operation


def channel_affine(
    x: jax.Array, factor: jax.Array | None, bias: jax.Array | None, *, relu: bool = False, fast: bool = True
) -> jax.Array:
    """Return `x * factor + bias`, with a factor and a bias for each channel, followed by a ReLU if `relu`.

    Args:
        x: (batch, channels, *space).
        factor: (channels,), or None.
        bias: (channels,), or None.
        relu: whether to set negative results to 0.
        fast: whether to use the implementation for CPUs on CPUs.
    """
    static_options: Any = {"has_factor": factor is not None, "relu": relu}
    arrays = (x, *(b for b in (factor, bias) if b is not None))
    plain, cpu = partial(_plain, **static_options), partial(_on_cpu, **static_options)
    return (Operation(plain, cpu) if fast else plain)(*arrays)[0]


def add_bias_to_rows(x: jax.Array, bias: jax.Array, *, fast: bool = True) -> jax.Array:
    """Return `x + bias`, for `x` of shape (*rows, outputs) and a bias of shape (outputs,)."""
    return Operation(_add, _add_on_cpu)(x, bias)[0] if fast else x + bias


def _add(x: jax.Array, bias: jax.Array) -> tuple[jax.Array]:
    return (x + bias,)


def _add_on_cpu(x: jax.Array, bias: jax.Array) -> tuple[jax.Array]:
    return (apply_along_channels(CHANNELS_LAST, x, None, bias, relu=False),)


def apply_along_channels(
    c: Channels, x: jax.Array, factor: jax.Array | None, bias: jax.Array | None, relu: bool
) -> jax.Array:
    """Return `by_channel(x, factor, bias, relu)` for an array whose channel axis is `c`."""
    x = x if factor is None else x * c.broadcast(factor, x)
    x = x if bias is None else x + c.broadcast(bias, x)
    return maximum_with_0(x) if relu else x


def _plain(x: jax.Array, *factor_and_bias: jax.Array, has_factor: bool, relu: bool) -> tuple[jax.Array]:
    return (apply_along_channels(CHANNELS_FIRST, x, *_unpack(factor_and_bias, has_factor), relu),)


def _on_cpu(x: jax.Array, *factor_and_bias: jax.Array, has_factor: bool, relu: bool) -> tuple[jax.Array]:
    return (
        channels_first(
            apply_along_channels(CHANNELS_LAST, channels_last(x), *_unpack(factor_and_bias, has_factor), relu)
        ),
    )


def _unpack(factor_and_bias: tuple[jax.Array, ...], has_factor: bool) -> tuple[jax.Array | None, jax.Array | None]:
    factor, *bias = factor_and_bias if has_factor else (None, *factor_and_bias)
    return factor, bias[0] if bias else None
