"""Random numbers of many shapes by few compilations: XLA takes about half a second for each size of a draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from .context import Shape

_LEAST = 1 << 10
_STEP = 1 << 20  # sizes up to here are powers of two, those above multiples of it


def drawn(draw: Callable[[Any, Shape], jax.Array], key: Any, shape: Shape) -> jax.Array:
    """Return the numbers of `draw(key, shape)` from a draw of a size that other shapes share.

    The n-th number that JAX draws depends on the key and n alone, with its default keys. Others, and what is being
    traced, which is compiled once in any case, are drawn as they are.

    Args:
        draw: such as `jax.random.normal`.
        key: a key.
        shape: the shape.
    """
    if isinstance(key, jax.core.Tracer) or not _by_number(key):
        return draw(key, shape)
    return _cut(draw(key, (_size(math.prod(shape)),)), shape)


def _by_number(key: Any) -> bool:
    by_number: bool = getattr(jax.config, "jax_threefry_partitionable", True)  # which its types do not have
    return by_number and str(jax.random.key_impl(key)) == "threefry2x32"


def _size(n: int) -> int:
    if n > _STEP:
        return -(-n // _STEP) * _STEP
    return max(_LEAST, 1 << max(n - 1, 0).bit_length())


@partial(jax.jit, static_argnums=1)
def _cut(numbers: jax.Array, shape: Shape) -> jax.Array:
    return numbers[: math.prod(shape)].reshape(shape)
