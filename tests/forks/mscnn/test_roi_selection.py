"""Tests of DecodeBBox, HardMining and ScaleRoute."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.row_padding import strip_padding
from layer_nets import first_top, net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import (
    BBOX_REG_PARAM,
    BOX_GROUP_FIELDS,
    TARGET_SETTINGS,
    draw_matched_truth,
    draw_rois,
    draw_rois_of_two_images,
    draw_small_numbers,
    draw_wide_rois,
)

test_recorded = recorded("DecodeBBox", "HardMining", "ScaleRoute", family="mscnn")
test_properties = fork_properties(
    layer_case(
        "DecodeBBox", BBOX_REG_PARAM % "", (BATCH, 8), (BATCH, 5), name="test", phase="TEST", samplers={"b1": draw_rois}
    ),
    layer_case(
        "DecodeBBox",
        BBOX_REG_PARAM % "",
        (BATCH, 8),
        (BATCH, 5),
        (BATCH, 6),
        name="train",
        samplers={"b0": draw_small_numbers, "b1": draw_rois, "b2": draw_matched_truth},
    ),
    layer_case(
        "HardMining",
        "hard_mining_param { num_image: 2 num_roi_per_image: 1 }",
        (BATCH, 1),
        (BATCH, 5),
        (BATCH, 2),
        tops=2,
        samplers={"b1": draw_rois_of_two_images},
    ),
    layer_case(
        "ScaleRoute", "scale_route_param { high_scale: 40 }", (BATCH, 5), phase="TEST", samplers={"b0": draw_rois}
    ),
    layer_case(
        "ScaleRoute",
        "scale_route_param { low_scale: 30 }",
        (BATCH, 5),
        (BATCH, 2),
        tops=2,
        name="two",
        samplers={"b0": draw_rois},
    ),
)


def test_scale_route_sends_each_roi_to_one_level() -> None:
    rois = draw_wide_rois(np.random.default_rng(5), 40, num_images=3)
    rois[::7, 0] = -1
    bounds = "high_scale: 30", "low_scale: 30 high_scale: 60", "low_scale: 60"
    for phase in ("TRAIN", "TEST"):
        tops = [first_top("ScaleRoute", f"scale_route_param {{ {b} }}", rois, phase=phase) for b in bounds]
        parts = [strip_padding(top) for top in tops]
        assert all(len(part) > 1 for part in parts)
        result = np.concatenate(parts)[:, :, 0, 0]
        valid_rois = rois[rois[:, 0] >= 0]
        np.testing.assert_array_equal(result[np.lexsort(result.T)], valid_rois[np.lexsort(valid_rois.T)])


def test_scale_route_selects_the_nearest_roi_if_none_is_in_range() -> None:
    rois = [[-1, 0, 0, 99, 99], [0, 0, 0, 9, 9], [0, 0, 0, 49, 49]]
    for phase in ("TRAIN", "TEST"):
        result = strip_padding(first_top("ScaleRoute", "scale_route_param { low_scale: 200 }", rois, phase=phase))
        np.testing.assert_array_equal(result[:, :, 0, 0], rois[2:])


def test_decode_bbox_with_zero_deltas_returns_the_rois() -> None:
    rois = draw_wide_rois(np.random.default_rng(6), 9, num_images=2)
    rois[4, 0] = -1
    zero_deltas = np.zeros((9, 8))
    np.testing.assert_allclose(
        run_layer("DecodeBBox", BBOX_REG_PARAM % "", zero_deltas, rois)[0][:, :, 0, 0], rois, rtol=1e-5
    )
    (train_top,) = run_layer("DecodeBBox", BBOX_REG_PARAM % "", zero_deltas, rois, phase="TRAIN")
    np.testing.assert_allclose(train_top[:, :, 0, 0], rois[rois[:, 0] >= 0], rtol=1e-5)


def test_hard_mining_fills_up_from_images_with_more_rows() -> None:
    rois = np.zeros((9, 5))
    rois[5:, 0] = 1
    scores = np.array([5, 1, 7, 7, 2, 0, 9, 3, 4.0])[:, None]
    text = "hard_mining_param { num_image: 3 num_roi_per_image: 2 }"
    _, result = run_layer("HardMining", text, scores, rois, np.arange(9)[:, None], tops=2, phase="TRAIN")
    assert result.ravel().tolist() == [0, 2, 3, 6, 7, 8]


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        ("DecodeBBox", "bbox_reg_param { bbox_mean: 0 bbox_std: 1 }", [(3, 8), (3, 5)], 1, "four values of bbox_mean"),
        ("DecodeBBox", "", [(3, 8), (4, 5)], 1, "equal numbers of rows, not {'deltas': 3, 'rois': 4}"),
        ("DecodeBBox", "", [(3, 12), (3, 5)], 1, "bottom 0 (deltas) must have rows of 8 values, not shape (3, 12)"),
        ("ScaleRoute", "scale_route_param { low_scale: 9 high_scale: 3 }", [(3, 5)], 1, "low_scale 9.0 must not be"),
        ("ScaleRoute", "", [(3, 5), (4, 2)], 2, "bottom 1 must have one row per ROI"),
        ("HardMining", "hard_mining_param { num_image: 0 }", [(3, 1), (3, 5)], 1, "must be above 0"),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)


def test_gradients_of_a_cascade() -> None:
    """Proposals are padded while compiled, sampled on the host, refined, and sampled again."""
    text = f"""
    layer {{ name: "in" type: "Input" top: "data" top: "prob" top: "deltas" top: "gt" input_param {{
      shape {{ dim: 1 dim: 2 dim: 6 dim: 7 }} shape {{ dim: 2 dim: 2 dim: 6 dim: 7 }}
      shape {{ dim: 2 dim: 4 dim: 6 dim: 7 }} shape {{ dim: 2 dim: 8 }} }} }}
    layer {{ name: "box" type: "BoxGroupOutput" bottom: "prob" bottom: "deltas" top: "proposals"
      box_group_output_param {{ fg_thr: 0.2 iou_thr: 0.7 field_whr: 4 field_xyr: 1 max_nms_num: 40 min_size: 5
        box_group_param {{ {BOX_GROUP_FIELDS} }} }} {BBOX_REG_PARAM % ""} }}
    layer {{ name: "target" type: "ProposalTarget" bottom: "proposals" bottom: "gt" top: "rois" top: "labels"
      top: "targets" top: "inside" top: "outside" top: "matched"
      proposal_target_param {{ {TARGET_SETTINGS} batch_size: 12 }} {BBOX_REG_PARAM % ""} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "rois" top: "ip"
      inner_product_param {{ num_output: 8 weight_filler {{ type: "gaussian" std: 1e-4 }} }} }}
    layer {{ name: "decode" type: "DecodeBBox" bottom: "ip" bottom: "rois" bottom: "matched" top: "second"
      {BBOX_REG_PARAM % ""} }}
    layer {{ name: "route" type: "ScaleRoute" bottom: "second" top: "small" scale_route_param {{ high_scale: 60 }} }}
    layer {{ name: "score" type: "InnerProduct" bottom: "rois" top: "score"
      inner_product_param {{ num_output: 3 weight_filler {{ type: "gaussian" std: 1e-3 }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "labels" top: "loss" }}
    layer {{ name: "silence" type: "Silence" bottom: "small" bottom: "targets" bottom: "inside" bottom: "outside" }}
    """
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    random = np.random.default_rng(11)
    gt = np.concatenate([draw_wide_rois(random, 2) * [1, 0.5, 0.5, 0.5, 0.5], [[1, 0, 0], [2, 0, 0]]], axis=1)
    shapes = {name: net.graph.blobs[name].shape for name in ("data", "prob", "deltas")}
    inputs = {name: random.uniform(0, 1, shape).astype("f4") for name, shape in shapes.items()} | {"gt": gt}

    def loss(params: Any) -> Any:
        names = ["loss", "rois", "second", "small"]
        blobs = net.apply(params, state, inputs, key=jax.random.key(0), blobs=names)[0]
        return blobs["loss"], blobs

    (value, blobs), gradient = net.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert np.isfinite(value)
    assert np.any(np.asarray(gradient["score"]["weight"]))
    assert not np.any(np.asarray(gradient["ip"]["weight"]))  # behind a DecodeBBox
    assert blobs["rois"].shape == (12, 5, 1, 1)
    assert 1 <= len(blobs["small"]) <= len(blobs["second"]) < 12

    (traced_value, traced_blobs), traced_gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(traced_value, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), traced_gradient, gradient)
    for name, blob in blobs.items():
        np.testing.assert_allclose(np.asarray(traced_blobs[name]), blob, rtol=1e-5)
