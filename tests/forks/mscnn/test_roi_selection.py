"""Tests of DecodeBBox, HardMining and ScaleRoute."""

from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import BBOX_REG_PARAM, draw_matched_truth, draw_rois, draw_rois_of_two_images, draw_small_numbers

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
