"""Layers as nets of further forks use them: CTPN, channel-pruning, R-FCN, Intel's V-Net and YOLO, OpenVINO's models."""

import logging
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.errors import CaffejaxError


def net_of(text: str, *shapes: tuple[int, ...], phase: Any = "TEST") -> Net:
    dims = [" ".join(f"dim: {n}" for n in shape) for shape in shapes]
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ {d} }} }} }}'
        for i, d in enumerate(dims)
    ]
    return Net("\n".join([*inputs, text]), phase)


def layer_of(kind: str, n: int, text: str = "") -> str:
    bottoms = " ".join(f"bottom: 'b{i}'" for i in range(n))
    return f'layer {{ name: "x" type: "{kind}" {bottoms} top: "y" {text} }}'


def run(net: Net, *bottoms: Any, params: Any = None, state: Any = None) -> np.ndarray:
    initial = net.init(jax.random.key(0))
    tops, _ = net.apply(
        params or initial.params, state or initial.state, {f"b{i}": np.asarray(b, "f") for i, b in enumerate(bottoms)}
    )
    return np.asarray(tops["y"])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_ctpns_lstm_goes_over_time_for_each_sequence() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 3, 2)).astype("f")
    net = net_of(layer_of("Lstm", 1, "lstm_param { num_output: 5 }"), x.shape)
    w_x, w_h, b = (random.normal(size=shape).astype("f") for shape in ((20, 2), (20, 5), (20,)))
    h = c = np.zeros((3, 5))
    expected = []
    for now in x:
        i, f, o, g = np.split(now @ w_x.T + h @ w_h.T + b, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected.append(h)
    np.testing.assert_allclose(run(net, x, params={"x": {0: w_x, 1: w_h, 2: b}}), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("axis", [1, -1])
def test_filter_param_selects_channels(axis: int) -> None:
    x = np.random.default_rng(1).normal(size=(2, 4, 3, 4))
    net = net_of(layer_of("Filter", 1, f"filter_param {{ num_output: 2 axis: {axis} }}"), x.shape)
    result = run(net, x, state={"x": {0: np.array([0, 2, 0, -1], "f")}})
    np.testing.assert_allclose(result, np.take(x, [1, 3], axis=axis), rtol=1e-6)
    with pytest.raises(CaffejaxError, match="num_output must be 1 to 4"):
        net_of(layer_of("Filter", 1, "filter_param { num_output: 5 }"), x.shape)


def test_smooth_l1_loss_ohem_takes_one_shape_written_in_two_ways() -> None:
    a, b, w = np.random.default_rng(2).normal(size=(3, 4, 5))
    text = layer_of("SmoothL1LossOHEM", 3, "loss_weight: 1")
    plain = run(net_of(text, (4, 5), (4, 5), (4, 5)), a, b, w)
    mixed = net_of(text, (4, 5, 1, 1), (4, 5), (4, 5, 1))
    np.testing.assert_allclose(run(mixed, a.reshape(4, 5, 1, 1), b, w.reshape(4, 5, 1)), plain, rtol=1e-6)


def test_prelu_has_a_slope_for_each_channel_of_five_axes() -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 2, 2, 2))
    result = run(net_of(layer_of("PReLU", 1), x.shape), x, params={"x": {0: np.array([0.1, 0.2, 0.3], "f")}})
    slopes = np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1, 1)
    np.testing.assert_allclose(result, np.where(x > 0, x, slopes * x), rtol=1e-6)


def test_eval_detection_does_not_read_images() -> None:
    x, labels = np.random.default_rng(4).normal(size=(1, 7, 2, 2)), [[[[1, 0.3, 0.3, 0.5, 0.5]]]]
    text = "eval_detection_param { side: 2 num_class: 2 num_object: 1 biases: 1 biases: 1 }"
    shapes = (1, 7, 2, 2), (1, 1, 1, 5), (1, 3, 4, 4)
    result = run(net_of(layer_of("EvalDetection", 3, text), *shapes), x, labels, np.full((1, 3, 4, 4), np.nan))
    np.testing.assert_array_equal(result, run(net_of(layer_of("EvalDetection", 2, text), *shapes[:2]), x, labels))


def test_detections_of_rois_in_pixels() -> None:
    rois = np.array([[0, 10, 20, 30, 60], [0, 50, 50, 90, 70], [-1, 0, 0, 0, 0]], "f")
    offsets = np.zeros((3, 2, 4))
    offsets[0, 1], offsets[1, 1] = [0.5, -0.25, np.log(2), 0], [0, 0, 0, np.log(0.5)]
    scores = np.array([[0.1, 0.9], [0.4, 0.6], [0, 1]])
    text = """detection_output_param { num_classes: 2 share_location: false normalized: false input_width: 100
        input_height: 200 code_type: CENTER_SIZE variance_encoded_in_target: true keep_top_k: 10
        nms_param { nms_threshold: 0.4 } }"""
    net = net_of(layer_of("DetectionOutput", 3, text), (1, 24), (1, 6), (1, 1, 15))
    result = run(net, offsets.reshape(1, -1), scores.reshape(1, -1), rois.reshape(1, 1, -1))[0, 0]
    result = result[result[:, 1] >= 0]
    # centre + offset * side, side * exp(offset): 20 x 40 around (20, 40), and 40 x 20 around (70, 60)
    boxes = np.array([[30 - 20, 30 - 20, 30 + 20, 30 + 20], [70 - 20, 60 - 5, 70 + 20, 60 + 5]])
    expected = [[0, 1, score, *box] for score, box in zip([0.9, 0.6], boxes / [100, 200, 100, 200], strict=True)]
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    with pytest.raises(CaffejaxError, match="must be ROIs, rows of 5 numbers"):
        net_of(layer_of("DetectionOutput", 3, text), (1, 24), (1, 6), (1, 2, 12))


ZOOM = """layer { name: "zoom" type: "Interp" bottom: "b0" top: "z" interp_param { zoom_factor: 2 } }
    layer { name: "x" type: "Eltwise" bottom: "z" bottom: "b1" top: "y" }"""


@pytest.mark.parametrize(("size", "openvinos"), [((6, 8), True), ((5, 7), False)])
def test_a_zoom_factor_multiplies_where_shapes_fit_so_only(
    size: tuple[int, int], openvinos: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        net = net_of(ZOOM, (1, 1, 3, 4), (1, 1, *size))
    assert ("as in OpenVINO" in caplog.text) is openvinos
    x = np.random.default_rng(5).normal(size=(3, 4))
    rows = np.stack([np.interp(np.linspace(0, 2, size[0]), range(3), column) for column in x.T], axis=1)
    expected = [np.interp(np.linspace(0, 3, size[1]), range(4), row) for row in rows]
    np.testing.assert_allclose(run(net, x[None, None], np.zeros((1, 1, *size)))[0, 0], expected, rtol=1e-5)


def test_sizes_that_fit_neither_way_are_told_as_deeplabs() -> None:
    with pytest.raises(CaffejaxError, match=r"\(1, 1, 5, 7\)"):
        net_of(ZOOM, (1, 1, 3, 4), (1, 1, 4, 4))
