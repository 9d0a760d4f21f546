"""Nets that are copied, pickled, and sent to another process."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net, NetConfig, Solver, SolverError, Variables

CONFIGS = Path(__file__).parents[3] / "configs"
KEY = jax.random.key(0)
BRANCHES = """
    name: "branches"
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 4 } } include { phase: TRAIN } }
    layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 4 kernel_size: 3
      weight_filler { type: "xavier" } } }
    layer { name: "norm" type: "BatchNorm" bottom: "a" top: "a" }
    layer { name: "b" type: "Convolution" bottom: "x" top: "b" convolution_param { num_output: 4 kernel_size: 3
      weight_filler { type: "gaussian" std: 0.1 } } }
    layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
    layer { name: "drop" type: "Dropout" bottom: "sum" top: "sum" }
    layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip" inner_product_param { num_output: 3
      weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" include { phase: TRAIN } }
"""
COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
INPUTS = {"x": np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32), "label": np.float32([0, 1, 2, 0])}


def compute(net: Net) -> Any:
    """Return blobs, new state and gradients for newly initialised variables."""
    inputs = {name: INPUTS[name] for name in net.input_names}
    params, state = net.init(KEY)
    blobs, new_state = net.forward(params, state, inputs, key=KEY)
    compute_gradient = jax.grad(
        lambda params: sum(jnp.sum(b) for b in net.apply(params, state, inputs, key=KEY)[0].values())
    )
    return jax.tree.map(np.asarray, (blobs, new_state, compute_gradient(params)))


def assert_equal(actual: Any, expected: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copies_compute_the_same(make_copy: Callable[[Any], Any]) -> None:
    options: Any = {"seed": 3, "kernels": "reference", "backward": "rules", "remat": "auto", "memory_limit": 10**9}
    net = Net(BRANCHES, "TRAIN", level=1, stages=["a"], file="some.prototxt", **options)
    for original in (net, net.with_phase("TEST")):
        net_copy = make_copy(original)
        assert net_copy is not original
        assert net_copy.graph == original.graph
        assert net_copy.config == NetConfig(**options)
        assert_equal(compute(net_copy), compute(original))
        assert net_copy.with_phase("TRAIN").graph == net.graph


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_reshaped_and_inference_nets_can_be_copied(make_copy: Callable[[Any], Any]) -> None:
    net = Net(BRANCHES)
    for original in (net.with_batch(7), net.for_inference(["sum"]), net.for_inference(["sum"]).with_batch(2)):
        for variant in (original, original.with_phase("TRAIN")):
            net_copy = make_copy(variant)
            assert net_copy.graph == variant.graph
            assert (net_copy.outputs, net_copy.graph.blobs["x"]) == (variant.outputs, variant.graph.blobs["x"])
            assert net_copy.with_phase("TEST").graph == original.graph


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copied_frozen_nets_are_compiled_again(make_copy: Callable[[Any], Any]) -> None:
    net = Net(BRANCHES)
    frozen = net.freeze(net.init(KEY))
    expected = frozen({"x": INPUTS["x"]})
    net_copy = make_copy(frozen)
    assert net_copy.graph == frozen.graph
    assert_equal(net_copy({"x": INPUTS["x"]}), expected)


def test_a_net_pickles_as_its_definition() -> None:
    net = Net(BRANCHES, "TRAIN")
    compute(net)
    assert len(pickle.dumps(net)) < 2 * len(BRANCHES)


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_graphs_and_variables_are_copied(make_copy: Callable[[Any], Any]) -> None:
    net = Net(BRANCHES, "TRAIN")
    assert make_copy(net.graph) == net.graph
    variables = make_copy(net.init(KEY))
    assert isinstance(variables, Variables)
    assert_equal(variables, net.init(KEY))


LAYERS = '''
import numpy as np


class Double:
    """On the host."""

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 2 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 2 * top[0].diff


def halve(x):
    return x / 2
'''
PYTHON_NET = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "a" type: "Python" bottom: "x" top: "a" python_param { module: "copied_layers" layer: "Double" } }
    layer { name: "b" type: "Python" bottom: "a" top: "b" python_param { module: "copied_layers" layer: "halve" } }
"""


@pytest.fixture
def python_net(tmp_path: Path) -> Net:
    (tmp_path / "copied_layers.py").write_text(LAYERS)
    (tmp_path / "net.prototxt").write_text(PYTHON_NET)
    return Net(tmp_path / "net.prototxt")


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_python_layers_are_created_again(python_net: Net, make_copy: Callable[[Any], Any]) -> None:
    net_copy = make_copy(python_net)
    assert net_copy.has_host_layers
    np.testing.assert_array_equal(net_copy.forward({}, {}, {"x": INPUTS["x"]})[0]["b"], INPUTS["x"])
    graph = make_copy(python_net.graph)
    assert [layer.type.on_host for layer in graph.layers] == [False, True, False]
    assert all(layer.type.instance is not None for layer in graph.layers[1:])


@pytest.mark.long
def test_another_process_computes_the_same(python_net: Net) -> None:
    net = Net(BRANCHES, "TRAIN", precision="bfloat16")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_equal(pool.submit(compute, net).result(), compute(net))
        assert_equal(pool.submit(compute, python_net).result(), compute(python_net))


def test_copying_a_solver_raises_an_error() -> None:
    solver = Solver(CONFIGS / "digits" / "lenet_solver.prototxt")
    try:
        for make_copy in COPIES:
            with pytest.raises(
                SolverError, match="cannot be copied or pickled, because it reads data and writes files"
            ):
                make_copy(solver)
    finally:
        solver.close()
