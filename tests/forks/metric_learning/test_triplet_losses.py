"""Tests of CenterLoss, GeneralContrastiveLoss, GeneralTripletLoss and TripletLoss."""

import re
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer
from layer_suite import BATCH, LABELS, MATRIX, fork_properties, joint_batches, layer_case, recorded
from metric_learning.cases import compute_tops_and_diff

test_recorded = recorded("CenterLoss", "GeneralContrastiveLoss", family="metric_learning")
test_properties = fork_properties(
    layer_case(
        "CenterLoss",
        'center_loss_param { num_output: 4 center_filler { type: "gaussian" std: 1 } } loss_weight: 0.5',
        (BATCH, 5),
        LABELS,
        classes=4,
    ),
    layer_case("GeneralContrastiveLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_negative_only: true exp_negative_weight: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="nearest",
    ),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_positive_only: true add_intra_mae: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="intra",
    ),
    layer_case("GeneralTripletLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralTripletLoss",
        "general_triplet_loss_param { hardest_only: true add_center_loss: false margin: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="hardest",
    ),
    layer_case("TripletLoss", "triplet_loss_param { margin: 3 }", MATRIX, MATRIX, MATRIX),
    layer_case(
        "TripletLoss", "triplet_loss_param { alpha: 3 }", MATRIX, MATRIX, MATRIX, (BATCH,), name="labels", classes=3
    ),
)
LOSS_WEIGHTS = "loss_weight: 1 loss_weight: 0"
test_joint_batches = joint_batches(
    layer_case("GeneralTripletLoss", LOSS_WEIGHTS, MATRIX, LABELS, classes=5, tops=2, name="means"),
    layer_case(
        "GeneralContrastiveLoss",
        f"{LOSS_WEIGHTS} general_contrastive_loss_param {{ negative_margin: 2 normalize_negative: 0.1 }}",
        MATRIX,
        LABELS,
        classes=5,
        tops=2,
        name="means",
    ),
)


Shape = tuple[int, ...]


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


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("TripletLoss", "triplet_loss_param { alpha: 2 }", [(2, 4)] * 3, "alpha has no effect with 3 bottoms"),
        (
            "TripletLoss",
            "triplet_loss_param { margin: 2 }",
            [(2, 4)] * 3 + [(2,)],
            "margin has no effect with 4 bottoms",
        ),
        ("TripletLoss", "", [(2, 4), (2, 4), (2, 3)], "must have the shape of bottom 0"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


RANDOM = np.random.default_rng(0)


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


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CenterLoss", 'center_loss_param { num_output: 3 distance_type: "L1" }', [(2, 3), (2,)], "distance_type"),
        ("GeneralContrastiveLoss", "", [(2, 3), (3,)], "same first dimension"),
        ("GeneralContrastiveLoss", "", [(2, 3), (2,), (2, 4)], "shape of bottom 0"),
        ("GeneralTripletLoss", "", [(2, 1), (2,)], "two classes or more"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
