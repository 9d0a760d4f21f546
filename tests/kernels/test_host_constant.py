"""Tables are made when a program is lowered, or at once outside of one, and not while shapes are found out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import LayerError
from caffejax.kernels.host_constant import host_constant


def squares(calls: list[int]) -> np.ndarray:
    calls.append(1)
    return np.arange(4) ** 2 / 3


def test_it_has_the_numbers_under_every_transformation() -> None:
    def f(x: jax.Array) -> jax.Array:
        return (x * host_constant(lambda: squares([]), (4,), x.dtype)).sum()

    x, expected = jnp.arange(4.0), np.float32(np.arange(4) ** 2 / 3)
    for transformed in (jax.grad(f), jax.jit(jax.grad(f)), jax.jit(jax.grad(jax.checkpoint(f))), jax.jacfwd(f)):
        np.testing.assert_array_equal(transformed(x), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(f)))(jnp.ones((2, 4))), np.stack([expected] * 2))


def test_shapes_are_inferred_without_the_source() -> None:
    calls: list[int] = []

    def f(x: jax.Array) -> jax.Array:
        return x + host_constant(lambda: squares(calls), (4,), x.dtype)

    assert jax.eval_shape(f, jnp.zeros(4)).shape == (4,)
    jax.make_jaxpr(f)(jnp.zeros(4))
    assert not calls
    jax.jit(f)(jnp.zeros(4))
    assert calls


def test_a_batch_larger_than_memory_is_refused_at_once() -> None:
    with pytest.raises(LayerError, match=r"needs 4.00 TiB for a table of shape \(1099511627776,\)"):
        host_constant(lambda: np.zeros(1), (1 << 40,), np.float32)
