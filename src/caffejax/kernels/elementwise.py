"""What treats every number by itself: on CPUs with the channels last, as convolutions and pooling have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .layout import channels_first, channels_last
from .operation import Operation

Arrays = tuple[jax.Array, ...]


def elementwise(function: Callable[..., Arrays], *arrays: jax.Array) -> Arrays:
    """`function(*arrays)`, all of one shape (batch, channels, *space), so that nothing is transposed on its account."""
    return Operation(function, _ChannelsLast(function))(*arrays)


@dataclass(frozen=True)
class _ChannelsLast:
    function: Callable[..., Arrays]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        return tuple(map(channels_first, self.function(*map(channels_last, arrays))))


def joined_channels(arrays: tuple[jax.Array, ...]) -> jax.Array:
    """(batch, channels, *space) arrays joined along their channels, which on CPUs lie last."""
    return Operation(_joined, _joined_last)(*arrays)[0]


def _joined(*arrays: jax.Array) -> Arrays:
    return (jnp.concatenate(arrays, 1),)


def _joined_last(*arrays: jax.Array) -> Arrays:
    return (channels_first(jnp.concatenate([channels_last(x) for x in arrays], -1)),)
