"""Random numbers of many shapes by few compilations: XLA takes about half a second for each size of a draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from ..kernels.compiling import nothing_traced, on_cpu
from .context import Shape

_LEAST = 1 << 10
_STEP = 1 << 20  # sizes up to here are powers of two, those above multiples of it
_PIECE = 1 << 17  # numbers that are drawn at once on a CPU: half a megabyte stays in its caches


def bucketed_draw(draw: Callable[[Any, Shape], jax.Array], key: Any, shape: Shape) -> jax.Array:
    """Return the numbers of `draw(key, shape)` from a draw of a size that other shapes share.

    The n-th number that JAX draws depends on the key and n alone, with its default keys. On a CPU all numbers are drawn
    by one program, piece by piece. Other keys, and what is being traced, which is compiled once in any case, are drawn
    as they are.

    Args:
        draw: such as `jax.random.normal`, whose n-th number is one of the n-th random bits.
        key: a key.
        shape: the shape.
    """
    if isinstance(key, jax.core.Tracer) or not _by_number(key):
        return draw(key, shape)
    n = math.prod(shape)
    if (
        0 < n < 1 << 32
        and nothing_traced()
        and on_cpu(key)
        and not (key.committed or jax.config.read("jax_enable_x64"))
    ):
        return jax.device_put(_pieces(draw, key, n).reshape(shape))
    return _cut(draw(key, (_size(n),)), shape)


def _pieces(draw: Callable[[Any, Shape], jax.Array], key: Any, n: int) -> np.ndarray:
    """Return the first n numbers of a draw."""
    own, found = np.asarray(jax.random.key_data(key)), None
    for place in range(0, n, _PIECE):
        words: Any = np.append(own, np.uint32(place))
        from_there = jax.random.wrap_key_data(words, impl=_FROM_A_PLACE)
        piece = np.asarray(draw(from_there, (_PIECE,)))
        found = np.empty(n, piece.dtype) if found is None else found
        found[place : place + _PIECE] = piece[: n - place]
    assert found is not None
    return found


def _bits(key: jax.Array, width: int, shape: Shape) -> jax.Array:
    """Return JAX's random bits by Threefry from a place on: those of a default key and a number less than 2^32.

    Written out, as XLA compiles it in a third of the time that JAX's loop over the rounds takes, and it runs in a
    quarter.

    Args:
        key: the two words of the default key, then the place.
        width: bits of a number, of which this knows 32.
        shape: the shape, of one axis.
    """
    assert width == 32, width
    (size,) = shape
    words = key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)
    left, right = jnp.broadcast_to(words[0], shape), jax.lax.iota(np.uint32, size) + key[2] + words[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            left = left + right
            right = left ^ (right << np.uint32(turn) | right >> np.uint32(32 - turn))
        left, right = left + words[(i + 1) % 3], right + words[(i + 2) % 3] + np.uint32(i + 1)
    return left ^ right


def _nothing_else(*_: Any) -> NoReturn:
    raise NotImplementedError("such a key is for drawing numbers only")


_FROM_A_PLACE = define_prng_impl(
    key_shape=(3,),
    seed=_nothing_else,
    split=_nothing_else,
    fold_in=_nothing_else,
    random_bits=_bits,
    name="caffejax_threefry_from_a_place",
)


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


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def threefry(key: np.ndarray, first: Any, second: Any) -> np.ndarray:
    """Return the two words of uint32 that Threefry with 20 rounds makes of two words, by a key of two: (2,)."""
    words = np.asarray([first, second], np.uint32)
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    with np.errstate(over="ignore"):
        words += np.asarray(keys[:2], np.uint32)
        for block in range(5):
            for rotation in _ROTATIONS[block % 2]:
                words[0] += words[1]
                words[1] = (words[1] << np.uint32(rotation) | words[1] >> np.uint32(32 - rotation)) ^ words[0]
            words[0] += keys[(block + 1) % 3]
            words[1] += keys[(block + 2) % 3] + np.uint32(block + 1)
    return words


def folded_bits(key: jax.Array, number: Any) -> int:
    """Return `jax.random.bits(jax.random.fold_in(key, number))` as an int."""
    if str(jax.random.key_impl(key)) != "threefry2x32" or not jax.config.values["jax_threefry_partitionable"]:
        return int(jax.random.bits(jax.random.fold_in(key, number)))
    folded = threefry(np.asarray(jax.random.key_data(key)), 0, number)
    high, low = threefry(folded, 0, 0)
    return int(high ^ low)
