"""The barrier between backward pass and update in programs for several devices, without an effect on the numbers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from caffejax.core.solver.train_step import separate_updates

PARAMS = {"large": (jnp.arange(6.0), None), "small": (jnp.ones(2),)}
GRADS = jax.tree.map(lambda a: a + 1, PARAMS)


@pytest.mark.parametrize("max_size", [0, 2, math.inf])
def test_the_barrier_does_not_change_values(max_size: float) -> None:
    for run in (separate_updates, jax.jit(separate_updates, static_argnums=2)):
        result, expected = map(jax.tree.flatten, (run(PARAMS, GRADS, max_size), (PARAMS, GRADS)))
        assert result[1] == expected[1]
        for a, b in zip(result[0], expected[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("devices", "max_size", "n_barriers"), [(1, math.inf, 0), (2, math.inf, 2), (2, 2, 1), (2, 0, 0)]
)
def test_each_param_has_a_barrier_on_several_devices(devices: int, max_size: float, n_barriers: int) -> None:
    replicated = NamedSharding(AbstractMesh((devices,), ("rows",)), PartitionSpec())
    abstract_arguments = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=replicated), (PARAMS, GRADS)
    )
    traced = jax.jit(separate_updates, static_argnums=2).trace(*abstract_arguments, max_size)
    assert traced.lower(lowering_platforms=("cuda",)).as_text().count("optimization_barrier") == n_barriers
