"""Spatial expectations in cbfinn's nets: a softmax over each map, and fillers with coordinates."""

from typing import Any

import jax
import numpy as np
import pytest
from google.protobuf import text_format

from caffejax import CaffejaxError, Net
from caffejax.core.layers.fillers import fill
from caffejax.core.schema import caffe_pb2

SCORES = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)

OLD_NET = """layers { name: "data" type: MEMORY_DATA top: "maps" top: "joints" memory_data_param {
    batch_size: 2 channels1: 3 height1: 4 width1: 5 channels2: 7 } }
  layers { name: "places" type: SOFTMAX bottom: "maps" top: "probabilities" softmax_param {
    temperature: 0.5 dimension: "spatial" } }
  layers { name: "features" type: INNER_PRODUCT bottom: "probabilities" top: "features" blobs_lr: 0 blobs_lr: 0
    inner_product_param { num_output: 6 weight_filler { type: "imagexy" channels: 3 height: 4 width: 5 } } }
  layers { name: "unread" type: SILENCE bottom: "joints" }
"""
NEW_NET = """layer { name: "data" type: "MemoryData" top: "maps" memory_data_param {
    input_shapes { dim: 2 dim: 3 dim: 4 dim: 5 } } }
  layer { name: "places" type: "SpatialSoftmax" bottom: "maps" top: "probabilities" spatial_softmax_param {
    temperature: 0.5 dimension: "spatial" } }
  layer { name: "features" type: "InnerProduct" bottom: "probabilities" top: "features" inner_product_param {
    num_output: 2 axis: -2 weight_filler { type: "expectation" height: 4 width: 5 } } }
"""


def compute_features(text: str) -> np.ndarray:
    net = Net(text, "TEST")
    params, state = net.init(jax.random.key(0))
    inputs = {"maps": SCORES, "joints": np.zeros((2, 7, 1, 1))}
    needed = {name: inputs[name] for name in net.input_names}
    return np.asarray(net.apply(params, state, needed, blobs=("features",))[0]["features"])


def compute_expected_coordinates(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the expected x and y of each map by the definition, with shape (items, channels, 2)."""
    weights = np.exp(SCORES / 0.5)
    weights /= weights.sum((2, 3), keepdims=True)
    return np.stack([(weights * x).sum((2, 3)), (weights * y[:, None]).sum((2, 3))], axis=2)


def test_old_net_computes_expected_coordinates() -> None:
    coordinates = compute_expected_coordinates(2 * (np.arange(1, 5) / 4 - 0.5), 2 * (np.arange(1, 6) / 5 - 0.5))
    result = compute_features(OLD_NET)
    np.testing.assert_allclose(result, coordinates.reshape(2, 6, 1, 1), rtol=1e-5, atol=1e-6)


def test_old_net_concatenates_features_and_inputs() -> None:
    concat = """layers { name: "both" type: CONCAT bottom: "joints" bottom: "features" top: "both" }"""
    net = Net(OLD_NET.replace('layers { name: "unread" type: SILENCE bottom: "joints" }', concat), "TEST")
    params, state = net.init(jax.random.key(0))
    joints = np.random.default_rng(1).normal(size=(2, 7, 1, 1)).astype(np.float32)
    blobs = net.apply(params, state, {"maps": SCORES, "joints": joints}, blobs=("features", "both"))[0]
    np.testing.assert_array_equal(blobs["both"], np.concatenate([joints, blobs["features"]], axis=1))


def test_new_net_computes_expected_coordinates() -> None:
    coordinates = compute_expected_coordinates(np.linspace(-1, 1, 4), np.linspace(-1, 1, 5))
    np.testing.assert_allclose(compute_features(NEW_NET), coordinates, rtol=1e-5, atol=1e-6)


def test_shapes_of_memory_data_tops() -> None:
    net = Net(OLD_NET)
    assert [net.graph.blobs[name].shape for name in net.input_names] == [(2, 3, 4, 5), (2, 7, 1, 1)]


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ('type: "expectation" width: 3 height: 1 expectation_option: "x"', (1, 3), None),
        ('type: "expectation" width: 3 height: 2 expectation_option: "x"', (1, 6), [[-1, 0, 1, -1, 0, 1]]),
        ('type: "expectation" width: 2 height: 2 expectation_option: "y"', (1, 4), [[-1, -1, 1, 1]]),
        ('type: "expectation" width: 2 height: 2 expectation_option: "-x^2y^2"', (2, 4), [[-1] * 4] * 2),
        ('type: "imagexy" width: 2 height: 1 channels: 2 xy: "x"', (2, 4), [[0, 1, 0, 0], [0, 0, 0, 1]]),
        ('type: "imagexy" width: 1 height: 2 channels: 1 xy: "nboth2"', (2, 2), [[-1, -1], [0, -1]]),
        ('type: "imagexy" width: 1 height: 1 channels: 2 xy: "ones"', (2, 2), [[1, 0], [0, 1]]),
    ],
)
def test_values_of_coordinate_fillers(text: str, shape: tuple[int, ...], expected: Any) -> None:
    filler = text_format.Parse(text, caffe_pb2.FillerParameter())
    if expected is None:
        with pytest.raises(CaffejaxError, match="at least 2, not 1"):
            fill(filler, None, shape)
    else:
        np.testing.assert_allclose(fill(filler, None, shape), expected, atol=1e-6)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_rnn_with_other_nonlinearities(backward: Any) -> None:
    text = """force_backward: true
      layer { name: "in" type: "Input" top: "x" top: "cont"
        input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } } }
      layer { name: "rnn" type: "RNN" bottom: "x" bottom: "cont" top: "o" recurrent_param { num_output: 5
        weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } }
        rnn_param { recurrent_nonlinearity: "ReLU" output_nonlinearity: "Sigmoid" } }"""
    net = Net(text, "TRAIN", backward=backward)
    random = np.random.default_rng(0)
    x, cont = random.normal(size=(3, 2, 4)).astype(np.float32), np.array([[0, 0], [1, 1], [1, 0]], np.float32)
    params, state = net.init(jax.random.key(0))

    def apply_plain_rnn(blobs: Any) -> Any:
        w_x, b_h, w_h, w_o, b_o = (blobs[n] for n in ("weight_x", "bias", "weight_h", "weight_out", "bias_out"))
        h, tops = jax.numpy.zeros((2, 5)), []
        for t in range(3):
            h = jax.nn.relu((cont[t][:, None] * h) @ w_h.T + x[t] @ w_x.T + b_h)
            tops.append(jax.nn.sigmoid(h @ w_o.T + b_o))
        return jax.numpy.stack(tops)

    def apply_net(blobs: Any) -> Any:
        return net.apply({**params, "rnn": blobs}, state, {"x": x, "cont": cont})[0]["o"]

    weight = random.normal(size=(3, 2, 5)).astype(np.float32)
    weights = params["rnn"]
    np.testing.assert_allclose(apply_net(weights), apply_plain_rnn(weights), rtol=1e-5)
    actual, expected = (jax.grad(lambda p, f=f: (f(p) * weight).sum())(weights) for f in (apply_net, apply_plain_rnn))
    for index, gradient in actual.items():
        np.testing.assert_allclose(gradient, expected[index], rtol=1e-4, atol=1e-5)
