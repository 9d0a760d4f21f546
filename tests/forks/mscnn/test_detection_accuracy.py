"""Tests of BboxAccuracy, DetectionAccuracy and DetectionGroupAccuracy."""

from typing import Any

import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import (
    BBOX_REG_PARAM,
    MAP_SETTINGS,
    SINGLE_ANCHOR_SETTINGS,
    draw_label_maps,
    draw_matched_truth,
    draw_rois,
    draw_small_numbers,
)

test_recorded = recorded("BboxAccuracy", "DetectionAccuracy", "DetectionGroupAccuracy", family="mscnn")
test_properties = fork_properties(
    layer_case(
        "BboxAccuracy",
        BBOX_REG_PARAM % "",
        (BATCH, 12),
        (BATCH, 5),
        (BATCH, 6),
        tops=2,
        samplers={"b0": draw_small_numbers, "b1": draw_rois, "b2": draw_matched_truth},
    ),
    layer_case(
        "DetectionAccuracy",
        f"detection_accuracy_param {{ {MAP_SETTINGS} top_k: 2 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 7, 4, 5),
        (BATCH, 6, 4, 5),
        tops=2,
        samplers={"b1": draw_label_maps},
    ),
    layer_case(
        "DetectionGroupAccuracy",
        f"detection_group_accuracy_param {{ {SINGLE_ANCHOR_SETTINGS} objectness: true }} {BBOX_REG_PARAM % ''}",
        (BATCH, 2, 3, 4),
        (BATCH, 4, 3, 4),
        (BATCH, 6, 3, 4),
        tops=2,
        samplers={"b1": draw_small_numbers, "b2": draw_label_maps},
    ),
)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "tops", "message"),
    [
        (
            "DetectionAccuracy",
            "detection_accuracy_param { cls_num: 2 field_w: 9 field_h: 9 downsample_rate: 8 top_k: 3 }",
            [(1, 6, 2, 2), (1, 6, 2, 2)],
            1,
            "top_k must be between 1 and cls_num 2, not 3",
        ),
    ],
)
def test_contradictory_settings_are_refused(layer_type: str, text: str, shapes: Any, tops: int, message: str) -> None:
    with pytest.raises(CaffejaxError) as exc_info:
        Net(net_text(layer_type, text, shapes, tops), "TRAIN")
    assert message in str(exc_info.value)
