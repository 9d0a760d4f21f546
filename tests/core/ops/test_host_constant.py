"""Constants are computed when a program is lowered, or at once in eager code, and not during shape inference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import LayerError
from caffejax.core.ops.host_constant import host_constant


def compute_squares(calls: list[int]) -> np.ndarray:
    calls.append(1)
    return np.arange(4) ** 2 / 3


def test_values_are_equal_under_every_transformation() -> None:
    def f(x: jax.Array) -> jax.Array:
        return (x * host_constant(lambda: compute_squares([]), (4,), x.dtype)).sum()

    x, expected = jnp.arange(4.0), np.float32(np.arange(4) ** 2 / 3)
    for transformed_function in (
        jax.grad(f),
        jax.jit(jax.grad(f)),
        jax.jit(jax.grad(jax.checkpoint(f))),
        jax.jacfwd(f),
    ):
        np.testing.assert_array_equal(transformed_function(x), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(f)))(jnp.ones((2, 4))), np.stack([expected] * 2))


def test_shape_inference_does_not_compute_the_values() -> None:
    calls: list[int] = []

    def f(x: jax.Array) -> jax.Array:
        return x + host_constant(lambda: compute_squares(calls), (4,), x.dtype)

    assert jax.eval_shape(f, jnp.zeros(4)).shape == (4,)
    jax.make_jaxpr(f)(jnp.zeros(4))
    assert not calls
    jax.jit(f)(jnp.zeros(4))
    assert calls


def test_a_constant_larger_than_memory_raises_an_error() -> None:
    with pytest.raises(LayerError, match=r"needs 4.00 TiB for a constant of shape \(1099511627776,\)"):
        host_constant(lambda: np.zeros(1), (1 << 40,), np.float32)
