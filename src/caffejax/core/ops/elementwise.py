"""Elementwise operations and concatenation. On CPUs the channels are last in memory, as in convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .custom_gradient import make_differentiable
from .layout import to_channels_first, to_channels_last
from .platform_dispatch import PlatformOp

Arrays = tuple[jax.Array, ...]


def apply_elementwise(function: Callable[..., Arrays], *arrays: jax.Array) -> Arrays:
    """Call an elementwise function on arrays of one shape (batch, channels, *space).

    On CPUs the function is called with the channels last, the order in memory, so that XLA need not transpose.
    """
    return PlatformOp(function, _ChannelsLastFunction(function))(*arrays)


@dataclass(frozen=True)
class _ChannelsLastFunction:
    function: Callable[..., Arrays]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        return tuple(map(to_channels_first, self.function(*map(to_channels_last, arrays))))


def relu(x: jax.Array) -> jax.Array:
    """Return max(x, 0), with gradient 0 at 0. NaN remains NaN, and its gradient that of the result.

    The gradient is computed from the result, which is usually in memory for the gradients of the next layers. On CPUs
    it is computed from `x`, because XLA would recompute the result and all operations before it.
    """
    return PlatformOp(_relu, _relu_on_cpu)(x)[0]


def _relu(x: jax.Array) -> Arrays:
    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.maximum(x, 0)
        return y, y

    def backward(y: jax.Array, dy: jax.Array, needed: Sequence[bool]) -> Arrays:
        return (jnp.where(y <= 0, 0, dy),)

    return (make_differentiable(forward, backward)(x),)


def _relu_on_cpu(x: jax.Array) -> Arrays:
    return (jnp.where(x <= 0, 0, x),)


def concatenate_channels(arrays: tuple[jax.Array, ...]) -> jax.Array:
    """Concatenate arrays (batch, channels, *space) along the channels. On CPUs the channels are last in memory."""
    return PlatformOp(_concatenate, _concatenate_channels_last)(*arrays)[0]


def _concatenate(*arrays: jax.Array) -> Arrays:
    return (jnp.concatenate(arrays, 1),)


def _concatenate_channels_last(*arrays: jax.Array) -> Arrays:
    return (to_channels_first(jnp.concatenate([to_channels_last(x) for x in arrays], -1)),)
