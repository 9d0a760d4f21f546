"""Layers with padded tops: the largest number of rows in compiled code, and Caffe's number of rows elsewhere."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net, declare, pycaffe
from caffejax.core.layers import register_temporarily

NET = """
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 6 dim: 3 } } }
  layer { name: "found" type: "Found" bottom: "data" top: "found" }
  layer { name: "ip" type: "InnerProduct" bottom: "found" top: "ip"
    inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
"""
HOST = """
  layer { name: "second" type: "Slice" bottom: "found" top: "image" top: "selector" top: "last"
    slice_param { slice_point: 1 slice_point: 2 } }
  layer { name: "filter" type: "Filter" bottom: "ip" bottom: "selector" top: "filtered" }
  layer { name: "loss" type: "Reduction" bottom: "filtered" top: "loss" loss_weight: 1 }
"""


def select_rows(x: jax.Array) -> jax.Array:
    """Rows whose first number is not negative."""
    valid = x[:, 0] >= 0
    return jnp.where(jnp.sort(valid, descending=True)[:, None], x[jnp.argsort(~valid, stable=True)], -1.0)


@pytest.fixture(autouse=True)
def found_type() -> Iterator[None]:
    with register_temporarily(declare("Found", pads_rows=True)(select_rows)):
        yield


def make_rows(num_rows: int) -> np.ndarray:
    x = np.random.default_rng(num_rows).uniform(0.1, 1, (6, 3)).astype(np.float32)
    x[np.random.default_rng(1).permutation(6)[num_rows:], 0] = -1
    return x


@pytest.mark.parametrize("num_rows", [0, 1, 4, 6])
def test_nets_return_padded_rows_and_pycaffe_only_valid_rows(num_rows: int, tmp_path: Path) -> None:
    net, x = Net(NET), make_rows(num_rows)
    params, state = net.init(jax.random.key(0))
    blobs, _ = net.forward(params, state, {"data": x}, blobs=("found", "ip"))
    assert blobs["found"].shape == (6, 3)
    assert blobs["ip"].shape == (6, 2)
    stripped_blobs = net.strip_padding(blobs)
    np.testing.assert_array_equal(stripped_blobs["found"], x[x[:, 0] >= 0])
    weight, bias = params["ip"]["weight"], params["ip"]["bias"]
    expected = np.maximum(x[x[:, 0] >= 0] @ np.asarray(weight).T + bias, 0)
    np.testing.assert_allclose(stripped_blobs["ip"], expected, rtol=1e-5)

    file = tmp_path / "net.prototxt"
    file.write_text(NET)
    caffe_net = pycaffe.Net(str(file), pycaffe.TEST)
    caffe_net.blobs["data"].data[...] = x
    caffe_net.params["ip"][0].data[...], caffe_net.params["ip"][1].data[...] = weight, bias
    caffe_net.forward()
    np.testing.assert_array_equal(caffe_net.blobs["found"].data, stripped_blobs["found"])
    np.testing.assert_allclose(caffe_net.blobs["ip"].data, expected, rtol=1e-5)


@pytest.mark.parametrize("num_rows", [2, 5])
def test_blobs_have_only_valid_rows_in_nets_with_host_layers(num_rows: int) -> None:
    net, x = Net(NET + HOST, "TRAIN"), make_rows(num_rows)
    mode_by_layer = {layer.name: part.mode for part in net.layer_schedule.parts for layer in part.layers}
    assert mode_by_layer["found"] == "trimmed"
    assert mode_by_layer["ip"] == mode_by_layer["relu"] == "bucketed"
    params, state = net.init(jax.random.key(0))
    (loss, outputs), (grads, dx) = jax.value_and_grad(
        lambda params, x: net.loss(params, state, {"data": x}, blobs=("found", "ip")), (0, 1), has_aux=True
    )(params, x)
    valid_rows = x[x[:, 0] >= 0]
    np.testing.assert_array_equal(outputs.blobs["found"], valid_rows)
    expected = np.maximum(valid_rows @ np.asarray(params["ip"]["weight"]).T, 0)
    np.testing.assert_allclose(outputs.blobs["ip"], expected, rtol=1e-5)
    np.testing.assert_allclose(loss, expected.sum(), rtol=1e-5)
    np.testing.assert_allclose(grads["ip"]["weight"], (expected > 0).T.astype(np.float32) @ valid_rows, rtol=1e-5)
    np.testing.assert_array_equal(dx, np.zeros_like(x))  # what was found is no function with a derivative


@pytest.mark.parametrize("num_rows", [0, 2, 5])
def test_host_layers_read_valid_rows_in_traced_code(num_rows: int) -> None:
    """Losses and gradients equal those of the net in parts, and blobs with marked rows keep these."""
    net, inputs = Net(NET + HOST, "TRAIN"), {"data": make_rows(num_rows)}
    variables = net.init(jax.random.key(0))
    grad = jax.value_and_grad(partial(net.loss, blobs=("found", "filtered")), has_aux=True)
    ((loss, outputs), grads), ((expected, expected_outputs), expected_grads) = (
        run(*variables, inputs) for run in (jax.jit(grad), grad)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), grads, expected_grads)
    assert outputs.blobs["found"].shape == (6, 3)
    for name, blob in net.strip_padding(outputs.blobs).items():
        np.testing.assert_allclose(blob, expected_outputs.blobs[name], rtol=1e-6)


def test_pycaffe_backpropagates_past_padded_tops(tmp_path: Path) -> None:
    file = tmp_path / "net.prototxt"
    file.write_text(NET + 'layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }')
    net = pycaffe.Net(str(file), pycaffe.TRAIN)
    x = make_rows(3)
    net.blobs["data"].data[...] = x
    net.forward()
    net.backward()
    valid_rows = x[x[:, 0] >= 0]
    expected = (net.blobs["ip"].data > 0).T.astype(np.float32) @ valid_rows
    np.testing.assert_allclose(net.params["ip"][0].diff, expected, rtol=1e-5)
