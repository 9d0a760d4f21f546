"""Tests of DetectionGroupLoss and DetectionLoss."""

from typing import Any

from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import BBOX_REG_PARAM, MAP_SETTINGS, SINGLE_ANCHOR_SETTINGS, draw_label_maps, draw_small_numbers

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
