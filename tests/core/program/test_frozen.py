"""The form of `Net.freeze` that runs everywhere: a compiled program with the weights as constants."""

import copy
import logging
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import CaffejaxError, Net
from caffejax.core.program.frozen import JittedNet, freeze_as_program

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: MAX global_pooling: true } }
"""
X = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def frozen() -> JittedNet:
    net = Net(NET, "TRAIN")
    return freeze_as_program(net, net.init(jax.random.key(0)), None, None, None)


def expected(frozen: JittedNet, x: Any) -> Any:
    return Net(NET, "TEST").apply(*frozen.variables, {"x": x})[0]["p"]


@pytest.mark.parametrize("shape", [(2, 3, 6, 6), (1, 3, 6, 6), (3, 3, 5, 9)], ids=str)
def test_a_jitted_net_equals_apply_for_all_shapes(frozen: JittedNet, shape: tuple[int, ...]) -> None:
    x = np.resize(X, shape)
    assert (frozen.input_names, frozen.outputs, frozen.may_draw({"x": x})) == (("x",), ("p",), False)
    np.testing.assert_allclose(frozen({"x": x})["p"], expected(frozen, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_it_can_be_copied_and_transformed(frozen: JittedNet, make_copy: Callable[[Any], Any]) -> None:
    other = make_copy(frozen)
    np.testing.assert_array_equal(other({"x": X})["p"], frozen({"x": X})["p"])
    mapped = jax.vmap(lambda x: other({"x": x})["p"])(np.stack([X, 2 * X]))
    np.testing.assert_allclose(mapped[1], expected(frozen, 2 * X), rtol=1e-5, atol=1e-6)
    assert other.with_batch(5)({"x": np.resize(X, (5, 3, 6, 6))})["p"].shape == (5, 4, 1, 1)


def test_random_layers_need_a_key() -> None:
    layers = [
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }',
        'layer { name: "p" type: "Pooling" bottom: "x" top: "p" pooling_param { pool: STOCHASTIC kernel_size: 2 } }',
    ]
    noise = 'layer { name: "n" type: "DummyData" top: "n" dummy_data_param { shape { dim: 2 } data_filler { %s } } }'
    for text, draws in (("\n".join(layers), False), (noise % 'type: "uniform"', True), (noise % "value: 1", False)):
        net = Net(text, "TEST")
        frozen = freeze_as_program(net, net.init(jax.random.key(0)), None, None, None)
        assert frozen.may_draw({name: jnp.ones((1, 1, 4, 4)) for name in frozen.input_names}) == draws


def test_precisions(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(NET)
    variables = net.init(jax.random.key(0))
    exact = freeze_as_program(net, variables, None, "float32", None)({"x": X})["p"]
    rounded = freeze_as_program(net, variables, None, "bfloat16", None)({"x": X})["p"]
    assert 0 < np.abs(np.asarray(rounded) - exact).max() < 0.05
    with caplog.at_level(logging.WARNING, logger="caffejax"):
        integers = freeze_as_program(net, variables, None, "int8", [{"x": X}])({"x": X})["p"]
    np.testing.assert_array_equal(integers, exact)
    assert "float32 instead of int8" in caplog.text
    with pytest.raises(CaffejaxError, match='must be one of "float32", "tf32", "bfloat16", "int8", not "half"'):
        freeze_as_program(net, variables, None, "half", None)


def test_wrong_inputs_are_named(frozen: JittedNet) -> None:
    with pytest.raises(CaffejaxError, match="'x'"):
        frozen({"y": X})
