"""Forks' types without recorded cases, compared with plain NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer

Shape = tuple[int, ...]


def decode_greedily(best: np.ndarray, indicators: np.ndarray, blank: int, merges_repeats: bool) -> list[int]:
    labels: list[int] = []
    for t, label in enumerate(best):
        if t and not indicators[t]:
            break
        if label != blank and not (merges_repeats and t and best[t - 1] == label):
            labels.append(int(label))
    return labels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("text", "blank", "merges_repeats"), [("", 2, True), ("blank_index: 0", 0, True),
                                                     ("ctc_merge_repeated: false", 2, False)])  # fmt: skip
def test_ctc_greedy_decoder_equals_loops(text: str, blank: int, merges_repeats: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(7, 5, 3)).astype(np.float32)
    indicators = random.integers(0, 3, (7, 5)) > 0
    best = scores.argmax(2)
    sequences = [decode_greedily(best[:, i], indicators[:, i], blank, merges_repeats) for i in range(5)]
    targets = np.full((7, 5), -1)
    for i, labels in enumerate(sequences):
        targets[: len(labels), i] = labels
    targets[0, 0] = 5  # one is wrong
    result, score, accuracy = run_layer(
        "CTCGreedyDecoder", f"ctc_decoder_param {{ {text} }}", scores, indicators, targets, tops=3
    )
    assert result.shape == (5, 7, 1, 1)
    for i, labels in enumerate(sequences):
        np.testing.assert_array_equal(result[i, :, 0, 0], labels + [-1] * (7 - len(labels)))
        end_steps = [t for t in range(1, 7) if not indicators[t, i]]
        np.testing.assert_allclose(
            score[i, 0, 0, 0], -scores[: end_steps[0] if end_steps else 7, i].max(1).sum(), rtol=1e-5
        )
    np.testing.assert_allclose(accuracy, 0.8)
    np.testing.assert_allclose(
        run_layer("CTCGreedyDecoder", "", scores, indicators, targets, tops=2)[1].shape, (1,) * 4
    )
    assert run_layer("CTCGreedyDecoder", "", scores, indicators, tops=2)[1].shape == (5, 1, 1, 1)


def test_triplet_loss() -> None:
    a, p, n = np.random.default_rng(3).normal(size=(3, 6, 4))
    margin = 2.0
    terms = margin + ((a - p) ** 2).sum(1) - ((a - n) ** 2).sum(1)
    assert 0 < (terms > 0).sum() < 6
    expected = np.maximum(terms, 0).mean() / 2
    np.testing.assert_allclose(
        run_layer("TripletLoss", "triplet_loss_param { margin: 2 }", a, p, n)[0], expected, rtol=1e-5
    )
    labels = np.arange(6)
    result = run_layer("TripletLoss", "triplet_loss_param { alpha: 2 }", a, p, n, labels)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_cosine_margin() -> None:
    angles = np.array([[0.3, 1.2], [2.9, 0.5], [1.0, 0.2], [0.1, 2.7], [0.4, 0.0]])
    labels = np.array([0, 0, 1, 1, 1])
    (result,) = run_layer("CosinAddm", "cosin_add_m_param { m: 0.5 }", np.cos(angles), labels)
    expected = np.cos(angles)
    for i, label in enumerate(labels):
        angle = angles[i, label]
        expected[i, label] = np.cos(angle + 0.5) if angle + 0.5 < np.pi else np.cos(angle) - 0.5 * np.sin(0.5)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_gradient_scaler_factor_grows_with_passes() -> None:
    text = net_text(
        "GradientScaler", "gradient_scaler_param { lower_bound: 0.1 upper_bound: 0.9 alpha: 5 max_iter: 2 }", [(2, 3)]
    )
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    x = jnp.array([[1.0, -2, 3], [np.inf, 0, 5]])

    def loss(x: jax.Array, state: Any) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        blobs, new_state = net.apply(params, state, {"b0": x})
        return jnp.sum(blobs["t0"] * jnp.arange(6.0).reshape(2, 3)), (blobs["t0"], new_state)

    for t in range(4):
        gradient, (top, state) = jax.grad(loss, has_aux=True)(x, state)
        np.testing.assert_array_equal(top, x)
        factor = 2 * 0.8 / (1 + np.exp(-5 * min(t / 2, 1))) - 0.8 + 0.1
        np.testing.assert_allclose(gradient, -factor * np.arange(6).reshape(2, 3), rtol=1e-5)


def test_mish_of_extreme_numbers() -> None:
    x = np.array([-90.0, -3, -0.1, 0, 2, 90])
    expected = x * np.tanh(np.log1p(np.exp(x)))
    np.testing.assert_allclose(run_layer("Mish", "", x)[0], expected, rtol=1e-6, atol=1e-37)


def interpolate(line: np.ndarray, position: float) -> np.ndarray:
    """Return the linear interpolation along the first axis at a position."""
    position = min(max(position, 0), len(line) - 1)
    low = min(int(position), len(line) - 2) if len(line) > 1 else 0
    return line[low] * (low + 1 - position) + (line[low + 1] * (position - low) if len(line) > 1 else 0)


@pytest.mark.parametrize("mode", ["", "align_corners", "half_pixel_centers", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 1), (4, 5)])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_resize_bilinear_equals_a_loop(data_format: str, size: tuple[int, int], mode: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3))
    expected = np.zeros((2, *size, 3))

    def source_position(i: int, n: int, out: int) -> float:
        if mode == "align_corners" and out > 1:
            return i * (n - 1) / (out - 1)
        if mode == "pytorch_half_pixel" and out == 1:
            return -0.5
        return (i + 0.5) * n / out - 0.5 if "half" in mode else i * n / out

    for i, j in np.ndindex(*size):
        rows = np.stack([interpolate(image, source_position(i, 4, size[0])) for image in x])
        expected[:, i, j] = np.stack([interpolate(row, source_position(j, 5, size[1])) for row in rows])
    text = f'data_format: "{data_format}" output_height: {size[0]} output_width: {size[1]} {mode and mode + ": true"}'
    axis_order = (0, 3, 1, 2) if data_format == "NCHW" else (0, 1, 2, 3)
    (result,) = run_layer("ResizeBilinear", f"resize_bilinear_param {{ {text} }}", x.transpose(axis_order))
    np.testing.assert_allclose(result, expected.transpose(axis_order), atol=2e-6)


def test_resize_bilinear_output_size_by_scale() -> None:
    text = "resize_bilinear_param { scale_height: 1.7 scale_width: 0.5 }"
    assert run_layer("ResizeBilinear", text, np.zeros((1, 4, 5, 3)))[0].shape == (1, 6, 2, 3)


def test_mycaffe_lstm_equals_bvlc_lstm() -> None:
    x, cont = np.random.default_rng(0).normal(size=(4, 2, 5)), np.array([[0, 0], [1, 1], [1, 0], [1, 1]])
    text = 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }'
    np.testing.assert_array_equal(run_layer("Lstm", text, x, cont)[0], run_layer("LSTM", text, x, cont)[0])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CTCGreedyDecoder", "", [(4, 2), (4, 2)], "3 axes"),
        ("CTCGreedyDecoder", "", [(0, 2, 3), (0, 2)], "none of size 0"),
        ("CTCGreedyDecoder", "", [(4, 2, 3), (2, 4)], "for each time step and item"),
        ("CTCGreedyDecoder", "ctc_decoder_param { blank_index: 3 }", [(4, 2, 3), (4, 2)], "less than the 3 labels"),
        ("TripletLoss", "triplet_loss_param { alpha: 2 }", [(2, 4)] * 3, "alpha has no effect with 3 bottoms"),
        (
            "TripletLoss",
            "triplet_loss_param { margin: 2 }",
            [(2, 4)] * 3 + [(2,)],
            "margin has no effect with 4 bottoms",
        ),
        ("TripletLoss", "", [(2, 4), (2, 4), (2, 3)], "must have the shape of bottom 0"),
        ("CosinAddm", "cosin_add_m_param { m: 4 }", [(2, 4), (2,)], "from 0 to pi"),
        ("CosinAddm", "", [(2, 4), (3,)], "a label for each of the 2"),
        ("GradientScaler", "gradient_scaler_param { max_iter: 0 }", [(2, 4)], "max_iter must be 1 or more"),
        ("GradientScaler", "gradient_scaler_param { lower_bound: 2 }", [(2, 4)], "must be at most upper_bound"),
        (
            "ResizeBilinear",
            "resize_bilinear_param { output_height: 0 output_width: 2 }",
            [(1, 4, 5, 3)],
            "1 pixel or more",
        ),
        (
            "ResizeBilinear",
            "resize_bilinear_param { scale_height: 0.1 }",
            [(1, 4, 5, 3)],
            "scale_height of a size of 4",
        ),
        ("ResizeBilinear", 'resize_bilinear_param { data_format: "NCHWD" }', [(1, 4, 5, 3)], "use NHWC or NCHW"),
        ("ResizeBilinear", "resize_bilinear_param { saturate: Signed }", [(1, 4, 5, 3)], "saturate: quantized"),
        (
            "ResizeBilinear",
            "resize_bilinear_param { align_corners: true half_pixel_centers: true }",
            [(1, 4, 5, 3)],
            "align_corners and half_pixel_centers cannot be combined",
        ),
        ("LstmSimple", "lstm_simple_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        (
            "LstmSimple",
            "lstm_simple_param { num_output: 2 enable_clockwork_forgetgate_bias: true }",
            [(8, 4)],
            "enable_clockwork_forgetgate_bias",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
