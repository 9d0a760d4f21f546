"""Garbage collection around compilation, and arrays that are put on a CPU without compiling."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.ops import compilation


def test_garbage_collection_is_enabled_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation.Jitted, "allows_gc", False)

    def fail(x: jax.Array) -> jax.Array:
        assert not gc.isenabled()
        raise TypeError("spoilt")

    with pytest.raises(TypeError, match="spoilt"):
        compilation.Jitted(fail, "fast")(1.0)
    assert gc.isenabled()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32, jnp.bfloat16])
@pytest.mark.parametrize("committed", [False, True])
def test_full_equals_full_of_jax(dtype: Any, committed: bool) -> None:
    device = jax.devices("cpu")[-1] if committed else None
    array, expected = compilation.full((2, 3), 2, dtype, device), jnp.full((2, 3), 2, dtype, device=device)
    np.testing.assert_array_equal(array, expected)
    assert (array.dtype, array.committed, array.devices()) == (expected.dtype, committed, expected.devices())


@pytest.mark.parametrize("committed", [False, True])
def test_zeros_like_stay_on_the_device_of_the_array(committed: bool) -> None:
    device = jax.devices("cpu")[-1]
    array = jax.device_put(np.ones(3, np.float32), device if committed else None)
    zeros = compilation.zeros_like(array)
    assert not zeros.any()
    assert (zeros.committed, zeros.devices()) == (committed, array.devices())


def test_arrays_of_the_other_byte_order_are_converted() -> None:
    array = np.arange(3, dtype=np.dtype(np.float32).newbyteorder("S"))
    np.testing.assert_array_equal(compilation.as_jax(array, jax.devices("cpu")[0]), [0, 1, 2])
