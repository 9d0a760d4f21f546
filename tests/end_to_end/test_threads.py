"""Nets used by many threads at once give each thread the results of a single thread, bit for bit."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.core.program.net import Net
from compile_flags import make_cpu_devices_environment

pytestmark = pytest.mark.long

THREADS = 8
LAYERS = """
    layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 4 dim: 4 dim: {size} dim: {size} }} }} }}
    layer {{ name: "y" type: "Input" top: "y" input_param {{ shape {{ dim: 4 }} }} }}
    layer {{ name: "c1" type: "Convolution" bottom: "x" top: "c1"
        convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "n" type: "BatchNorm" bottom: "c1" top: "c1" }}
    layer {{ name: "r" type: "ReLU" bottom: "c1" top: "c1" }}
    layer {{ name: "p" type: "Pooling" bottom: "c1" top: "p" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    layer {{ name: "c2" type: "Convolution" bottom: "p" top: "c2"
        convolution_param {{ num_output: 6 kernel_size: 3 group: 2 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "d" type: "Dropout" bottom: "c2" top: "d" }}
    {host}
    layer {{ name: "ip" type: "InnerProduct" bottom: "d" top: "ip"
        inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }}
"""
HOST = """
    layer { name: "f" type: "Filter" bottom: "d" bottom: "y" top: "f" }
    layer { name: "a" type: "AbsVal" bottom: "f" top: "a" }
"""
Call = Callable[[int], Any]


def make_small_net(size: int = 12, host: str = "", **options: Any) -> Net:
    return Net(LAYERS.format(size=size, host=host), "TRAIN", **options)


def make_arguments(net: Net, seed: int) -> tuple[Any, ...]:
    """Parameters, state, inputs and a key."""
    random, key = np.random.default_rng(seed), jax.random.key(seed)
    x = random.normal(size=net.graph.blobs["x"].shape).astype(np.float32)
    return *net.init(key), {"x": x, "y": np.arange(4, dtype=np.float32)}, key


def make_forward_call(net: Net) -> Call:
    def call(seed: int) -> Any:
        *arrays, key = make_arguments(net, seed)
        return net.forward(*arrays, key=key)

    return call


def make_eager_call(net: Net) -> Call:
    def call(seed: int) -> Any:
        *arrays, key = make_arguments(net, seed)
        return net.apply(*arrays, key=key)

    return call


def make_gradient_call(net: Net) -> Call:
    step = net.jit(jax.value_and_grad(net.loss, has_aux=True))
    return lambda seed: step(*make_arguments(net, seed))


def call_in_threads(call: Call) -> list[Any]:
    """Return the results of a function in several threads that start together, each with its number."""
    barrier = threading.Barrier(THREADS)

    def wait_and_call(seed: int) -> Any:
        barrier.wait()
        return call(seed)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait_and_call, range(THREADS)))


def assert_same(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for g, a in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(g, a)


@pytest.mark.parametrize(
    ("make_call", "options"),
    [
        pytest.param(make_forward_call, {}, id="forward"),
        pytest.param(make_eager_call, {}, id="eager"),
        pytest.param(make_gradient_call, {}, id="gradients"),
        pytest.param(make_gradient_call, {"remat": "auto", "memory_limit": 1}, id="gradients, recomputing"),
        pytest.param(make_gradient_call, {"host": HOST}, id="gradients, host layers"),
    ],
)
def test_threads_of_one_net_agree_with_one_thread(make_call: Callable[[Net], Call], options: dict[str, Any]) -> None:
    jax.clear_caches()
    actual = call_in_threads(make_call(make_small_net(**options)))
    jax.clear_caches()
    call = make_call(make_small_net(**options))
    assert_same(actual, [call(seed) for seed in range(THREADS)])


def test_threads_of_several_nets_agree_with_one_thread() -> None:
    """Two threads for each, which make, trace and compile it at the same time."""
    sizes = [6 + seed // 2 for seed in range(THREADS)]
    jax.clear_caches()
    actual = call_in_threads(lambda seed: make_gradient_call(make_small_net(sizes[seed]))(seed))
    jax.clear_caches()
    calls = {size: make_gradient_call(make_small_net(size)) for size in sizes}
    assert_same(actual, [calls[sizes[seed]](seed) for seed in range(THREADS)])


def test_threads_use_one_net_in_both_phases() -> None:
    net = make_small_net()

    def call(seed: int) -> Any:
        return make_forward_call(net.with_phase("TEST" if seed % 2 else "TRAIN"))(seed)

    actual = call_in_threads(call)
    assert_same(actual, [call(seed) for seed in range(THREADS)])
    assert net.with_phase("TEST").with_phase("TRAIN") is net


def run_script(script: str, **variables: str) -> None:
    """Runs a script that finds this file's functions."""
    folders = map(str, (Path(__file__).parent, Path(__file__).parents[1]))
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    settings = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path} | variables
    result = subprocess.run([sys.executable, "-c", script], env=os.environ | settings, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_many_threads_may_make_the_first_calls_of_a_process() -> None:
    """All that is loaded when it is first needed is then loaded by many threads at once."""
    run_script("""
from test_threads import THREADS, assert_same, call_in_threads, make_gradient_call, make_small_net

actual = call_in_threads(lambda seed: make_gradient_call(make_small_net())(seed))
call = make_gradient_call(make_small_net())
assert_same(actual, [call(seed) for seed in range(THREADS)])
""")


def test_threads_use_two_nets_on_two_devices() -> None:
    script = """
import jax
from test_threads import THREADS, make_arguments, assert_same, call_in_threads, make_small_net

devices = jax.devices()
assert len(devices) == 2
nets = [make_small_net(), make_small_net(9)]
steps = [net.jit(jax.value_and_grad(net.loss, has_aux=True)) for net in nets]

def call(seed):
    device = devices[seed % 2]
    results = steps[seed % 2](*jax.device_put(make_arguments(nets[seed % 2], seed), device))
    assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(results))
    return results

actual = call_in_threads(call)
assert_same(actual, [call(seed) for seed in range(THREADS)])
"""
    run_script(script, **make_cpu_devices_environment(2))
