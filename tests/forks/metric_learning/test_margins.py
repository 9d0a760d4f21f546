"""Tests of MarginInnerProduct, LabelSpecificRescale, LabelSpecificAdd and CosinAddm."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer
from layer_suite import BATCH, LABELS, MATRIX, fork_properties, layer_case, recorded
from metric_learning.cases import MARGIN_PARAM, compute_tops_and_diff

FILLER = 'weight_filler { type: "gaussian" std: 1 }'


def draw_cosines(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(-0.9, 0.9, shape).astype(np.float32)


test_recorded = recorded("MarginInnerProduct", family="metric_learning")
test_properties = fork_properties(
    layer_case(
        "MarginInnerProduct",
        f"margin_inner_product_param {{ num_output: 4 type: QUADRUPLE base: 10 gamma: 0.5 lambda_min: 1 {FILLER} }}",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=4,
    ),
    layer_case(
        "LabelSpecificRescale",
        "label_specific_rescale_param { positive_weight_base: 2 gamma: 1 negative_weight: 0.5 for_ip: true }",
        (BATCH, 5),
        LABELS,
        tops=2,
        classes=5,
    ),
    layer_case(
        "LabelSpecificAdd",
        "label_specific_add_param { bias_base: 0.2 bias_gamma: 1 bias_max: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        name="growing",
    ),
    layer_case("LabelSpecificAdd", "label_specific_add_param { bias: -0.3 }", (BATCH, 5), LABELS, classes=5),
    layer_case("CosinAddm", "cosin_add_m_param { m: 0.5 }", MATRIX, (BATCH,), classes=5, samplers={"b0": draw_cosines}),
)


Shape = tuple[int, ...]


def test_cosine_margin() -> None:
    angles = np.array([[0.3, 1.2], [2.9, 0.5], [1.0, 0.2], [0.1, 2.7], [0.4, 0.0]])
    labels = np.array([0, 0, 1, 1, 1])
    (result,) = run_layer("CosinAddm", "cosin_add_m_param { m: 0.5 }", np.cos(angles), labels)
    expected = np.cos(angles)
    for i, label in enumerate(labels):
        angle = angles[i, label]
        expected[i, label] = np.cos(angle + 0.5) if angle + 0.5 < np.pi else np.cos(angle) - 0.5 * np.sin(0.5)
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CosinAddm", "cosin_add_m_param { m: 4 }", [(2, 4), (2,)], "from 0 to pi"),
        ("CosinAddm", "", [(2, 4), (3,)], "a label for each of the 2"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


RANDOM = np.random.default_rng(0)

WEIGHT_FILLER = 'weight_filler { type: "gaussian" std: 1 }'


def apply_margin_product(margin_type: str, base: float, passes: int = 1) -> tuple[Net, Any, Any, Any]:
    net = Net(
        net_text("MarginInnerProduct", MARGIN_PARAM.format(margin_type, base, WEIGHT_FILLER), [(40, 4), (40,)], tops=2)
    )
    params, state = net.init(jax.random.key(0))
    inputs = {"b0": RANDOM.normal(size=(40, 4)).astype(np.float32), "b1": np.arange(40.0, dtype=np.float32) % 3}
    for _ in range(passes):
        tops, state = net.apply(params, state, inputs, blobs=["t0", "t1"])
    return tops, np.asarray(params["layer"]["weight"]), inputs["b0"], inputs["b1"].astype(int)


@pytest.mark.parametrize(("margin_type", "factor"), [("SINGLE", 1), ("DOUBLE", 2), ("TRIPLE", 3), ("QUADRUPLE", 4)])
def test_margin_product_multiplies_the_angle_of_the_label(margin_type: str, factor: int) -> None:
    tops, weight, x, labels = apply_margin_product(margin_type, 0)
    cosines = x @ (weight / np.linalg.norm(weight, axis=1, keepdims=True)).T
    norm = np.linalg.norm(x, axis=1)
    angle = np.arccos(cosines[np.arange(40), labels] / norm)
    k = np.floor(angle * factor / np.pi)
    expected = cosines.copy()
    expected[np.arange(40), labels] = norm * ((-1) ** k * np.cos(factor * angle) - 2 * k)
    np.testing.assert_allclose(tops["t0"], expected, rtol=1e-4, atol=1e-4)


def test_weight_of_the_plain_product_falls_with_the_passes() -> None:
    assert [float(apply_margin_product("DOUBLE", 6, passes)[0]["t1"][0]) for passes in (1, 2, 5)] == [3, 2, 1]


def test_label_specific_rescale_multiplies_the_score_of_the_label() -> None:
    x, labels = [[1.0, 2, -3], [-1, 2, 3]], [1, 0]
    text = "label_specific_rescale_param {{ positive_weight: 0.5 negative_weight: 2 {} }}"
    (top, weight), diff = compute_tops_and_diff("LabelSpecificRescale", text.format(""), x, labels)
    np.testing.assert_allclose(top, [[2, 1, -6], [-0.5, 4, 6]])
    np.testing.assert_allclose(diff, [[2, 0.5, 2], [0.5, 2, 2]])
    assert weight == 0.5
    (top, _), _ = compute_tops_and_diff("LabelSpecificRescale", text.format("for_ip: true bias_fix: true"), x, labels)
    np.testing.assert_allclose(top, [[2, 1.5, -6], [-1, 4, 6]])
    (top, _), diff = compute_tops_and_diff("LabelSpecificRescale", text.format(""), x, labels, "TEST")
    np.testing.assert_array_equal(top, x)
    np.testing.assert_array_equal(diff, np.ones((2, 3)))
    annealed = "label_specific_rescale_param { positive_weight_base: 4 gamma: 1 positive_weight_max: 1.5 }"
    (top, weight), _ = compute_tops_and_diff("LabelSpecificRescale", annealed, x, labels)
    assert weight == 1.5  # 4 / (1 + 1) is above it
    np.testing.assert_allclose(top, [[1, 3, -3], [-1.5, 2, 3]])
    (top, _), diff = compute_tops_and_diff("LabelSpecificAdd", "label_specific_add_param { bias: -0.5 }", x, labels)
    np.testing.assert_allclose(top, [[1, 1.5, -3], [-1, 2, 3]])
    np.testing.assert_array_equal(diff, np.ones((2, 3)))


def test_bias_of_label_specific_add_grows_with_the_passes() -> None:
    x, labels = np.float32([[1, 2, -3], [-1, 2, 3]]), np.float32([1, 0])
    text = "bias_base: -0.5 bias_gamma: 0.5 bias_power: 2 bias_min: -0.4 bias_max: 2 iteration: 1"
    net = Net(net_text("LabelSpecificAdd", f"label_specific_add_param {{ {text} }}", [(2, 3), (2,)], tops=2), "TRAIN")
    params, state = net.init(jax.random.key(0))
    for expected in (-0.5 + 1.5**2 - 1, 2):  # at t = 1 and 2
        tops, state = net.apply(params, state, {"b0": x, "b1": labels}, blobs=["t0", "t1"])
        np.testing.assert_allclose(tops["t1"], expected, rtol=1e-6)
        expected_top = x.copy()
        expected_top[0, 1] += expected
        expected_top[1, 0] += expected if -expected < -1 else 0
        np.testing.assert_allclose(tops["t0"], expected_top, rtol=1e-6)


def test_power_on_positive_raises_the_score_of_the_label() -> None:
    x, labels = [[4.0, 9, -3], [-4, 2, 0]], [1, 0]
    text = "label_specific_rescale_param {{ positive_weight: 0.5 bias_fix: true power_on_positive: true {} }}"
    (top, _), diff = compute_tops_and_diff("LabelSpecificRescale", text.format(""), x, labels)
    np.testing.assert_allclose(top, [[4, 3, -3], [-2, 2, 0]])
    np.testing.assert_allclose(diff, [[1, 1 / 6, 1], [1 / 4, 1, 1]], rtol=1e-6)
    (top, _), diff = compute_tops_and_diff("LabelSpecificRescale", text.format("for_ip: true"), x, labels)
    np.testing.assert_allclose(top, [[4, 3, -3], [-4, 2, 0]])
    np.testing.assert_allclose(diff[1, 0], 1)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("MarginInnerProduct", "", [(2, 3), (2,)], "num_output must be positive"),
        ("MarginInnerProduct", MARGIN_PARAM.format("DOUBLE", 1, WEIGHT_FILLER), [(2, 3), (2, 2)], "one label per item"),
        ("LabelSpecificRescale", "", [(2, 3), (3,)], "one label per item"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


@pytest.mark.parametrize(
    "layer_type", ["MarginInnerProduct", "CenterLoss", "GeneralContrastiveLoss", "GeneralTripletLoss"]
)
@pytest.mark.parametrize("label", [-1, 3, 1e9])
def test_labels_out_of_range_give_nan(layer_type: str, label: float) -> None:
    text = {
        "MarginInnerProduct": MARGIN_PARAM.format("DOUBLE", 1, WEIGHT_FILLER),
        "CenterLoss": "center_loss_param { num_output: 3 }",
    }
    net = Net(net_text(layer_type, text.get(layer_type, ""), [(2, 3), (2,)]))
    inputs = {"b0": jnp.ones((2, 3)), "b1": jnp.asarray([0, label], jnp.float32)}
    top = net.apply(*net.init(jax.random.key(0)), inputs, blobs=["t0"])[0]["t0"]
    assert np.isnan(np.atleast_1d(top)[-1]).all()
