"""Random arrays with few compilations.

Sizes are rounded up to a few sizes, since XLA takes about half a second to compile the program of each size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

from ..ops.compilation import is_eager, runs_on_cpu
from ..ops.window import Shape

_MIN_SIZE = 1 << 10
_STEP = 1 << 20  # smaller sizes are rounded up to powers of two, larger sizes to multiples of this size
_PIECE_SIZE = 1 << 17  # values per piece on a CPU: half a megabyte stays in its caches


def bucketed_draw(draw: Callable[[Any, Shape], Array], key: Any, shape: Shape) -> Array:
    """Return `draw(key, shape)`, computed with a rounded size, so that many shapes share one compilation.

    With JAX's default keys, the n-th value depends only on the key and n, so more values than needed can be sampled.
    On a CPU, one program samples all values in pieces of one size. With other keys, `draw` is called directly; the
    same holds while JAX traces, because the traced program is compiled only once.

    Args:
        draw: a function such as `jax.random.normal`. Its n-th value must be computed from the n-th random bits.
        key: a random key.
        shape: the shape of the result.
    """
    is_partitionable: bool = getattr(jax.config, "jax_threefry_partitionable", True)  # JAX's type stubs lack it
    if isinstance(key, jax.core.Tracer) or not (is_partitionable and str(jax.random.key_impl(key)) == "threefry2x32"):
        return draw(key, shape)
    n = math.prod(shape)
    if 0 < n < 1 << 32 and is_eager() and runs_on_cpu(key) and not (key.committed or jax.config.read("jax_enable_x64")):
        return jax.device_put(_sample_in_pieces(draw, key, n).reshape(shape))
    return _take_first(draw(key, (_bucket_size(n),)), shape)


def _sample_in_pieces(draw: Callable[[Any, Shape], Array], key: Any, n: int) -> np.ndarray:
    """Return the first n values of `draw`, (n,), sampled in pieces of `_PIECE_SIZE` values."""
    key_words, values = np.asarray(jax.random.key_data(key)), None
    for offset in range(0, n, _PIECE_SIZE):
        words: Any = np.append(key_words, np.uint32(offset))
        key_at_offset = jax.random.wrap_key_data(words, impl=_OFFSET_KEY_IMPL)
        piece = np.asarray(draw(key_at_offset, (_PIECE_SIZE,)))
        values = np.empty(n, piece.dtype) if values is None else values
        values[offset : offset + _PIECE_SIZE] = piece[: n - offset]
    assert values is not None
    return values


def _threefry_bits(key: Array, width: int, shape: Shape) -> Array:
    """Return random bits as JAX draws them for a key of the default type, without the first values.

    The key has a third word, the number of these. The rounds are unrolled: this takes a third of the time to compile
    and a quarter of the time to run that JAX's loop over the rounds takes.
    """
    assert width == 32, width
    left, right = _encrypt(key[:2], jnp.zeros(shape, np.uint32), jax.lax.iota(np.uint32, *shape) + key[2])
    return left ^ right


def _encrypt(key: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Encrypt pairs of uint32 words, NumPy's or JAX's, by Threefry with 20 rounds and a key of two words."""
    words = key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)
    left, right = left + words[0], right + words[1]
    for i in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            left = left + right
            right = left ^ (right << np.uint32(rotation) | right >> np.uint32(32 - rotation))
        left, right = left + words[(i + 1) % 3], right + words[(i + 2) % 3] + np.uint32(i + 1)
    return left, right


def _raise_unsupported(*_: Any) -> NoReturn:
    raise NotImplementedError("this key only supports sampling random bits")


_OFFSET_KEY_IMPL = define_prng_impl(
    key_shape=(3,),
    seed=_raise_unsupported,
    split=_raise_unsupported,
    fold_in=_raise_unsupported,
    random_bits=_threefry_bits,
    name="caffejax_threefry_from_an_offset",
)


def _bucket_size(n: int) -> int:
    if n > _STEP:
        return -(-n // _STEP) * _STEP
    return max(_MIN_SIZE, 1 << max(n - 1, 0).bit_length())


@partial(jax.jit, static_argnums=1)
def _take_first(values: Array, shape: Shape) -> Array:
    return values[: math.prod(shape)].reshape(shape)


def threefry(key: np.ndarray, first_word: Any, second_word: Any) -> np.ndarray:
    """Encrypt two uint32 words by Threefry with 20 rounds and a key of two words; return them as uint32, (2,)."""
    with np.errstate(over="ignore"):
        return np.asarray(_encrypt(key, *np.asarray([first_word, second_word], np.uint32)))


def fold_in_bits(key: Array, data: Any) -> int:
    """Return `jax.random.bits(jax.random.fold_in(key, data))` as an int, without compilation for default keys."""
    if str(jax.random.key_impl(key)) != "threefry2x32" or not jax.config.values["jax_threefry_partitionable"]:
        return int(jax.random.bits(jax.random.fold_in(key, data)))
    high, low = threefry(np.asarray(jax.random.key_data(fold_in(key, data))), 0, 0)
    return int(high ^ low)


def make_key(seed: int) -> Array:
    """Return `jax.random.key(seed)`, without compilation for JAX's default keys."""
    if jax.config.values["jax_default_prng_impl"] != "threefry2x32" or not 0 <= seed < 1 << 31:
        return jax.random.key(seed)
    return jax.random.wrap_key_data(jax.device_put(np.asarray([0, seed], np.uint32)))


def fold_in(key: Array, data: Any) -> Array:
    """Return `jax.random.fold_in(key, data)`, without compilation if the key is an uncommitted default key of JAX."""
    is_concrete = not isinstance(key, jax.core.Tracer) and is_eager() and not key.committed
    if not is_concrete or str(jax.random.key_impl(key)) != "threefry2x32":
        return jax.random.fold_in(key, data)
    return jax.random.wrap_key_data(jax.device_put(threefry(np.asarray(jax.random.key_data(key)), 0, data)))
