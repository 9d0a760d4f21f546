"""Forks' layers for segmentation and depthwise convolutions beyond the recorded cases."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat

from caffejax.base.errors import CaffejaxError, DataError
from caffejax.core.program.net import Net
from caffejax.forks.segmentation.meanfield import build_lattice, filter_by_lattice
from layer_nets import net_text

IMAGE_SHAPE = (2, 4, 5, 6)
RANDOM = np.random.default_rng(0)


def run(layer_type: str, text: str, *bottoms: Any, phase: Any = "TEST", tops: int = 1, seed: int = 0) -> Any:
    """Return the first top of a layer for these arrays."""
    net = Net(net_text(layer_type, text, [np.shape(b) for b in bottoms], tops=tops), phase)
    key = jax.random.key(seed)
    inputs = {f"b{i}": jnp.asarray(b) for i, b in enumerate(bottoms)}
    return net.jit(net.apply)(*net.init(key), inputs, key=key)[0]["t0"]


def draw_normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("window", "size"), [("kernel_size: 2 stride: 2", (11, 13)), ("kernel_size: 4 pad: 1", (6, 7))]
)
def test_default_output_size_of_unpooling(window: str, size: tuple[int, int]) -> None:
    """Each side is the larger of (n - 1) * stride + kernel - 2 * pad and n * stride - pad + 1."""
    assert run("UnPooling", f"unpooling_param {{ {window} }}", draw_normal(2, 4, 5, 6)).shape == (2, 4, *size)


@settings(max_examples=8)
@given(st.tuples(*[st.integers(1, 7)] * 4))
def test_interp_equals_loops(sizes: tuple[int, ...]) -> None:
    h, w, out_h, out_w = sizes
    x = draw_normal(1, 1, h, w)
    expected = np.zeros((out_h, out_w))
    for i in range(out_h):
        for j in range(out_w):
            y, z = (a * (n - 1) / (m - 1) if m > 1 else 0.0 for a, n, m in ((i, h, out_h), (j, w, out_w)))
            rows, columns = (np.maximum(0, 1 - np.abs(np.arange(n) - position)) for n, position in ((h, y), (w, z)))
            expected[i, j] = rows @ x[0, 0] @ columns
    result = run("Interp", f"interp_param {{ height: {out_h} width: {out_w} }}", x)
    np.testing.assert_allclose(result[0, 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("shrink_factor: 2", (513, 1025)),  # ICNet's first layers
        ("zoom_factor: 2", (2049, 4097)),
        ("shrink_factor: 4 zoom_factor: 2", (513, 1025)),
        ("shrink_factor: 4 zoom_factor: 2 height: 33 width: 65", (33, 65)),
        ("shrink_factor: 8 pad_beg: -1", (128, 256)),
    ],
)
def test_output_sizes_of_interp(text: str, size: tuple[int, int]) -> None:
    net = Net(net_text("Interp", f"interp_param {{ {text} }}", [(1, 3, 1025, 2049)]))
    assert net.graph.blobs["t0"].shape == (1, 3, *size)


def test_integers_are_interpolated_as_floats() -> None:
    x = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4)
    result = run("Interp", "interp_param { height: 5 width: 4 }", x)
    np.testing.assert_allclose(result[0, 0, :, 0], [0, 2, 4, 6, 8])


def test_negative_padding_inverts_padding() -> None:
    x = draw_normal(*IMAGE_SHAPE)
    padded = run("Padding", "padding_param { pad_beg: 2 pad_end: 1 }", x)
    np.testing.assert_array_equal(padded, np.pad(x, [(0, 0), (0, 0), (2, 1), (2, 1)]))
    np.testing.assert_array_equal(run("Padding", "padding_param { pad_beg: -2 pad_end: -1 }", padded), x)


@pytest.mark.parametrize("layer_type", ["Upsample", "UnPooling"])
def test_unpooling_puts_maxima_at_their_original_positions(layer_type: str) -> None:
    param = "upsample_param { scale: 2 }" if layer_type == "Upsample" else "unpooling_param { unpool_h: 6 unpool_w: 8 }"
    text = f"""
        layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 dim: 6 dim: 8 }} }} }}
        layer {{ name: "pool" type: "Pooling" bottom: "x" top: "max" top: "mask"
          pooling_param {{ kernel_size: 2 stride: 2 }} }}
        layer {{ name: "up" type: "{layer_type}" bottom: "max" bottom: "mask" top: "up" {param} }}
    """
    x = draw_normal(2, 3, 6, 8)
    up = Net(text).apply({}, {}, {"x": x})[0]["up"]
    assert np.count_nonzero(up) == 2 * 3 * 3 * 4
    np.testing.assert_array_equal(np.where(up != 0, x, 0), up)


def test_upsample_gives_nan_for_indices_outside_of_the_top() -> None:
    mask = np.zeros((1, 2, 2, 2), np.float32)
    mask[0, 1, 0, 0] = 16
    result = run("Upsample", "upsample_param { scale: 2 }", np.ones_like(mask), mask)
    assert not np.isnan(result[0, 0]).any()
    assert np.isnan(result[0, 1]).all()


def test_seg_accuracy_and_eltwise_accuracy() -> None:
    scores, labels = draw_normal(2, 3, 4, 5), RANDOM.integers(0, 3, (2, 1, 4, 5)).astype(np.float32)
    labels[0, 0, 0, :3] = 255
    prediction, label = scores.argmax(1).ravel(), labels.ravel()
    expected = np.mean((prediction == label)[label != 255])
    result = run("SegAccuracy", "seg_accuracy_param { ignore_label: 255 }", scores, labels)
    np.testing.assert_allclose(result.ravel()[0], expected, rtol=1e-6)
    assert np.isnan(run("SegAccuracy", "", scores, labels)).all()
    accuracy = run("EltwiseAccuracy", "eltwise_accuracy_param { ignore_label: 255 }", scores, labels)
    np.testing.assert_allclose(accuracy, np.reshape(expected, (1, 1, 1, 1)), rtol=1e-6)
    top_2_accuracy = run("EltwiseAccuracy", "eltwise_accuracy_param { top_k: 2 ignore_label: 255 }", scores, labels)
    best = scores.argsort(1)[:, 1:].transpose(0, 2, 3, 1).reshape(-1, 2)
    np.testing.assert_allclose(top_2_accuracy.item(), np.mean((best == label[:, None]).any(1)[label != 255]), rtol=1e-6)


MEANFIELD_PARAM = """multi_stage_meanfield_param { num_iterations: 3 theta_alpha: 2.2 theta_beta: 0.7 theta_gamma: 1.5
               spatial_filter_weight: 3 bilateral_filter_weight: 5 }"""
PIXEL_POSITIONS = np.stack(np.meshgrid(np.arange(4), np.arange(3)), -1).reshape(12, 2)  # of an image of 3 x 4 pixels


def test_meanfield_equals_matrix_products() -> None:
    unary, initial_scores, image = draw_normal(1, 2, 3, 4), draw_normal(1, 2, 3, 4), draw_normal(1, 3, 3, 4)
    spatial_weights = compute_lattice_matrix(PIXEL_POSITIONS / 1.5)
    bilateral_weights = compute_lattice_matrix(np.concatenate([PIXEL_POSITIONS / 2.2, image.reshape(3, 12).T / 0.7], 1))
    spatial_weights, bilateral_weights = (
        weights / weights.sum(1, keepdims=True) for weights in (spatial_weights, bilateral_weights)
    )
    q = initial_scores.reshape(2, 12)
    for _ in range(3):
        p = np.exp(q) / np.exp(q).sum(0)
        q = unary.reshape(2, 12) + 3 * (spatial_weights @ p.T).T + 5 * (bilateral_weights @ p.T).T
    top = run("MultiStageMeanfield", MEANFIELD_PARAM, unary, initial_scores, image)
    np.testing.assert_allclose(top.reshape(2, 12), q, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_lattice_filter_and_its_gradient_equal_the_matrix_of_the_paper(d: int) -> None:
    features, identity = draw_normal(9, d) * 2, np.eye(9, dtype=np.float32)

    @jax.jit
    def filter_with_transpose(features: Any) -> tuple[Any, Any]:
        filtered, transpose = jax.vjp(partial(filter_by_lattice, build_lattice(features)), identity)
        return filtered, transpose(identity)[0]

    filtered, transposed = filter_with_transpose(features)
    expected = compute_lattice_matrix(features)
    np.testing.assert_allclose(filtered, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(transposed, expected.T, rtol=1e-4, atol=1e-4)


def test_lattice_filter_approximates_a_gaussian_filter() -> None:
    rows, columns = np.mgrid[:16, :16]
    image = np.stack([rows * 0.3, np.hypot(rows, columns) * 0.3, np.sin(columns / 3)], -1).reshape(-1, 3)
    features = np.concatenate([np.stack([columns, rows], -1).reshape(-1, 2) / 3, image], 1).astype(np.float32)
    x = np.stack([rows > 7, columns > rows, image[:, 2].reshape(16, 16)], -1).reshape(-1, 3).astype(np.float32)
    gaussian_weights = np.exp(-np.square(features[:, None] - features).sum(-1) / 2)
    apply_filter = jax.jit(lambda features, x: filter_by_lattice(build_lattice(features), x))
    sums = apply_filter(features, np.concatenate([x, np.ones((256, 1), np.float32)], 1))
    result = sums[:, :3] / sums[:, 3:]
    expected = (gaussian_weights @ x) / gaussian_weights.sum(1, keepdims=True)
    assert np.abs(result - expected).mean() < 0.05 * np.ptp(expected)
    assert np.abs(result - expected).max() < 0.2 * np.ptp(expected)


def compute_lattice_matrix(features: np.ndarray) -> np.ndarray:
    """Return the weights of the lattice's filter by its definition, (points, points), with dictionaries of vertices.

    The vertex of each remainder in a point's simplex is the nearest with this remainder; weights solve for the point.
    """
    points, d = features.shape
    scale = np.sqrt(2 / 3) * (d + 1) / np.sqrt(np.arange(1, d + 1) * np.arange(2, d + 2))
    embedding = np.array([[s] * (j + 1) + [-s * (j + 1)] + [0] * (d - 1 - j) for j, s in enumerate(scale)])
    values: dict[tuple[int, ...], np.ndarray] = {}
    simplices = []
    for point_index, point in enumerate(features.astype(float) @ embedding):
        simplex = []
        for remainder in range(d + 1):
            low = np.floor((point - remainder) / (d + 1)).astype(int)
            vertices = (low + np.array(list(itertools.product([0, 1], repeat=d + 1)))) * (d + 1) + remainder
            vertices = vertices[vertices.sum(1) == 0]
            shifted_point = point + 1e-6 * np.arange(d, -1, -1)  # on faces of simplices, as in the fork
            simplex.append(tuple(vertices[np.square(vertices - shifted_point).sum(1).argmin()]))
        weights = np.linalg.lstsq(np.c_[np.array(simplex), np.ones(d + 1)].T, np.r_[point, 1], rcond=None)[0]
        simplices.append((simplex, weights))
        for vertex, weight in zip(simplex, weights, strict=True):
            values.setdefault(vertex, np.zeros(points))[point_index] += weight
    for step in (d + 1) * np.eye(d + 1, dtype=int) - 1:
        neighbors = {v: [values.get(tuple(v + s * step), 0) for s in (1, -1)] for v in values}
        values = {v: value + sum(neighbors[v]) / 2 for v, value in values.items()}
    rows = [sum(w * values[v] for v, w in zip(*simplex, strict=True)) for simplex in simplices]
    return np.array(rows) / (1 + 2.0**-d)


def test_values_of_hard_swish_hard_sigmoid_and_selu() -> None:
    x = np.array([[-4, -3, -1, 0, 1, 2.5, 3, 4]], np.float32)
    np.testing.assert_allclose(run("HSwish", "", x), x * np.clip(x + 3, 0, 6) / 6, rtol=1e-6)
    np.testing.assert_allclose(run("HardSigmoid", "", x), np.clip(0.2 * x + 0.5, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(run("SeLu", "", x)[0, 0], 1.0507010 * 1.6732632 * np.expm1(-4), rtol=1e-5)


def test_spatial_dropout_drops_channels() -> None:
    result = np.asarray(run("SpatialDropout", "", np.ones((50, 20, 3, 3), np.float32), phase="TRAIN"))
    assert set(np.unique(result)) == {0, 2}
    assert np.ptp(result, axis=(2, 3)).max() == 0
    assert abs(result.mean() - 1) < 0.1


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = draw_normal(400, 200)
    result = run("SeLuDropout", "", x, phase="TRAIN")
    assert abs(result.mean()) < 0.02
    assert abs(result.std() - 1) < 0.02
    np.testing.assert_array_equal(run("SeLuDropout", "", x), x)


def test_convolution_depthwise_equals_single_channel_convolutions() -> None:
    net = Net(
        net_text("ConvolutionDepthwise", "convolution_param { kernel_size: 3 pad: 1 bias_term: false }", [IMAGE_SHAPE])
    )
    weight, x = draw_normal(4, 1, 3, 3), draw_normal(*IMAGE_SHAPE)
    result = net.apply({"layer": {"weight": weight}}, {}, {"b0": x})[0]["t0"]
    single_channel_net = Net(
        net_text(
            "Convolution", "convolution_param { num_output: 1 kernel_size: 3 pad: 1 bias_term: false }", [(2, 1, 5, 6)]
        )
    )
    for c in range(4):
        expected = single_channel_net.apply({"layer": {"weight": weight[c : c + 1]}}, {}, {"b0": x[:, c : c + 1]})[0][
            "t0"
        ]
        np.testing.assert_allclose(result[:, c : c + 1], expected, atol=1e-5)


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_bn_equals_batch_norm_and_scale(phase: Any) -> None:
    """PSPNet's BN, with batch statistics and with stored statistics."""
    x, (slope, bias, mean), variance = draw_normal(*IMAGE_SHAPE), draw_normal(3, 4), np.square(draw_normal(4))
    bn_net = Net(net_text("BN", "bn_param { }", [IMAGE_SHAPE]), phase)
    blobs = [b.reshape(1, 4, 1, 1) for b in (slope, bias, mean, variance)]
    params, state = (
        dict(zip(("weight", "bias"), blobs[:2], strict=True)),
        dict(zip(("mean", "variance"), blobs[2:], strict=True)),
    )
    result = bn_net.apply({"layer": params}, {"layer": state}, {"b0": x})[0]["t0"]
    if phase == "TRAIN":
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    normal = (x - mean[:, None, None]) / np.sqrt(variance + 1e-5)[:, None, None]
    np.testing.assert_allclose(result, normal * slope[:, None, None] + bias[:, None, None], rtol=1e-4, atol=1e-4)


def test_mat_write(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("first.jpg 1\nsecond.jpg 0\n")
    text = f'mat_write_param {{ prefix: "{tmp_path}/" source: "{tmp_path}/list.txt" strip: 4 }}'
    net = Net(net_text("MatWrite", text, [(2, 3, 4, 5), (2,)], tops=0))
    for k in range(2):
        net.forward({}, {}, {"b0": (x := draw_normal(2, 3, 4, 5)), "b1": np.full(2, k, np.float32)})
        np.testing.assert_array_equal(loadmat(tmp_path / f"{('first', 'second')[k]}_blob_0.mat")["data"], x.T)
    assert loadmat(tmp_path / "second_blob_1.mat")["data"].ravel().tolist() == [1, 1]
    with pytest.raises(CaffejaxError, match="has 2 names, but this is pass 3"):
        net.forward({}, {}, {"b0": x, "b1": np.zeros(2, np.float32)})
    failing_net = Net(net_text("MatWrite", f'mat_write_param {{ prefix: "{tmp_path}/no/" }}', [(2,)], tops=0))
    with pytest.raises(DataError, match="no/iter_0_blob_0"):
        failing_net.forward({}, {}, {"b0": np.zeros(2, np.float32)})


CHANNEL_SCALE_PARAM = "channel_scale_param { global_scale: true %s }"


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize(
    ("text", "factor", "dx", "d_scale"),
    [
        ("do_forward: false", False, True, True),
        ("do_backward_feature: false", True, False, True),
        ("do_backward_scale: false", True, True, False),
    ],
)
def test_channel_scale_without_forward_or_backward_products(
    text: str, factor: bool, dx: bool, d_scale: bool, backward: Any
) -> None:
    random = np.random.default_rng(0)
    x, s, d_top = (random.normal(size=shape).astype("f") for shape in ((2, 3, 2, 2), (2, 1, 2, 2), (2, 3, 2, 2)))
    net = Net(net_text("ChannelScale", f"channel_scale_param {{ {text} }}", [x.shape, s.shape]), backward=backward)

    def compute_loss(x: Any, s: Any) -> Any:
        return jnp.sum(d_top * net.apply({}, {}, {"b0": x, "b1": s})[0]["t0"])

    np.testing.assert_allclose(compute_loss(x, s), np.sum(d_top * (x * s if factor else x)), rtol=1e-5)
    diffs = jax.grad(compute_loss, (0, 1))(x, s)
    np.testing.assert_allclose(diffs[0], d_top * s if dx else d_top, rtol=1e-5)
    np.testing.assert_allclose(diffs[1], (d_top * x).sum(1, keepdims=True) * d_scale, rtol=1e-4, atol=1e-5)


def test_global_scale_is_the_moving_mean_of_the_scales() -> None:
    x, s = np.ones((1, 2, 1, 2), np.float32), np.float32([[[[-3, 5]]]])
    text = net_text("ChannelScale", CHANNEL_SCALE_PARAM % "max_global_scale: 5.5", [x.shape, s.shape], tops=2)
    params, state = Net(text).init(jax.random.key(0))
    for phase, scales, expected in [("TRAIN", s, 4), ("TRAIN", 50 * s, 5.5), ("TRAIN", s, 5.485), ("TEST", s, 5.485)]:
        tops, state = Net(text, phase).apply(params, state, {"b0": x, "b1": scales}, blobs=["t0", "t1"])
        np.testing.assert_allclose(tops["t1"], [expected], rtol=1e-6)
        np.testing.assert_allclose(tops["t0"], x * expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Interp", "", [IMAGE_SHAPE], "needs height and width, a shrink_factor or a zoom_factor"),
        ("Interp", "interp_param { zoom_factor: 0 }", [IMAGE_SHAPE], "zoom_factor must be at least 1, not 0"),
        ("Interp", "interp_param { zoom_factor: 2 pad_beg: 1 }", [IMAGE_SHAPE], "must not be positive"),
        ("Interp", "interp_param { zoom_factor: 2 pad_beg: -5 }", [IMAGE_SHAPE], r"crop all of the plane \(5, 6\)"),
        ("Interp", "interp_param { height: -1 width: 3 }", [IMAGE_SHAPE], "height -1 and width 3 must be positive"),
        ("Padding", "padding_param { pad_beg: -5 }", [IMAGE_SHAPE], "crop all of the plane"),
        ("Upsample", "upsample_param { scale: 1 }", [IMAGE_SHAPE, IMAGE_SHAPE], "scale must be more than 1, not 1"),
        ("Upsample", "upsample_param { scale: 0 }", [IMAGE_SHAPE], "scale must be positive, not 0"),
        ("Upsample", "upsample_param { scale: 3 pad_out_h: true }", [IMAGE_SHAPE, IMAGE_SHAPE], "need scale 2"),
        ("Upsample", "", [IMAGE_SHAPE, (2, 4, 5, 5)], "data and mask must have equal shapes"),
        ("UnPooling", "", [IMAGE_SHAPE, IMAGE_SHAPE], "kernel_size .* must be set"),
        ("Unpooling", "unpooling_param { unpool: AVE unpool_size: 9 }", [IMAGE_SHAPE], "kernel_size .* must be set"),
        (
            "Unpooling",
            "unpooling_param { unpool: TILE unpool_size: 4 kernel_size: 2 stride: 2 }",
            [IMAGE_SHAPE],
            r"the last window would start at \(8, 10\), outside the top of \(4, 4\)",
        ),
        (
            "ShuffleChannel",
            "shuffle_channel_param { group: 3 }",
            [IMAGE_SHAPE],
            "channels, 4, must be a multiple of group 3",
        ),
        ("ShuffleChannel", "shuffle_channel_param { group: 0 }", [IMAGE_SHAPE], "group must be positive"),
        ("Axpy", "", [(2, 3), IMAGE_SHAPE, IMAGE_SHAPE], r"bottom 0 must hold a factor for each channel, \(2, 4\)"),
        ("ChannelScale", "", [IMAGE_SHAPE, IMAGE_SHAPE], "bottom 1 must have shape"),
        (
            "ChannelScale",
            CHANNEL_SCALE_PARAM % "min_global_scale: 2 max_global_scale: 1",
            [IMAGE_SHAPE, (2, 1, 5, 6)],
            "must be at most",
        ),
        ("SpatialSoftmax", "spatial_softmax_param { temperature: 0 }", [IMAGE_SHAPE], "temperature must be positive"),
        ("EuclideanDistance", "", [(2, 4), (2, 4)], "3 numbers for each point, but has 4"),
        ("WeightedEuclideanLoss", "", [(2, 4), (2, 4), (2, 4)], "a matrix of 4 x 4 for each row"),
        ("SegAccuracy", "", [IMAGE_SHAPE, (2, 5)], "a label for each position"),
        (
            "EltwiseAccuracy",
            "eltwise_accuracy_param { top_k: 5 }",
            [IMAGE_SHAPE, (2, 1, 5, 6)],
            "top_k must be between 1",
        ),
        (
            "MultiStageMeanfield",
            "",
            [IMAGE_SHAPE, IMAGE_SHAPE, (2, 3, 5, 5)],
            "batch size, height and width of the scores",
        ),
        ("ConvolutionDepthwise", "convolution_param { kernel_size: 3 }", [(2, 4)], "needs a bottom with 4 axes"),
        ("BN", "", [(3,)], "needs a bottom with a channel axis"),
        ("SpatialDropout", "spatial_dropout_param { dropout_ratio: 1 }", [IMAGE_SHAPE], "dropout_ratio must be"),
        ("MatWrite", 'mat_write_param { prefix: "x" period: 0 }', [IMAGE_SHAPE], "period must be at least 1"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")


def test_enum_types_of_old_nets() -> None:
    """DeconvNet's and DeepLab's V1 nets name their types by enum values."""
    text = """
        input: "x" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
        input: "label" input_dim: 1 input_dim: 1 input_dim: 15 input_dim: 15
        layers { name: "pool" type: POOLING bottom: "x" top: "max" top: "mask"
          pooling_param { kernel_size: 2 stride: 2 } }
        layers { name: "unpool" type: UNPOOLING bottom: "max" bottom: "mask" top: "up"
          unpooling_param { unpool: MAX kernel_size: 2 stride: 2 unpool_size: 8 } }
        layers { name: "interp" type: INTERP bottom: "up" top: "wide" interp_param { zoom_factor: 3 } }
        layers { name: "crop" type: PADDING bottom: "wide" top: "score" padding_param { pad_beg: -3 pad_end: -4 } }
        layers { name: "seg" type: SEG_ACCURACY bottom: "score" bottom: "label" top: "seg" }
        layers { name: "right" type: ELTWISE_ACCURACY bottom: "score" bottom: "label" top: "right"
          eltwise_accuracy_param { ignore_label: 255 } }
        layers { name: "near" type: EUCLIDEAN_DISTANCE bottom: "score" bottom: "score" top: "near" }
        layers { name: "soft" type: SPATIAL_SOFTMAX bottom: "score" top: "soft" }
    """
    shapes = {name: blob.shape for name, blob in Net(text).graph.blobs.items()}
    assert shapes["up"] == (1, 3, 8, 8)
    assert shapes["soft"] == (1, 3, 15, 15)
    assert (shapes["seg"], shapes["right"], shapes["near"]) == ((1, 1, 1, 3), (1, 1, 1, 1), (1, 1, 1, 1))


@pytest.mark.parametrize(
    "upsampling",
    [
        'type: "Upsample" upsample_param { scale: 2 }',
        'type: "Unpooling" unpooling_param { unpool: MAX kernel_size: 2 stride: 2 unpool_size: 4 }',
    ],
)
def test_pooling_masks_get_no_gradient(upsampling: str) -> None:
    """SegNet and DeconvNet are trained like this, without propagate_down."""
    net = Net(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } } }'
        'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 '
        'kernel_size: 1 weight_filler { type: "constant" value: 1 } } }'
        'layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" top: "mask" pooling_param { kernel_size: 2 '
        "stride: 2 } }"
        f'layer {{ name: "upsampling" bottom: "pool" bottom: "mask" top: "upsampling" {upsampling} }}'
        'layer { name: "size" type: "Reduction" bottom: "upsampling" top: "size" loss_weight: 1 }'
    )
    net.graph.check_backward()
    params, state = net.init(jax.random.key(0))
    data = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    grads = jax.grad(lambda params: net.loss(params, state, {"data": data}, jax.random.key(0))[0])(params)
    channel_sums = (
        data.reshape(2, 2, 2, 2, 2).max((2, 4)).sum((1, 2))
    )  # of each channel's windows; each goes to its place
    np.testing.assert_allclose(
        np.asarray(grads["conv"]["weight"]).reshape(2, 2), [channel_sums, channel_sums], rtol=1e-6
    )
