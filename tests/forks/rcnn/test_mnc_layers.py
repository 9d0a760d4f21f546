"""Tests of MaskPooling and MaskResize."""

from layer_suite import BATCH, fork_properties, layer_case, recorded
from rcnn.cases import ROIS, draw_image_info, draw_rois_of_one_image, python_case

test_recorded = recorded("MaskPooling", "MaskResize", family="rcnn")
test_properties = fork_properties(
    layer_case("MaskPooling", "", (BATCH, 3, 4, 5), (BATCH, 1, 4, 5)),
    layer_case("MaskResize", "mask_resize_param { output_height: 3 output_width: 7 }", (BATCH, 2, 5, 6)),
    python_case("pylayer.mask_layer", "MaskLayer", "", (BATCH, 9), phase="TEST"),
    python_case(
        "pylayer.stage_bridge_layer",
        "StageBridgeLayer",
        "",
        ROIS,
        (BATCH, 12),
        (BATCH, 3),
        (1, 3),
        phase="TEST",
        samplers={"b0": draw_rois_of_one_image, "b3": draw_image_info},
    ),
)
