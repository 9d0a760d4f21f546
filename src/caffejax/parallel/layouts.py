"""In which layout weights lie in a TPU's memory, where its compiler would rather have another than JAX's."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

Place = Sharding | Format
"""Where an array lies, and perhaps in which layout."""

# of float32, by platform; arrays there say the same of themselves, so that steps find a state as they left it
_TILES = {"tpu": ((8, 128),)}
_LANES = 128


def as_convolutions_want(x: Any, sharding: Sharding) -> Place:
    """Return where an array like `x` lies: if it is a large 1x1 weight, in tiles as a TPU's convolutions want them.

    Without that, such weights (outputs, inputs, 1, 1) lie there in tiles of one row. Each step then brings weights and
    what the update rule remembers into other tiles, and both back. Outputs come last, as in the gradients, unless only
    inputs fill the tiles.
    """
    devices: set[Any] = sharding.device_set
    (platform, *others) = {d.platform for d in devices}
    if others or platform not in _TILES or x.dtype != jnp.float32 or len(x.shape) < 3 or math.prod(x.shape[2:]) > 1:
        return sharding
    outputs, inputs, *ones = sharding.shard_shape(x.shape)
    if min(outputs, inputs) < _LANES:
        return sharding
    last = (0, 1) if outputs % _LANES and not inputs % _LANES else (1, 0)
    return Format(Layout((*range(2, 2 + len(ones)), *last), _TILES[platform]), sharding)


def sharding_of(where: Place) -> Sharding:
    """Return where an array lies, in whichever layout."""
    if isinstance(where, Sharding):
        return where
    assert where.sharding is not None
    return where.sharding


def in_layout(array: Any, where: Place) -> jax.Array:
    """Return an array that lies there already in the layout that is wanted there."""
    lies_so = isinstance(where, Sharding) or array.format.layout == where.layout
    found: jax.Array = array if lies_so else jax.device_put(array, where)
    return found
