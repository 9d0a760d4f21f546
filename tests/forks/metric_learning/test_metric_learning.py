"""SphereFace's and NormFace's layers: cosines of angles, pass counters, and weights that forward updates."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver
from layer_nets import net_text

RANDOM = np.random.default_rng(0)
WEIGHT_FILLER = 'weight_filler { type: "gaussian" std: 1 }'
MARGIN_PARAM = "margin_inner_product_param {{ num_output: 3 type: {} base: {} gamma: 1 {} }}"


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


INNER_DISTANCE_NET = f"""
layer {{ name: "x" type: "DummyData" top: "x" top: "label" dummy_data_param {{
  shape {{ dim: 5 dim: 4 }} shape {{ dim: 5 }}
  data_filler {{ type: "gaussian" std: 1 }} data_filler {{ value: 1 }} }} }}
layer {{ name: "far" type: "InnerDistance" bottom: "x" top: "far"
  inner_distance_param {{ num_output: 3 normalize: true {WEIGHT_FILLER} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "far" bottom: "label" top: "loss" }}
"""


def test_training_updates_the_weights_that_forward_wrote(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(INNER_DISTANCE_NET)
    solver_text = f'net: "{tmp_path}/net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 1 random_seed: 1'
    (tmp_path / "solver.prototxt").write_text(solver_text)
    solver = Solver(tmp_path / "solver.prototxt")
    old_weight = np.array(solver.variables.params["far"]["weight"])
    solver.step(1)  # with a rate of 0, all that happens
    new_weight = solver.variables.params["far"]["weight"]
    norm = np.linalg.norm(old_weight, axis=1, keepdims=True)
    assert np.all(np.abs(norm - 1) > 1e-3)
    np.testing.assert_allclose(new_weight, old_weight / norm, rtol=1e-4)


def test_center_gradients_do_not_depend_on_the_loss_weight() -> None:
    net = Net(net_text("CenterLoss", "center_loss_param { num_output: 3 }", [(4, 2), (4,)]))
    params, state = net.init(jax.random.key(0))
    inputs = {"b0": RANDOM.normal(size=(4, 2)).astype(np.float32), "b1": np.array([0, 2, 2, 0], np.float32)}

    def diff(weight: float) -> Any:
        return jax.grad(lambda p: weight * net.apply(p, state, inputs)[0]["t0"])(params)["layer"]["centers"]

    x = inputs["b0"]
    expected = [-(x[0] + x[3]) / 3, [0, 0], -(x[1] + x[2]) / 3]
    np.testing.assert_allclose(diff(1), expected, rtol=1e-5)
    np.testing.assert_allclose(diff(0.01), expected, rtol=1e-5)
    assert not np.any(diff(0))


def compute_tops_and_diff(layer_type: str, text: str, x: Any, labels: Any, phase: Any = "TRAIN") -> tuple[Any, Any]:
    net = Net(net_text(layer_type, text, [np.shape(x), np.shape(labels)], tops=2), phase)
    params, state = net.init(jax.random.key(0))

    def sum_first_top(x: Any) -> Any:
        tops = net.apply(params, state, {"b0": x, "b1": jnp.asarray(labels, jnp.float32)})[0]
        return jnp.sum(tops["t0"]), (np.asarray(jax.lax.stop_gradient(tops["t1"])), tops["t0"])

    (_, (second_top, top)), diff = jax.value_and_grad(sum_first_top, has_aux=True)(jnp.asarray(x, jnp.float32))
    return (np.asarray(top), second_top), np.asarray(diff)


def test_triplets() -> None:
    x, labels = [[1, 1.25, 2, 0.5], [3, 0.25, 4, 5]], [0, 1]
    text = "general_triplet_loss_param {{ margin: 0.5 {} }} loss_weight: 1 loss_weight: 0"
    (loss, means), diff = compute_tops_and_diff("GeneralTripletLoss", text.format(""), x, labels)
    np.testing.assert_allclose(loss, (0.25 + 1) / 2)
    np.testing.assert_allclose(means, [1.25 / 2, (3.75 + 12) / 6])
    np.testing.assert_allclose(diff, [[0.5, -0.5, 0, -0.5], [0, 0.5, 0, 0]])
    hardest = text.format("hardest_only: true add_center_loss: false negative_weight: 2")
    (loss, _), diff = compute_tops_and_diff("GeneralTripletLoss", hardest, x, labels)
    np.testing.assert_allclose(loss, 2 * 1 / 2)
    np.testing.assert_allclose(diff, [[0.5, 0, 0, -1], [0, 0, 0, 0]])
    first = text.format("positive_first: true positive_upper_bound: 0.5")
    (loss, _), diff = compute_tops_and_diff("GeneralTripletLoss", first, x, labels)
    assert loss == 0
    np.testing.assert_allclose(diff, [[0.5, 0, 0, 0], [0, 0.5, 0, 0]])


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


@pytest.mark.parametrize(
    "text",
    [
        "positive_weight: 2 square: true",
        "positive_first: true positive_upper_bound: 0.8 negative_weight: 3",
        "max_negative_only: true",
        "max_negative_only: true exp_negative_weight: true positive_weight: 0.3",
        "exp_negative_weight: true normalize_negative: 0.05 positive_outlier_thresh: 0.7",
        "max_positive_only: true positive_weight: 0.5",
        "max_positive_only: true positive_first: true positive_upper_bound: 0.8",
        "add_intra_mae: true",
        "add_intra_mae: true max_negative_margin: 0.002 max_negative_only: true",
    ],
)
def test_general_contrastive_loss_equals_loops(text: str) -> None:
    """NormFace's loss computed by loops; the gradient is in the diff of the distances."""
    settings = {k: float(v.replace("true", "1")) for k, v in re.findall(r"(\w+): (\S+)", text)}
    margin, weight, negative_weight = 0.2, settings.get("positive_weight", 1), settings.get("negative_weight", 1)
    limit, has_exp_weight = settings.get("positive_outlier_thresh", 4), "exp_negative_weight" in settings
    intra, max_margin = 0.0, settings.get("max_negative_margin", 1.5)
    random = np.random.default_rng(0)
    d, labels = random.uniform(0, 1.6, (8, 4)), np.arange(8) % 3
    terms, slopes, positive_distances = (
        np.zeros_like(d),
        np.zeros_like(d),
        np.clip(d[range(8), labels] - margin, 0, limit),
    )
    if "add_intra_mae" in settings:  # of the pass before
        intra = min(0.01 * positive_distances.mean(), max_margin)
    for i, label in enumerate(labels):
        hardest = 0
        for j, x in enumerate(d[i]):
            if j == label:
                terms[i, j] = min(limit, max(0, x - margin)) * weight
                slopes[i, j] = weight * (margin < x < limit)
            elif x < 1 + intra:
                terms[i, j] = (np.exp(-x) if has_exp_weight else 1 + intra - x) * negative_weight
                slopes[i, j] = -(np.exp(-x) if has_exp_weight else 1) * negative_weight
                hardest = j if terms[i, j] > terms[i, hardest] else hardest
        is_other_class = np.arange(4) != label
        if "max_negative_only" in settings:
            terms[i, is_other_class & (np.arange(4) != hardest)] = slopes[
                i, is_other_class & (np.arange(4) != hardest)
            ] = 0
        if "positive_first" in settings and d[i, label] > 0.8:
            terms[i, is_other_class] = slopes[i, is_other_class] = 0
            slopes[i, label] = weight
        if "max_positive_only" in settings and i != np.argmin(positive_distances):
            terms[i, label] = 0
            slopes[i, label] *= "positive_first" in settings and d[i, label] > 0.8
    is_other_class = np.arange(4) != labels[:, None]
    if "normalize_negative" in settings:
        total = -slopes[is_other_class].sum() / 0.05 / 8
        slopes[is_other_class] /= total if total > weight else 1
    param = f"general_contrastive_loss_param {{ positive_margin: {margin} {text} }}"
    for has_distances in (False, True):
        shapes = [d.shape, labels.shape, *([d.shape] if has_distances else [])]
        net = Net(net_text("GeneralContrastiveLoss", f"{param} loss_weight: 1 loss_weight: 0", shapes, tops=2), "TRAIN")
        params, state = net.init(jax.random.key(0))

        def loss(
            x: Any, *states: Any, net: Any = net, params: Any = params, has_distances: bool = has_distances
        ) -> Any:
            inputs = {"b0": x, "b1": np.float32(labels)} | ({"b2": np.float32(d)} if has_distances else {})
            inputs["b0"] = (
                x - jax.lax.stop_gradient(x) if has_distances else x
            )  # with the third bottom, whose values count, it gets the gradient
            tops, state = net.apply(params, *states, inputs, blobs=["t0", "t1"])
            return tops["t0"], (tops["t1"], state)

        _, (_, state) = loss(np.float32(d), state)
        (result, (second_top, _)), diff = jax.value_and_grad(loss, has_aux=True)(np.float32(d), state)
        np.testing.assert_allclose(result, np.abs(terms).sum() / 8, rtol=1e-5)
        np.testing.assert_allclose(diff, slopes / 8, atol=1e-6)
        np.testing.assert_allclose(second_top[0], positive_distances.mean(), rtol=1e-5)
        if "add_intra_mae" in settings:
            np.testing.assert_allclose(
                second_top[2], min(0.99 * intra + 0.01 * positive_distances.mean(), max_margin), rtol=1e-5
            )


@pytest.mark.parametrize("distance_type", ["L1", "L2"])
def test_update_center_only_updates_only_the_rows_of_the_labels(distance_type: str) -> None:
    x, centers = RANDOM.normal(size=(5, 4)), RANDOM.normal(size=(3, 4))
    labels, d_top = np.array([0, 2, 2, 1, 0]), RANDOM.normal(size=(5, 3)).astype("f")
    differences = x[:, None] - centers
    slope = d_top[:, :, None] * (np.sign(differences) if distance_type == "L1" else 2 * differences)
    d_centers = -np.where((labels[:, None] == np.arange(3))[:, :, None], slope, 0).sum(0)
    text = f'distance_type: "{distance_type}" update_center_only: true'
    for has_params in (True, False):
        shapes = [(5, 4), (5,)] if has_params else [(5, 4), (3, 4), (5,)]
        weight = "num_output: 3 transpose: true" if has_params else ""
        net = Net(net_text("InnerDistance", f"inner_distance_param {{ {weight} {text} }}", shapes))
        params, state = net.init(jax.random.key(0))
        blob = np.float32(centers)
        if has_params:  # the fork's shape, of the same numbers in memory
            assert params["layer"]["weight"].shape == (4, 3)

        def compute_weighted_sum(
            x: Any, blob: Any, has_params: bool = has_params, net: Any = net, state: Any = state
        ) -> Any:
            inputs = {"b0": x, "b1": labels} if has_params else {"b0": x, "b1": blob, "b2": labels}
            inputs = {name: jnp.asarray(value, jnp.float32) for name, value in inputs.items()}
            weights = {"layer": {"weight": blob.reshape(4, 3)}} if has_params else {}
            return jnp.sum(net.apply(weights, state, inputs)[0]["t0"] * d_top)

        np.testing.assert_allclose(
            compute_weighted_sum(np.float32(x), blob),
            np.sum(d_top * (np.abs(differences) if distance_type == "L1" else differences**2).sum(2)),
            rtol=1e-4,
        )
        dx, d_blob = jax.grad(compute_weighted_sum, (0, 1))(np.float32(x), jnp.asarray(blob))
        np.testing.assert_allclose(dx, slope.sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(d_blob, d_centers, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("MarginInnerProduct", "", [(2, 3), (2,)], "num_output must be positive"),
        ("MarginInnerProduct", MARGIN_PARAM.format("DOUBLE", 1, WEIGHT_FILLER), [(2, 3), (2, 2)], "one label per item"),
        ("CenterLoss", 'center_loss_param { num_output: 3 distance_type: "L1" }', [(2, 3), (2,)], "distance_type"),
        ("InnerDistance", 'inner_distance_param { distance_type: "L3" }', [(2, 3)], "L1"),
        ("InnerDistance", "", [(2, 3), (4, 2)], "rows of 3 values"),
        ("InnerDistance", "", [(2, 3), (4, 3), (2,)], "only with update_center_only"),
        ("InnerDistance", "inner_distance_param { num_output: 3 update_center_only: true }", [(2, 3), (3,)], "label"),
        ("GeneralContrastiveLoss", "", [(2, 3), (3,)], "same first dimension"),
        ("GeneralContrastiveLoss", "", [(2, 3), (2,), (2, 4)], "shape of bottom 0"),
        ("GeneralTripletLoss", "", [(2, 1), (2,)], "two classes or more"),
        ("LabelSpecificRescale", "", [(2, 3), (3,)], "one label per item"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
