"""Tests of DetectionGroupLoss and DetectionLoss."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError, GraphError
from caffejax.forks.mscnn.detection_loss import masked_sample, masked_topk
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import (
    BBOX_REG_PARAM,
    BOX_GROUP_FIELDS,
    MAP_SETTINGS,
    SINGLE_ANCHOR_SETTINGS,
    draw_label_maps,
    draw_small_numbers,
)

LOSS_SETTINGS = "lambda: 0.5 bb_smooth: true bg_threshold: 0.3 bg_multiple: 2 pos_neg_weighted: true"


def group_loss_case(param: str, name: str, **options: Any) -> Any:
    shapes = [(BATCH, c, 3, 4) for c in (2, 4, 6)]
    return layer_case(
        "DetectionGroupLoss",
        f"detection_group_loss_param {{ {SINGLE_ANCHOR_SETTINGS} "
        f"lambda: 2 bg_threshold: 0.3 bg_multiple: 1 objectness: true {param} }} {BBOX_REG_PARAM % ''}",
        *shapes,
        name=name,
        samplers={"b1": draw_small_numbers, "b2": draw_label_maps},
        **options,
    )


def detection_loss_case(mode: str, **options: Any) -> Any:
    return layer_case(
        "DetectionLoss",
        f'detection_loss_param {{ {MAP_SETTINGS} {LOSS_SETTINGS} sample_mode: "{mode}" }} {BBOX_REG_PARAM % ""}',
        (BATCH, 7, 4, 5),
        (BATCH, 6, 4, 5),
        name=mode,
        samplers={"b1": draw_label_maps},
        **options,
    )


test_recorded = recorded("DetectionGroupLoss", "DetectionLoss", family="mscnn")
test_properties = fork_properties(
    group_loss_case('neg_mining_type: "bootstrap"', "bootstrap"),
    group_loss_case('batch_size: 8 neg_mining_type: "random"', "random", random=True),
    group_loss_case('batch_size: 8 neg_mining_type: "mixture"', "mixture", random=True),
    detection_loss_case("bootstrap"),
    detection_loss_case("all"),
    detection_loss_case("mixture", random=True),
)


def draw_maps_of_labels(random: np.random.Generator, batch_size: int, max_label: int = 1) -> np.ndarray:
    label = random.integers(0, max_label + 1, (batch_size, 1, 6, 7)) * random.integers(0, 2, (batch_size, 1, 6, 7))
    box = random.uniform(20, 90, (batch_size, 4, 6, 7))
    return np.concatenate([label, box, random.uniform(0, 0.2, label.shape)], axis=1)


@pytest.mark.parametrize("count", [0, 3, 30])
def test_masked_topk_and_sample_stay_within_the_mask(count: int) -> None:
    random = np.random.default_rng(8)
    scores, mask = random.integers(0, 4, (5, 12)), random.uniform(size=(5, 12)) < 0.7
    result = masked_topk(jnp.asarray(scores), jnp.asarray(mask), jnp.full(5, count))
    for row in range(5):
        expected_indices = sorted(np.flatnonzero(mask[row]), key=lambda i, row=row: (-scores[row, i], -i))[:count]
        assert np.flatnonzero(result[row]).tolist() == sorted(expected_indices)
    sampled_mask = np.asarray(masked_sample(jax.random.key(0), jnp.asarray(mask), jnp.full(5, count)))
    np.testing.assert_array_equal(sampled_mask.sum(1), np.minimum(count, mask.sum(1)))
    assert not np.any(sampled_mask & ~mask)


def test_detection_group_loss_has_gradients_for_a_sample_of_each_image() -> None:
    random = np.random.default_rng(9)
    scores, deltas, truth = (
        random.normal(size=(4, 2, 6, 7)),
        random.normal(size=(4, 4, 6, 7)),
        draw_maps_of_labels(random, 4),
    )
    text = f"""detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} batch_size: 16 bg_multiple: 3
        neg_mining_type: "mixture" objectness: true }} {BBOX_REG_PARAM % ""}"""
    net = Net(net_text("DetectionGroupLoss", text, [scores.shape, deltas.shape, truth.shape]), "TRAIN")

    def loss(scores: Any, deltas: Any) -> Any:
        inputs = {"b0": scores, "b1": deltas, "b2": truth}
        return net.apply({}, {}, inputs, key=jax.random.key(3), blobs=["t0"])[0]["t0"][0, 0, 0, 0]

    d_scores, d_deltas = map(np.asarray, jax.jit(jax.grad(loss, (0, 1)))(scores.astype("f4"), deltas.astype("f4")))
    has_gradient = np.any(d_scores != 0, axis=1).reshape(2, 2, 6, 7)
    objects = truth[:, 0].reshape(has_gradient.shape) > 0
    assert (has_gradient & objects).sum((1, 2, 3)).tolist() == [4, 4]
    assert has_gradient.sum((1, 2, 3)).tolist() == [16, 16]
    assert not np.any(d_deltas[~np.broadcast_to((has_gradient & objects).reshape(4, 1, 6, 7), d_deltas.shape)])


def test_detection_loss_has_gradients_for_all_objects_and_some_background() -> None:
    random = np.random.default_rng(10)
    x, truth = random.normal(size=(2, 7, 6, 7)).astype("f4"), draw_maps_of_labels(random, 2, 2)
    truth[:, 0, 3:] = 0
    text = """detection_loss_param { cls_num: 3 field_w: 30 field_h: 60 downsample_rate: 16 bb_smooth: true
        bg_multiple: 1 sample_mode: "mixture" }"""
    net = Net(net_text("DetectionLoss", text, [x.shape, truth.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return net.apply({}, {}, {"b0": x, "b1": truth}, key=jax.random.key(3), blobs=["t0"])[0]["t0"][0, 0, 0, 0]

    has_gradient = np.any(np.asarray(jax.jit(jax.grad(loss))(x))[:, :3] != 0, axis=1)
    objects = truth[:, 0] > 0
    assert np.all(has_gradient[objects])
    assert 0 < (has_gradient & ~objects).sum() < 0.8 * (~objects).sum()


def test_label_out_of_range_makes_the_detection_loss_nan() -> None:
    x, truth = np.zeros((1, 6, 2, 2)), np.zeros((1, 6, 2, 2))
    truth[:, 1:5] = 10
    text = "detection_loss_param { cls_num: 2 field_w: 30 field_h: 60 downsample_rate: 16 }"
    assert np.all(np.isfinite(run_layer("DetectionLoss", text, x, truth, phase="TRAIN")[0]))
    truth[0, 0, 0, 0] = 2
    assert np.isnan(run_layer("DetectionLoss", text, x, truth, phase="TRAIN")[0].flat[0])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        (
            "DetectionLoss",
            "detection_loss_param { cls_num: 3 field_w: 9 field_h: 9 downsample_rate: 8 }",
            [(1, 6, 2, 2), (1, 6, 2, 2)],
            1,
            "cls_num + coord_num channels, 3 + 4, not 6",
        ),
        (
            "DetectionGroupLoss",
            f'detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} neg_mining_type: "easy" }}',
            [(2, 2, 3, 3), (2, 4, 3, 3), (2, 6, 3, 3)],
            1,
            "neg_mining_type must be random, bootstrap or mixture, not 'easy'",
        ),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)


def test_computed_labels_must_have_the_shape_of_the_cells() -> None:
    """Labels from Input layers are reshaped instead."""
    tops = {"scores": (2, 2, 3, 3), "deltas": (2, 4, 3, 3), "fed": (2, 5, 3, 3)}
    inputs = "\n".join(
        f'layer {{ name: "{top}" type: "Input" top: "{top}" input_param {{ shape {{ '
        f"{' '.join(f'dim: {n}' for n in shape)} }} }} }}"
        for top, shape in tops.items()
    )
    text = f"""layer {{ name: "made" type: "Power" bottom: "fed" top: "truth" }}
      layer {{ name: "loss" type: "DetectionGroupLoss" bottom: "scores" bottom: "deltas" bottom: "truth" top: "y"
        detection_group_loss_param {{ cls_num: 2 {BOX_GROUP_FIELDS} }} }}"""
    with pytest.raises(CaffejaxError, match=r"for each cell, \(2, 6, 3, 3\), not \(2, 5, 3, 3\)"):
        Net(inputs + text, "TRAIN")


def test_a_label_of_another_shape_is_an_error_with_the_shape_that_its_layer_needs() -> None:
    text = """
      layer { name: "map" type: "Input" top: "map" input_param { shape { dim: 2 dim: 6 dim: 3 dim: 4 } } }
      layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 dim: 5 } } }
      layer { name: "loss" type: "DetectionLoss" bottom: "map" bottom: "label" top: "loss"
        detection_loss_param { cls_num: 2 field_w: 40 field_h: 40 downsample_rate: 8 } }
    """
    with pytest.raises(GraphError, match=r"layer 'loss'.*\(2, 6, 3, 4\), not \(2, 5\)"):
        Net(text, "TRAIN")
    valid_text = text.replace("dim: 2 dim: 5", "dim: 2 dim: 6 dim: 3 dim: 4")
    assert Net(valid_text, "TRAIN").graph.blobs["label"].shape == (2, 6, 3, 4)
