"""Layers as further forks use them: CTPN, channel-pruning, R-FCN, Intel's V-Net and YOLO, OpenVINO's models."""

import logging
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net, layer_types
from caffejax.base.errors import CaffejaxError
from caffejax.base.glog import collect_warnings


def make_net(text: str, *shapes: tuple[int, ...], phase: Any = "TEST") -> Net:
    dims = [" ".join(f"dim: {n}" for n in shape) for shape in shapes]
    inputs = [
        f'layer {{ name: "b{i}" type: "Input" top: "b{i}" input_param {{ shape {{ {d} }} }} }}'
        for i, d in enumerate(dims)
    ]
    return Net("\n".join([*inputs, text]), phase)


def format_layer(layer_type: str, n: int, text: str = "") -> str:
    bottoms = " ".join(f"bottom: 'b{i}'" for i in range(n))
    return f'layer {{ name: "x" type: "{layer_type}" {bottoms} top: "y" {text} }}'


def run(net: Net, *bottoms: Any, params: Any = None, state: Any = None) -> np.ndarray:
    initial = net.init(jax.random.key(0))
    tops, _ = net.forward(
        params or initial.params, state or initial.state, {f"b{i}": np.asarray(b, "f") for i, b in enumerate(bottoms)}
    )
    return np.asarray(tops["y"])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_lstm_of_ctpn_equals_a_loop_over_time() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 3, 2)).astype("f")
    net = make_net(format_layer("Lstm", 1, "lstm_param { num_output: 5 }"), x.shape)
    w_x, w_h, b = (random.normal(size=shape).astype("f") for shape in ((20, 2), (20, 5), (20,)))
    h = c = np.zeros((3, 5))
    expected = []
    for x_t in x:
        i, f, o, g = np.split(x_t @ w_x.T + h @ w_h.T + b, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected.append(h)
    np.testing.assert_allclose(
        run(net, x, params={"x": {"weight_input": w_x, "weight_hidden": w_h, "bias": b}}),
        expected,
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("axis", [1, -1])
def test_filter_param_selects_channels(axis: int) -> None:
    x = np.random.default_rng(1).normal(size=(2, 4, 3, 4))
    net = make_net(format_layer("Filter", 1, f"filter_param {{ num_output: 2 axis: {axis} }}"), x.shape)
    result = run(net, x, state={"x": {"mask": np.array([0, 2, 0, -1], "f")}})
    np.testing.assert_allclose(result, np.take(x, [1, 3], axis=axis), rtol=1e-6)
    with pytest.raises(CaffejaxError, match="num_output must be between 1 and 4"):
        make_net(format_layer("Filter", 1, "filter_param { num_output: 5 }"), x.shape)


def test_smooth_l1_loss_ohem_ignores_trailing_axes_of_size_1() -> None:
    a, b, w = np.random.default_rng(2).normal(size=(3, 4, 5))
    text = format_layer("SmoothL1LossOHEM", 3, "loss_weight: 1")
    expected = run(make_net(text, (4, 5), (4, 5), (4, 5)), a, b, w)
    net = make_net(text, (4, 5, 1, 1), (4, 5), (4, 5, 1))
    np.testing.assert_allclose(run(net, a.reshape(4, 5, 1, 1), b, w.reshape(4, 5, 1)), expected, rtol=1e-6)


def test_prelu_with_five_axes_has_a_slope_for_each_channel() -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 2, 2, 2))
    result = run(
        make_net(format_layer("PReLU", 1), x.shape), x, params={"x": {"slope": np.array([0.1, 0.2, 0.3], "f")}}
    )
    slopes = np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1, 1)
    np.testing.assert_allclose(result, np.where(x > 0, x, slopes * x), rtol=1e-6)


def test_eval_detection_does_not_read_images() -> None:
    x, labels = np.random.default_rng(4).normal(size=(1, 7, 2, 2)), [[[[1, 0.3, 0.3, 0.5, 0.5]]]]
    text = "eval_detection_param { side: 2 num_class: 2 num_object: 1 biases: 1 biases: 1 }"
    shapes = (1, 7, 2, 2), (1, 1, 1, 5), (1, 3, 4, 4)
    result = run(make_net(format_layer("EvalDetection", 3, text), *shapes), x, labels, np.full((1, 3, 4, 4), np.nan))
    np.testing.assert_array_equal(result, run(make_net(format_layer("EvalDetection", 2, text), *shapes[:2]), x, labels))


def test_detection_output_of_rois_in_pixels() -> None:
    rois = np.array([[0, 10, 20, 30, 60], [0, 50, 50, 90, 70], [-1, 0, 0, 0, 0]], "f")
    offsets = np.zeros((3, 2, 4))
    offsets[0, 1], offsets[1, 1] = [0.5, -0.25, np.log(2), 0], [0, 0, 0, np.log(0.5)]
    scores = np.array([[0.1, 0.9], [0.4, 0.6], [0, 1]])
    text = """detection_output_param { num_classes: 2 share_location: false normalized: false input_width: 100
        input_height: 200 code_type: CENTER_SIZE variance_encoded_in_target: true keep_top_k: 10
        nms_param { nms_threshold: 0.4 } }"""
    net = make_net(format_layer("DetectionOutput", 3, text), (1, 24), (1, 6), (1, 1, 15))
    result = run(net, offsets.reshape(1, -1), scores.reshape(1, -1), rois.reshape(1, 1, -1))[0, 0]
    result = result[result[:, 1] >= 0]
    # center + offset * side, side * exp(offset): 20 x 40 around (20, 40), and 40 x 20 around (70, 60)
    boxes = np.array([[30 - 20, 30 - 20, 30 + 20, 30 + 20], [70 - 20, 60 - 5, 70 + 20, 60 + 5]])
    expected = [[0, 1, score, *box] for score, box in zip([0.9, 0.6], boxes / [100, 200, 100, 200], strict=True)]
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    with pytest.raises(CaffejaxError, match="must be ROIs, rows of 5 values"):
        make_net(format_layer("DetectionOutput", 3, text), (1, 24), (1, 6), (1, 2, 12))


ZOOM_NET = """layer { name: "zoom" type: "Interp" bottom: "b0" top: "z" interp_param { zoom_factor: 2 } }
    layer { name: "x" type: "Eltwise" bottom: "z" bottom: "b1" top: "y" }"""


@pytest.mark.parametrize(("size", "is_openvino"), [((6, 8), True), ((5, 7), False)])
def test_zoom_factor_multiplies_sizes_only_if_other_shapes_require_it(
    size: tuple[int, int], is_openvino: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        net = make_net(ZOOM_NET, (1, 1, 3, 4), (1, 1, *size))
    assert ("as in OpenVINO" in caplog.text) is is_openvino
    x = np.random.default_rng(5).normal(size=(3, 4))
    rows = np.stack([np.interp(np.linspace(0, 2, size[0]), range(3), column) for column in x.T], axis=1)
    expected = [np.interp(np.linspace(0, 3, size[1]), range(4), row) for row in rows]
    np.testing.assert_allclose(run(net, x[None, None], np.zeros((1, 1, *size)))[0, 0], expected, rtol=1e-5)


def test_sizes_that_fit_neither_fork_are_reported_as_deeplabs() -> None:
    with pytest.raises(CaffejaxError, match=r"\(1, 1, 5, 7\)"):
        make_net(ZOOM_NET, (1, 1, 3, 4), (1, 1, 4, 4))


def run_forward(
    text: str, shapes: list[tuple[int, ...]], *bottoms: Any, state: Any = None, phase: Any = "TRAIN"
) -> Any:
    net = make_net(text, *shapes, phase=phase)
    inputs = {f"b{i}": np.asarray(b, "f") for i, b in enumerate(bottoms)}
    initial = net.init(jax.random.key(0))
    return net.forward(initial.params, state or initial.state, inputs, key=jax.random.key(1))


POINTS, LABELS = np.array([[0, 0], [4, 4], [0, 2], [8, 4]], "f"), np.array([0, 1, 0, 1])
SHAPES: list[tuple[int, ...]] = [(4, 2), (4,)]


def test_decode_returns_distances_to_the_mean_of_each_label() -> None:
    text = format_layer("Decode", 2, 'top: "z" decode_param { cache_size: 1 pregen_label_count: 2 }')
    tops, state = run_forward(text, SHAPES, POINTS, LABELS)
    means = np.array([[0, 1], [6, 4]], "f")
    np.testing.assert_allclose(state["x"]["centroids"].reshape(2, 2), means, rtol=1e-6)
    np.testing.assert_allclose(tops["y"][0].ravel(), [0, 0], atol=1e-6)  # the first item sees itself alone
    assert not np.any(tops["z"])  # two of four encodings complete no centroid
    tops, state = run_forward(text, SHAPES, POINTS, LABELS, state=state)
    np.testing.assert_allclose(tops["z"].reshape(2, 2), means, rtol=1e-6)
    tops, _ = run_forward(text, SHAPES, POINTS, LABELS, state=state, phase="TEST")
    expected = np.sum((POINTS[:, None] - means) ** 2, axis=2)
    np.testing.assert_allclose(tops["y"][..., 0, 0], expected, rtol=1e-6)
    accuracy = run(make_net(format_layer("AccuracyDecode", 2, "accuracy_param { ignore_label: 1 }"), (4, 2), (4, 2)),
                   expected, np.stack([[0, 1, 1, 0], LABELS], axis=1))  # fmt: skip
    np.testing.assert_allclose(accuracy, 0.5)  # of the items with the labels 0 and 0, the first is near


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_accuracy_encoding_compares_with_the_mean_of_each_label(phase: str) -> None:
    rng = np.random.default_rng(0)
    text = format_layer("AccuracyEncoding", 2, "decode_param { cache_size: 2 pregen_label_count: 4 }")
    state, means, counts = None, np.zeros((4, 2)), np.zeros(4, int)
    for _ in range(5):
        x, labels = rng.normal(size=(6, 2)), rng.integers(0, 3, size=(6, 2))  # no item has the label 3
        x += labels[:, :1]
        tops, state = run_forward(text, [(6, 2), (6, 2)], x, labels, state=state, phase=phase)
        n_nearest = 0
        for item, label in zip(x, labels[:, 0], strict=True):
            counts[label] += 1
            means[label] += (item - means[label]) / min(counts[label], 6 * 2)
            distances = [np.sum((item - means[k]) ** 2) if counts[k] else np.inf for k in range(4)]
            n_nearest += int(np.argmin(distances) == label)
        np.testing.assert_allclose(tops["y"], n_nearest / 6, rtol=1e-6)
        np.testing.assert_allclose(state["x"]["carried_centroids"], means, rtol=1e-4)
    assert max(counts) > 12
    assert n_nearest < 6


@pytest.mark.parametrize(
    ("settings", "labels", "message"),
    [
        ("", (4,), "two labels for each of the 4 items"),
        ("", (3, 2), "two labels for each of the 4 items"),
        ("accuracy_param { top_k: 2 }", (4, 2), "top_k does not apply"),
        ("decode_param { cache_size: 0 }", (4, 2), "cache_size must be positive, not 0"),
    ],
)
def test_invalid_accuracy_encoding_layers_are_refused(settings: str, labels: tuple[int, ...], message: str) -> None:
    with pytest.raises(CaffejaxError, match=message):
        make_net(format_layer("AccuracyEncoding", 2, settings), (4, 2), labels)


def test_knn_scores_labels_by_their_nearest_examples() -> None:
    text = format_layer("Knn", 2, "knn_param { num_output: 4 k: 1 max_stored_batches: 3 }")
    _, state = run_forward(text, SHAPES, POINTS, LABELS)
    _, state = run_forward(text, SHAPES, POINTS + 10, np.full(4, 2), state=state)
    tops, _ = run_forward(text, SHAPES, POINTS, LABELS, state=state, phase="TEST")
    examples = [POINTS[[0, 2]], POINTS[[1, 3]], POINTS + 10]
    nearest_distances = np.array([[np.linalg.norm(e - x, axis=1).min() for e in examples] for x in POINTS])
    min_distance, max_distance = (
        nearest_distances.min(axis=1, keepdims=True),
        nearest_distances.max(axis=1, keepdims=True),
    )
    expected = np.concatenate(
        [1 - (nearest_distances - min_distance) / (max_distance - min_distance), np.zeros((4, 1))], axis=1
    )
    np.testing.assert_allclose(tops["y"][..., 0, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [0, 2])
def test_data_sequence_pairs_items_with_equal_and_different_labels(k: int) -> None:
    tops = " ".join(f'top: "{name}"' for name in [*["p", "n", "m"][: 1 + k], "l"])
    text = format_layer("DataSequence", 2, f"{tops} data_sequence_param {{ k: {k} cache_size: 2 label_count: 2 }}")
    result, _ = run_forward(text, SHAPES, POINTS, LABELS)
    labels = np.asarray(result["l"][..., 0, 0])
    np.testing.assert_array_equal(result["y"], POINTS)
    np.testing.assert_array_equal(labels[:, 0], LABELS)
    same = labels[:, :1] == labels[:, 1:]
    np.testing.assert_array_equal(same, [[True] + [False] * k] * 4 if k else [[True], [False]] * 2)
    for name, column in zip(["p", "n", "m"], labels.T[1:], strict=False):
        candidates = [POINTS[np.equal(LABELS, label)] for label in column]
        assert all(
            any(np.array_equal(x, p) for p in points) for x, points in zip(result[name], candidates, strict=True)
        )


@pytest.mark.parametrize(
    ("text", "labels", "distance", "legacy"),
    [
        ("output_matches: true", [[1, 1], [1, 0]], 2, False),
        ("output_matches: true legacy_version: true margin: 3", [[2, 2], [0, 1]], 2, True),
        ('output_matches: true distance_calculation: "MANHATTAN" margin: 2', [[1], [0]], 1, True),
        ("output_matches: true matching_distance_scale: 3", [[1], [0]], 2, False),
    ],
)
def test_mycaffes_contrastive_loss(text: str, labels: Any, distance: int, legacy: bool) -> None:
    a, b = np.array([[0, 0.5], [1, 1]], "f"), np.array([[0.5, 0], [0.75, 1.5]], "f")
    settings = f'top: "m" loss_weight: 1 loss_weight: 0 contrastive_loss_param {{ {text} }}'
    net = make_net(format_layer("ContrastiveLoss", 3, settings), (2, 2), (2, 2), np.shape(labels))
    tops, _ = net.forward({}, {}, {"b0": a, "b1": b, "b2": np.asarray(labels, "f")})
    squared_distance = np.sum(np.abs(a - b) ** distance, axis=1) * [3 if "scale" in text else 1, 1]
    margin = 3 if "margin: 3" in text else 2 if "margin: 2" in text else 1
    gap = margin - (squared_distance if legacy else np.sqrt(squared_distance))
    loss = (squared_distance[0] + max(gap[1], 0) ** (1 if legacy else 2)) / 4
    np.testing.assert_allclose(tops["y"], loss, rtol=1e-5)
    np.testing.assert_array_equal(np.ravel(tops["m"]), [gap[0] >= 0, gap[1] < 0])


def test_net_with_min_top_axes_debug_and_memory_loss() -> None:
    text = """
    layer { name: "p" type: "InnerProduct" bottom: "b0" top: "ip" inner_product_param { num_output: 3 min_top_axes: 4 }}
    layer { name: "d" type: "Debug" bottom: "ip" bottom: "b1" top: "ip" debug_param { max_stored_batches: 2 } }
    layer { name: "s" type: "Slice" bottom: "ip" top: "y" top: "z" slice_param { axis: 1 slice_dim: 1 slice_point: 1 } }
    layer { name: "l" type: "MemoryLoss" bottom: "z" bottom: "b1" top: "loss" }"""
    with collect_warnings() as warnings:
        tops, _ = run_forward(text, SHAPES, POINTS, LABELS)
    assert (tops["y"].shape, float(tops["loss"])) == ((4, 1, 1, 1), 0)
    assert any("MemoryLoss is 0" in warning for warning in warnings)
    assert any("debug_param (of mycaffe) is ignored" in warning for warning in warnings)


def test_pool_and_unpool_set_the_method_of_unpooling() -> None:
    text = "unpooling_param {{ unpool_size: 4 kernel_size: 2 stride: 2 {}: TILE }}"
    x = np.arange(4).reshape(1, 1, 2, 2)
    pool_result, unpool_result = (
        run(make_net(format_layer("UnPooling", 1, text.format(n)), x.shape), x) for n in ("pool", "unpool")
    )
    np.testing.assert_array_equal(pool_result, unpool_result)


def test_num_layers_of_an_lstm_makes_a_stack() -> None:
    settings = "recurrent_param { num_output: 3 engine: CUDNN num_layers: 2 dropout_ratio: 0.4 dropout_seed: 1 }"
    x = np.random.default_rng(6).normal(size=(4, 2, 5)).astype("f")
    stack = make_net(format_layer("Lstm", 2, settings), x.shape, (4, 2))
    assert [(layer.name, layer.type.name) for layer in stack.graph.layers[2:] if not layer.is_inserted_split] == [
        *(("x_1", "Lstm"), ("x_drop_1", "Dropout"), ("x", "Lstm")),
    ]
    lstm_param = "recurrent_param { num_output: 3 }"
    params = stack.init(jax.random.key(1)).params
    first_top = run(
        make_net(format_layer("LSTM", 2, lstm_param), x.shape, (4, 2)), x, np.ones((4, 2)), params={"x": params["x_1"]}
    )
    second_net = make_net(format_layer("LSTM", 2, lstm_param), (4, 2, 3), (4, 2))
    expected = run(second_net, first_top, np.ones((4, 2)), params={"x": params["x"]})
    np.testing.assert_allclose(run(stack, x, np.ones((4, 2)), params=params), expected, rtol=1e-5)


def test_normalization2_param_sets_the_fields_of_norm_param() -> None:
    text = "normalization2_param { across_spatial: false channel_shared: true esp: 0.5 }"
    ssd_text = "norm_param { across_spatial: false channel_shared: true eps: 0.5 }"
    x = np.random.default_rng(7).normal(size=(1, 3, 2, 2))
    results = [
        run(make_net(format_layer(kind, 1, t), x.shape), x)
        for kind, t in (("Normalization2", text), ("Normalize", ssd_text))
    ]
    np.testing.assert_array_equal(*results)


RESHAPE_NET = """layer { name: "s" type: "%s" bottom: "b0" top: "s" }
    layer { name: "r" type: "ReLU" bottom: "s" top: "s" }
    layer { name: "f" type: "Flatten" bottom: "s" top: "s" }
    layer { name: "x" type: "Reshape" bottom: "s" top: "s" reshape_param { shape { dim: 0 dim: 3 dim: -1 } } }
    layer { name: "p" type: "Power" bottom: "s" top: "y" }"""


def test_nets_of_forks_reshape_in_place() -> None:
    x = np.random.default_rng(8).normal(size=(2, 3, 2, 2))
    result = run(make_net(RESHAPE_NET % "Gather", x.shape), x)
    np.testing.assert_allclose(result, np.maximum(x, 0).reshape(2, 3, 4), rtol=1e-6)
    with pytest.raises(CaffejaxError, match="does not allow in-place computation"):
        make_net(RESHAPE_NET % "AbsVal", x.shape)


@pytest.mark.parametrize(
    ("layer_type", "text"),
    [
        ("EvalDetection", "eval_detection_param { side: 3 num_class: 2 num_object: 1 biases: 1 biases: 2 }"),
        ("RegionLoss", "loss_weight: 1 region_loss_param { side: 3 num_class: 2 num: 1 biases: 1 biases: 2 }"),
    ],
)
def test_yolo_layers_accept_labels_of_ssd(layer_type: str, text: str) -> None:
    x = np.random.default_rng(9).normal(size=(2, 7, 3, 3))
    rows = [
        [1, 2, 0, 0.1, 0.2, 0.5, 0.4, 0],
        [0, 1, 0, 0.3, 0.3, 0.9, 0.7, 0],
        [-1] * 8,
        [1, 1, 1, 0.6, 0.5, 0.8, 0.9, 0],
    ]
    yolo_labels = [[[0, 0.6, 0.5, 0.6, 0.4], [0] * 5], [[1, 0.3, 0.3, 0.4, 0.2], [0, 0.7, 0.7, 0.2, 0.4]]]
    ssd_result = run(make_net(format_layer(layer_type, 2, text), x.shape, (1, 1, 4, 8)), x, [[rows]])
    yolo_result = run(
        make_net(format_layer(layer_type, 2, text), x.shape, (2, 1, 2, 5)), x, np.array(yolo_labels)[:, None]
    )
    np.testing.assert_allclose(ssd_result, yolo_result, rtol=1e-5, atol=1e-6)


def test_types_of_forks_that_compute_products_in_bfloat16() -> None:
    fork_types = [t for t in layer_types().values() if t.docs.origin != "BVLC"]
    product_types = {t.name for t in fork_types if t.traits.dtype_policy == "products"}
    depthwise = {"ConvolutionDepthwise", "DepthwiseConvolution"}
    assert product_types == depthwise | {"Convolution3D", "Deconvolution3D", "NdConvolution"}
