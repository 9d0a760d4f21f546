"""`Net(..., inputs=)`: a net with data layers as a function of arrays, without its data."""

import copy
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import GraphError, Net, read_net

CONFIGS = Path(__file__).parents[3] / "configs"
LENET = CONFIGS / "lenet" / "train_val.prototxt"
SSD = CONFIGS / "ssd_shapes" / "train_test.prototxt"
KEY = jax.random.key(0)
DATA = """
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: 0.5 } data_param { source: "absent" batch_size: 4 backend: LMDB } }
layer { name: "extra" type: "Input" top: "weights" top: "ids" input_param { shape { dim: 4 } shape { dim: 4 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" include { phase: TRAIN } }
"""


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Data", 'data_param { source: "absent" batch_size: 2 backend: LMDB }'),
        ("Data", 'data_param { source: "absent" batch_size: 2 backend: LEVELDB }'),
        ("ImageData", 'image_data_param { source: "absent" batch_size: 2 }'),
        ("HDF5Data", 'hdf5_data_param { source: "absent" batch_size: 2 }'),
        ("WindowData", 'window_data_param { source: "absent" batch_size: 2 } transform_param { crop_size: 4 }'),
    ],
)
def test_a_missing_source_names_inputs_which_build_the_net_without_it(kind: str, settings: str) -> None:
    text = f"""
    layer {{ name: "d" type: "{kind}" top: "data" top: "label" {settings} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 2 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
    """
    with pytest.raises(GraphError, match=r'inputs=\{"data": shape, "label": shape\}') as error:
        Net(text, "TRAIN")
    assert "layer 'd'" in str(error.value)
    net = Net(text, "TRAIN", inputs={"data": (2, 3, 4, 4), "label": (2,)})
    value, _ = net.loss(*net.init(KEY), {"data": np.ones((2, 3, 4, 4), np.float32), "label": np.array([0, 1])})
    assert np.isclose(value, np.log(2))  # weights are zero


def test_a_net_of_inputs_computes_what_the_net_of_its_data_computes_from_floats() -> None:
    shapes: dict[str, Any] = {"data": (64, 1, 28, 28), "label": (64,)}
    net, reference = Net(LENET, "TRAIN", inputs=shapes), Net(LENET, "TRAIN")
    variables = reference.init(KEY)
    batch = {"data": jax.random.normal(KEY, (4, 1, 28, 28)), "label": np.arange(4)}

    def gradient(net: Net) -> Any:
        return jax.grad(lambda params: net.loss(params, variables.state, batch)[0])(variables.params)

    jax.tree.map(np.testing.assert_array_equal, gradient(net), gradient(reference))
    jax.tree.map(np.testing.assert_array_equal, net.init(KEY), variables)


def test_the_shipped_ssd_is_a_function_without_its_database(tmp_path: Path) -> None:
    message = read_net(SSD)  # no file, so its relative paths name nothing
    batch = {
        "data": jax.random.normal(KEY, (2, 3, 96, 96)),
        "label": np.array([[0, 1, 0, 0.1, 0.1, 0.6, 0.6, 0], [1, 2, 0, 0.3, 0.3, 0.9, 0.9, 0]], "f")[None, None],
    }
    net = Net(message, "TRAIN", inputs=batch, file=str(tmp_path / "net.prototxt"))
    params, state = net.init(KEY)
    gradients = jax.jit(jax.grad(lambda p: net.loss(p, state, batch, KEY)[0]))(params)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))
    assert any(np.any(g) for g in jax.tree.leaves(gradients))


def test_a_net_of_inputs_survives_pickling_copies_and_its_other_forms() -> None:
    net = Net(DATA, "TRAIN", inputs={"data": (2, 5), "label": (2,), "ids": (2, 1)})
    assert {name: net.graph.blobs[name].shape for name in net.input_names} == {
        "data": (2, 5), "label": (2,), "weights": (4,), "ids": (2, 1),
    }  # fmt: skip
    variables = net.init(KEY)
    x = np.ones((2, 5), np.float32)
    inputs = {"data": x, "label": np.zeros(2), "weights": np.zeros(2), "ids": np.zeros((2, 1))}
    expected = net.loss(*variables, inputs)[0]
    for other in (pickle.loads(pickle.dumps(net)), copy.copy(net), net.with_config(net.config)):
        assert other.loss(*variables, inputs)[0] == expected
    assert not net.sources()
    assert net.for_inference(["ip"]).apply(*variables, {"data": x})[0]["ip"].shape == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "messages"),
    [
        ({"data": (2, 5)}, ["the shape of 'label', of layer 'd' (Data)"]),
        ({}, ["the shape of 'data' and 'label', of layer 'd' (Data)"]),
        (
            {"dta": (2, 5), "label": (2,)},
            ["no data layer or Input layer with a top 'dta'; did you mean 'data'?", "shape of 'data'"],
        ),
        ({"data": (2, 5), "label": (2,), "ip": (2, 3)}, ["no data layer or Input layer with a top 'ip'"]),
        ({"data": (2, 0.5), "label": 7}, ["the shape of 'data' must be", "the shape of 'label' must be"]),
        ([("data", (2, 5))], ["inputs must be a dict {blob: shape}"]),
    ],
)
def test_wrong_inputs_of_a_net_are_refused_all_together(inputs: Any, messages: list[str]) -> None:
    with pytest.raises(GraphError) as error:
        Net(DATA, "TRAIN", inputs=inputs)
    for message in messages:
        assert message in str(error.value)
