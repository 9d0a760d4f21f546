"""Random draws of bucketed sizes give the same numbers as draws of the exact shapes."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.layers import bucketed_random
from caffejax.core.layers.bucketed_random import bucketed_draw, fold_in, make_key

SHAPES = [(), (0, 3), (1,), (5, 7, 3), (1024,), (33, 1025)]
SAMPLERS = {
    "bits": jax.random.bits,
    "normal": jax.random.normal,
    "uniform": partial(jax.random.uniform, minval=-0.25, maxval=3),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SAMPLERS)
def test_bucketed_draw_equals_direct_draw(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucketed_random, "_STEP", 4096)  # the last shape's size is no power of two
    for key in (jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")):
        _assert_equal(bucketed_draw(SAMPLERS[name], key, shape), SAMPLERS[name](key, shape))


def test_bucketed_draw_equals_direct_draw_with_other_settings() -> None:
    key, normal = jax.random.key(1), jax.random.normal
    with jax.threefry_partitionable(False):
        _assert_equal(bucketed_draw(normal, key, (3, 5)), normal(key, (3, 5)))
    _assert_equal(jax.jit(lambda k: bucketed_draw(normal, k, (3, 5)))(key), normal(key, (3, 5)))
    keys = jax.random.split(key)
    _assert_equal(
        jax.vmap(lambda k: bucketed_draw(normal, k, (3, 5)))(keys), jax.vmap(lambda k: normal(k, (3, 5)))(keys)
    )


def test_bucket_sizes_are_powers_of_two_or_multiples_of_the_step() -> None:
    sizes = {bucketed_random._bucket_size(n) for n in range(1, 1 << 20, 997)}
    assert sizes == {1 << k for k in range(10, 21)}
    assert bucketed_random._bucket_size((1 << 20) + 1) == 2 << 20
    assert bucketed_random._bucket_size(5 << 20) == 5 << 20


def _assert_equal(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    if jnp.issubdtype(actual.dtype, jnp.integer):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)  # two programs may round otherwise


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**40 + 3])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_uncompiled_keys_equal_keys_of_jax(seed: int, impl: str) -> None:
    with jax.default_prng_impl(impl):
        key, expected = make_key(seed), jax.random.key(seed)
    assert key.dtype == expected.dtype
    pairs = (key, expected), (fold_in(key, np.uint32(2**32 - 1)), jax.random.fold_in(expected, np.uint32(2**32 - 1)))
    for result, reference in pairs:
        np.testing.assert_array_equal(jax.random.key_data(result), jax.random.key_data(reference))
