"""Tests of BoxGroupOutput, BoxOutput and FrcnnOutput."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from caffejax.core.layers.row_padding import strip_padding
from caffejax.forks.mscnn.box_output import make_overlap_measure
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import (
    BBOX_REG_PARAM,
    BOX_GROUP_FIELDS,
    Random,
    Shape,
    compute_overlap,
    draw_rois,
    draw_small_numbers,
    draw_wide_rois,
)


def draw_probabilities(random: Random, shape: Shape) -> np.ndarray:
    return np.moveaxis(random.dirichlet(np.ones(shape[1]), (shape[0], *shape[2:])), -1, 1)


def draw_image_size(random: Random, shape: Shape) -> np.ndarray:
    return np.array([[90.0, 100.0]])


test_recorded = recorded("BoxGroupOutput", "BoxOutput", "FrcnnOutput", family="mscnn")
test_properties = fork_properties(
    layer_case(
        "BoxGroupOutput",
        "box_group_output_param { fg_thr: 0.4 iou_thr: 0.6 box_group_param { field_w: 30 field_h: 60 stride: 16 } "
        f"field_whr: 8 field_xyr: 1 max_nms_num: 10 max_post_nms_num: 6 min_size: 3 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 2, 3, 4),
        (BATCH, 4, 3, 4),
        tops=2,
        phase="TEST",
        samplers={"b0": draw_probabilities, "b1": draw_small_numbers},
    ),
    layer_case(
        "BoxOutput",
        "box_output_param { fg_thr: -1 iou_thr: 0.6 field_w: 30 field_w: 60 field_h: 60 field_h: 120 "
        f"downsample_rate: 8 downsample_rate: 16 max_nms_num: 12 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 7, 4, 5),
        (BATCH, 7, 2, 3),
        tops=2,
        phase="TEST",
    ),
    layer_case(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 max_det_num: 5 }} {BBOX_REG_PARAM % 'cls_aware: false'}",
        (BATCH, 4),
        (BATCH, 8),
        (BATCH, 5),
        (1, 2),
        phase="TEST",
        name="agnostic",
        distribution="probabilities",
        samplers={"b1": draw_small_numbers, "b2": draw_rois, "b3": draw_image_size},
    ),
    layer_case(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 4),
        (BATCH, 16),
        (BATCH, 5),
        (1, 2),
        phase="TEST",
        name="aware",
        distribution="probabilities",
        samplers={"b1": draw_small_numbers, "b2": draw_rois, "b3": draw_image_size},
    ),
)


def suppress_by_loops(rows: list[Any], threshold: float, plus: float, measure: str = "IOU") -> list[Any]:
    selected_rows: list[Any] = []
    for row in rows:
        if all(compute_overlap(k[:4], row[:4], plus, measure) <= threshold for k in selected_rows):
            selected_rows.append(row)
    return selected_rows


@pytest.mark.parametrize("measure", ["IOU", "IOMU", "IOFU"])
@pytest.mark.parametrize("plus", [0.0, 1.0])
def test_overlap_measures_equal_loops(measure: str, plus: float) -> None:
    boxes = draw_wide_rois(np.random.default_rng(0), 12)[:, 1:]
    boxes[1] = boxes[0]
    boxes[2] = [0, 0, 9.5, 9]
    boxes[3] = [10, 0, 20, 9]  # half a pixel away: not one that meets
    expected = [[compute_overlap(a, b, plus, measure) for b in boxes] for a in boxes]
    for module in (jnp, np):
        result = make_overlap_measure(measure, plus)(module.asarray(boxes)[:, None], module.asarray(boxes)[None])
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert expected[2][3] == 0


@pytest.mark.parametrize("measure", ["IOU", "IOFU"])
def test_box_group_output_equals_loops(measure: str) -> None:
    random = np.random.default_rng(3)
    widths, heights, stride = (30, 50), (60, 40), 16
    scores, deltas = random.uniform(0, 1, (4, 2, 3, 4)), random.normal(size=(4, 4, 3, 4))
    text = f"""box_group_output_param {{ fg_thr: 0.3 iou_thr: 0.5 nms_type: "{measure}" max_nms_num: 15
        max_post_nms_num: 7 min_size: 20 field_whr: 4 field_xyr: 1
        box_group_param {{ field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16 }} }} {BBOX_REG_PARAM % ""}"""
    rois, scored_rois = map(strip_padding, run_layer("BoxGroupOutput", text, scores, deltas, tops=2))
    expected = []
    for image in range(2):
        rows = []
        for field in range(2):
            for y in range(3):
                for x in range(4):
                    d = deltas[2 * image + field, :, y, x] * [0.1, 0.1, 0.2, 0.2]
                    d = np.clip(d, [-1, -1, -np.log(4), -np.log(4)], [1, 1, np.log(4), np.log(4)])
                    sides = np.exp(d[2:]) * (widths[field], heights[field])
                    center = d[:2] * (widths[field], heights[field]) + (np.array([x, y]) + 0.5) * stride
                    low, high = center - sides / 2, center + sides / 2 - 1
                    low, high = np.maximum(low, 0), np.minimum(high, [4 * stride, 3 * stride])
                    score = 1 - scores[2 * image + field, 0, y, x]
                    if score >= 0.3 and min(high - low + 1) >= 20:
                        rows.append([*low, *high, score])
        best = sorted(rows, key=lambda row: -row[4])[:15]
        expected += [[image, *row] for row in suppress_by_loops(best, 0.5, 1.0, measure)[:7]]
    np.testing.assert_allclose(scored_rois[:, :, 0, 0], expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(rois, scored_rois[:, :5])


def test_frcnn_output_equals_loops_and_ignores_padding_rows() -> None:
    random = np.random.default_rng(4)
    rois, n = draw_wide_rois(random, 20), 20
    rois[[3, 11, 19], 0] = -1  # as a Concat of padded tops has them
    prob, deltas = random.dirichlet(np.ones(4), n), random.normal(size=(n, 16))
    text = f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.3 max_det_num: 12 }} {BBOX_REG_PARAM % ''}"
    (result,) = run_layer("FrcnnOutput", text, prob, deltas, rois, [[140.0, 160.0]])
    selected_rows = []
    for c in (1, 2, 3):
        rows = []
        for i in np.flatnonzero((rois[:, 0] >= 0) & (prob[:, c] >= 0.1)):
            d = deltas[i, 4 * c : 4 * c + 4] * [0.1, 0.1, 0.2, 0.2]
            sides = rois[i, 3:] - rois[i, 1:3] + 1
            center, new_sides = (rois[i, 3:] + rois[i, 1:3]) / 2 + d[:2] * sides, np.exp(d[2:]) * sides
            low, high = (
                np.maximum(center - (new_sides - 1) / 2, 0),
                np.minimum(center + (new_sides - 1) / 2, [160, 140]),
            )
            rows.append([*low, *high, c, prob[i, c]])
        selected_rows += suppress_by_loops(sorted(rows, key=lambda row: -row[5]), 0.3, 1.0)
    limit = sorted((row[5] for row in selected_rows), reverse=True)[11]
    expected = [[0, *[-1] * 6], *([0, *row] for row in selected_rows if row[5] >= limit)]
    assert len(selected_rows) > 12
    np.testing.assert_allclose(result[:, :, 0, 0], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        ("BoxOutput", "", [(1, 6, 2, 2)], 1, "one value of each setting for each of 1 bottoms, not {'field_w': 0"),
        ("BoxGroupOutput", "", [(1, 2, 2, 2), (1, 4, 2, 2)], 1, "2 bottoms for 0"),
        (
            "BoxGroupOutput",
            f"box_group_output_param {{ box_group_param {{ {BOX_GROUP_FIELDS} }} }}",
            [(3, 2, 2, 2), (3, 4, 2, 2)],
            1,
            "3 items, which is not a multiple of 2 box shapes",
        ),
        (
            "BoxGroupOutput",
            f'box_group_output_param {{ nms_type: "SOFT" box_group_param {{ {BOX_GROUP_FIELDS} }} }}',
            [(2, 2, 2, 2), (2, 4, 2, 2)],
            1,
            "nms_type must be one of IOU, IOMU, IOFU, not 'SOFT'",
        ),
        (
            "BoxGroupOutput",
            "box_group_output_param { box_group_param { field_w: 9 field_h: 9 } }",
            [(2, 2, 2, 2), (2, 4, 2, 2)],
            1,
            "stride must be above 0, not 0",
        ),
        ("FrcnnOutput", "", [(3, 4), (3, 8), (3, 5), (1, 2)], 1, "bottom 1 (deltas) must have rows of 16 values"),
        ("FrcnnOutput", "", [(3, 4), (3, 16), (3, 5), (2, 2)], 1, "takes one image"),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)
