"""What treats every number by itself: on CPUs with the channels last, as convolutions and pooling have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .custom_gradient import with_gradient
from .layout import channels_first, channels_last
from .platform_dispatch import Operation

Arrays = tuple[jax.Array, ...]


def elementwise(function: Callable[..., Arrays], *arrays: jax.Array) -> Arrays:
    """Call `function(*arrays)`, all of one shape (batch, channels, *space), so that nothing is transposed for it."""
    return Operation(function, _ChannelsLast(function))(*arrays)


@dataclass(frozen=True)
class _ChannelsLast:
    function: Callable[..., Arrays]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        return tuple(map(channels_first, self.function(*map(channels_last, arrays))))


def relu(x: jax.Array) -> jax.Array:
    """Return max(x, 0). The gradient, 0 at 0, is made from that, which the layers after it read in any case.

    On CPUs it is made from x: there XLA would compute the result again, with all that leads to it.
    """
    return Operation(_relu, _relu_on_cpu)(x)[0]


def _relu(x: jax.Array) -> Arrays:
    def forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.maximum(x, 0)
        return y, y

    def backward(y: jax.Array, dy: jax.Array, wanted: Sequence[bool]) -> Arrays:
        return (jnp.where(y > 0, dy, 0),)

    return (with_gradient(forward, backward)(x),)


def _relu_on_cpu(x: jax.Array) -> Arrays:
    return (jnp.where(x <= 0, 0, x),)  # NaN stays


def concatenate_channels(arrays: tuple[jax.Array, ...]) -> jax.Array:
    """Concatenate (batch, channels, *space) arrays along their channels, which on CPUs lie last."""
    return Operation(_concatenate, _concatenate_last)(*arrays)[0]


def _concatenate(*arrays: jax.Array) -> Arrays:
    return (jnp.concatenate(arrays, 1),)


def _concatenate_last(*arrays: jax.Array) -> Arrays:
    return (channels_first(jnp.concatenate([channels_last(x) for x in arrays], -1)),)
