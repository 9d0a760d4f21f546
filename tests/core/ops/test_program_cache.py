"""Programs that are kept for shapes: how many, which are dropped, and that those in use never are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.ops import compilation, program_cache
from caffejax.core.ops.program_cache import MIN_PROGRAMS, ProgramCache, count_equations


@pytest.fixture
def _no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that all caches of the process exceed, and nothing but the caches of the test to drop from."""
    monkeypatch.setattr(program_cache, "LIMIT_BYTES", 0)
    monkeypatch.setattr(program_cache, "_caches", type(program_cache._caches)())
    monkeypatch.setattr(program_cache, "_forget_nested_traces", lambda: None)


@pytest.mark.usefixtures("_no_room")
def test_the_programs_that_were_used_last_are_kept() -> None:
    cache = ProgramCache()
    for i in range(MIN_PROGRAMS):
        cache.add(i, f"program {i}", 1)
    assert cache.find(0) is not None  # used again, so 1 is the oldest
    cache.add("new", "program", 1)
    assert cache.find(1) is None
    assert len(cache) == MIN_PROGRAMS
    assert cache.find(0) is not None


def test_nothing_is_dropped_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "_caches", type(program_cache._caches)())  # what other tests keep does not count
    cache = ProgramCache()
    for i in range(5 * MIN_PROGRAMS):
        cache.add(i, i, 1)
    assert cache.values() == list(range(5 * MIN_PROGRAMS))


def test_traces_of_functions_that_programs_call_are_dropped_and_those_of_users_kept() -> None:
    functions = {}
    for module in ("jax.numpy", "caffejax.core", "users_module"):

        def function(x: Any) -> Any:
            return x + 1

        function.__module__ = module
        functions[module] = jax.jit(function)
        functions[module](1.0)
    program_cache._forget_nested_traces()
    sizes = {module: function._cache_size() for module, function in functions.items()}  # type: ignore[attr-defined]
    assert sizes == {"jax.numpy": 0, "caffejax.core": 0, "users_module": 1}


@pytest.mark.usefixtures("_no_room")
def test_a_cycle_of_twelve_shapes_compiles_twelve_times_and_others_are_dropped() -> None:
    traces: list[Any] = []

    def run(x: jax.Array) -> jax.Array:
        traces.append(x.shape)
        return x + 1

    function = compilation.Jitted(run, "fast")
    for _ in range(3):
        for n in range(1, 13):
            np.testing.assert_array_equal(function(np.zeros(n, np.float32)), np.ones(n))
    assert traces == [(n,) for n in range(1, 13)]
    for n in range(13, 30):
        function(np.zeros(n, np.float32))
    assert len(function._programs) == MIN_PROGRAMS
    function(np.zeros(1, np.float32))
    assert traces[-1] == (1,)
    assert len(traces) == 30


def test_equations_are_counted_once() -> None:
    square = jax.jit(lambda x: x * x)
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(square(x)) + square(x))(1.0)
    assert count_equations(jaxpr.jaxpr) == 5  # two calls, sin, the sum, and the product that both calls share


def test_traces_of_functions_of_users_are_kept() -> None:
    traces: list[Any] = []

    def run(x: jax.Array) -> jax.Array:
        traces.append(x.shape)
        return jnp.where(x > 0, x, 0)

    function = jax.jit(run)
    function(np.ones(3, np.float32))
    program_cache._forget_nested_traces()
    function(np.ones(3, np.float32))
    assert traces == [(3,)]
