"""Passes of frozen nets stay correct when other blobs are read or weights are written."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe
from caffejax.cpu.frozen import frozen_pass_cache

from .conftest import CLOSE, INPUT_NET, make_input_net

WEIGHTED_NET = INPUT_NET.replace('bottom: "label" top: "loss" }', 'bottom: "label" top: "loss" loss_weight: 3 }')
NORMALIZED_NET = INPUT_NET.replace(
    'layer { name: "pool"',
    """layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scaled" scale_param { bias_term: true } }
layer { name: "pool\"""",
)


def is_frozen(net: Any) -> bool:
    return any(passes.cache for passes in net._executor._frozen.values())


@cache
def make_reference_net(prototxt: str) -> caffejax.Net:
    return caffejax.Net(prototxt, "TEST", kernels="reference")


def compute_reference_blobs(net: Any) -> dict[str, Any]:
    """Return all blobs, computed by the plain implementations of the layers without pycaffe."""
    net_again = make_reference_net(net.prototxt)
    blobs = {name: [np.array(blob.data) for blob in blobs] for name, blobs in net.params.items()}
    params, state = (
        net_again.map_params(
            lambda p, learnable=learnable: blobs[p.slot.layer][p.index] if p.spec.learnable == learnable else None
        )
        for learnable in (True, False)
    )
    inputs = {name: np.array(net.blobs[name].data) for name in net.inputs}
    return net_again.forward(params, state, inputs, blobs=tuple(net.blobs))[0]


def run_until_frozen(net: Any) -> None:
    """Run forward up to ten times, until the net is frozen."""
    for _ in range(10):
        net.forward()
        if is_frozen(net):
            return


def assert_equals_reference(net: Any) -> None:
    """Run forward and compare the outputs first, then all other blobs."""
    result = {name: array.copy() for name, array in net.forward().items()}
    blobs = {name: net.blobs[name].data.copy() for name in net.blobs}
    expected = compute_reference_blobs(net)
    for name, array in {**blobs, **result}.items():
        np.testing.assert_allclose(array, expected[name], err_msg=name, **CLOSE)


def make_net(prototxt: str = INPUT_NET) -> Any:
    net = make_input_net(prototxt=prototxt)
    net.prototxt = prototxt
    return net


def write_input(net: Any) -> None:
    net.blobs["data"].data[...] *= -2


def write_weight(net: Any) -> None:
    net.params["conv"][0].data[...] *= -2


def write_one_number(net: Any) -> None:
    net.params["fc1"][1].data[2] += 1


def write_by_layer(net: Any) -> None:
    net.layer_dict["fc2"].blobs[0].data[...] += 1


def hold_weight(net: Any) -> None:
    if not hasattr(net, "held_weight"):
        net.held_weight = net.params["fc2"][0].data
        net.forward()
    net.held_weight[0, 0] += 3


def reshape(net: Any) -> None:
    size = 7 - net.blobs["data"].shape[0]
    for name in ("data", "label"):
        net.blobs[name].reshape(size, *net.blobs[name].shape[1:])
        net.blobs[name].data[...] = 1.5
    net.reshape()


def copy_weights(net: Any) -> None:
    source_net = caffe.Net(net.prototxt, caffe.TEST)
    source_net.save("other.caffemodel")
    net.copy_from("other.caffemodel")


def share_params(net: Any) -> None:
    net.shared_net = caffe.Net(net.prototxt, caffe.TEST)
    net.share_with(net.shared_net)


def write_shared(net: Any) -> None:
    if not hasattr(net, "shared_net"):
        share_params(net)
        net.forward()
    net.shared_net.params["conv"][0].data[...] *= -1


def run_range(net: Any) -> None:
    net.blobs["pool"].data[...] = 5
    net.forward(start="fc1", end="fc2")
    assert (net.blobs["pool"].data == 5).all()
    expected = 5 * net.params["fc1"][0].data.sum(1) + net.params["fc1"][1].data
    np.testing.assert_allclose(net.blobs["fc1"].data, np.tile(expected, (len(net.blobs["fc1"].data), 1)), **CLOSE)


def read_blob(net: Any) -> None:
    assert net.blobs["pool"].data.any()


def hold_blob(net: Any) -> None:
    net.view = net.blobs["pool"].data


def run_backward(net: Any) -> None:
    net.clear_param_diffs()
    net.backward()
    assert net.params["conv"][0].diff.any()


def train(net: Any) -> None:
    run_backward(net)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] -= 0.1 * blob.diff


def add_callback(net: Any) -> None:
    called_layers: list[int] = []
    net.after_forward(called_layers.append)
    net.forward()
    assert called_layers == list(range(len(net.layers)))


CHANGES: list[Callable[[Any], None]] = [write_weight, hold_weight, read_blob, share_params, run_backward, add_callback]
LONG_CHANGES = [write_input, write_one_number, write_by_layer, copy_weights, write_shared, run_range, hold_blob, train]


@pytest.mark.parametrize(
    "change",
    [*CHANGES, reshape] + [pytest.param(change, marks=pytest.mark.long) for change in LONG_CHANGES],
)
def test_changes_take_effect_after_freezing(
    change: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(frozen_pass_cache, "_PATIENCE", 1)  # it is frozen again at once
    net = make_net()
    net.forward()
    assert is_frozen(net)
    for _ in range(3):
        change(net)
        assert_equals_reference(net)
        run_until_frozen(net)
    assert is_frozen(net) or change in (hold_weight, run_range, read_blob, hold_blob, add_callback)


@pytest.mark.parametrize(
    "prototxt", [INPUT_NET, WEIGHTED_NET, NORMALIZED_NET], ids=["plain", "loss weight", "normalised"]
)
def test_frozen_passes_equal_the_reference(prototxt: str) -> None:
    net = make_net(prototxt)
    for blob in net.params.get("bn", ()):
        blob.data[...] = np.random.default_rng(0).uniform(0.5, 1, blob.shape)
    passes = []
    for _ in range(3):
        write_input(net)
        loss = net._forward(0, len(net.layers) - 1)
        assert is_frozen(net)
        passes.append(
            (net.blobs["data"].data.copy(), loss, {name: net.blobs[name].data.copy() for name in net.outputs})
        )
    weight = net.blob_loss_weights["loss"]
    assert weight == (3 if prototxt == WEIGHTED_NET else 1)
    for data, loss, outputs in passes:
        net.blobs["data"].data[...] = data
        expected = compute_reference_blobs(net)
        assert loss == pytest.approx(weight * float(expected["loss"]), rel=1e-5)
        for name, array in outputs.items():
            np.testing.assert_allclose(array, expected[name], err_msg=name, **CLOSE)


@pytest.mark.parametrize("change", [write_weight, hold_weight, read_blob, hold_blob, share_params, train])
def test_nets_that_change_are_not_frozen_repeatedly(
    change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = frozen_pass_cache.freeze_passes
    monkeypatch.setattr(frozen_pass_cache, "freeze_passes", lambda *args: calls.append(1) or original(*args))
    net = make_net()
    for _ in range(12):
        net.forward()
        change(net)
    assert len(calls) <= 3
    assert is_frozen(net) == (change in (read_blob, hold_blob))


def test_nets_freeze_again_once_weights_stop_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_pass_cache, "_PATIENCE", 3)
    net = make_net()
    net.forward()
    states = []
    for _ in range(5):
        write_weight(net)
        for _ in range(20):
            net.forward()
            states.append(is_frozen(net))
        assert_equals_reference(net)
    # twice at once, then after 3, 6 and 12 passes with the same weights
    assert [sum(states[i : i + 20]) for i in range(0, 100, 20)] == [20, 20, 17, 14, 8]


RANDOM = """
layer { name: "noise" type: "DummyData" top: "noise"
  dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "gaussian" std: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "noise" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
"""


def test_random_layers_draw_new_values_in_each_frozen_pass() -> None:
    net = caffe.Net(RANDOM, caffe.TEST)
    noises = []
    for _ in range(2):
        out = net.forward()["ip"].copy()
        assert is_frozen(net)
        weight = net._executor.memories.variables.params["ip"]["weight"]
        noise = net.blobs["noise"].data.copy()
        np.testing.assert_allclose(noise @ np.asarray(weight).T, out, **CLOSE)
        noises.append(noise)
    assert not np.array_equal(*noises)


NOT_FROZEN = {
    "statistics of the batch": """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 8 dim: 2 } } }
        layer { name: "bn" type: "BatchNorm" bottom: "x" top: "bn" batch_norm_param { use_global_stats: false } }""",
    "recurrent": """
        layer { name: "x" type: "Input" top: "x" top: "cont"
          input_param { shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } } }
        layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
          recurrent_param { num_output: 3 weight_filler { type: "xavier" } } }""",
    "on the host": """
        layer { name: "x" type: "Input" top: "x" top: "s"
          input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
        layer { name: "y" type: "Filter" bottom: "x" bottom: "s" top: "y" }""",
}


@pytest.mark.parametrize("case", NOT_FROZEN)
def test_stateful_and_host_nets_are_not_frozen(case: str) -> None:
    net = caffe.Net(NOT_FROZEN[case], caffe.TEST)
    for name in net.inputs:
        net.blobs[name].data[...] = 1
    net.forward()
    assert not is_frozen(net)


DETECTOR = """
layer { name: "data" type: "Input" top: "data" top: "prior"
  input_param { shape { dim: 2 dim: 6 } shape { dim: 1 dim: 2 dim: 16 } } }
layer { name: "loc" type: "InnerProduct" bottom: "data" top: "loc"
  inner_product_param { num_output: 16 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "conf" type: "InnerProduct" bottom: "data" top: "conf"
  inner_product_param { num_output: 8 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "rows" type: "Reshape" bottom: "conf" top: "rows" reshape_param { shape { dim: 0 dim: -1 dim: 2 } } }
layer { name: "prob" type: "Softmax" bottom: "rows" top: "prob" softmax_param { axis: 2 } }
layer { name: "flat" type: "Flatten" bottom: "prob" top: "flat" }
layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "flat" bottom: "prior" top: "found"
  detection_output_param { num_classes: 2 confidence_threshold: 0.5 keep_top_k: 4 nms_param { nms_threshold: 0.9 } } }
"""


def test_frozen_detections_have_only_valid_rows() -> None:
    net, random = caffe.Net(DETECTOR, caffe.TEST), np.random.default_rng(0)
    net.prototxt = DETECTOR
    corners = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    net.blobs["prior"].data[...] = np.stack([corners.ravel(), np.full(16, 0.1)])[None]
    passes = []
    for _ in range(4):
        net.blobs["data"].data[...] = random.normal(size=(2, 6))
        passes.append((net.blobs["data"].data.copy(), net.forward()["found"].copy()))
        assert is_frozen(net)
    assert len({result.shape for _, result in passes}) > 1
    for name in ("loc", "flat"):  # a look at what it has not computed
        np.testing.assert_allclose(net.blobs[name].data, compute_reference_blobs(net)[name], **CLOSE)
    for data, result in passes:
        net.blobs["data"].data[...] = data
        np.testing.assert_allclose(
            result, make_reference_net(DETECTOR).strip_padding(compute_reference_blobs(net))["found"], **CLOSE
        )
        net.forward()
        np.testing.assert_allclose(net.blobs["found"].data, result, **CLOSE)
