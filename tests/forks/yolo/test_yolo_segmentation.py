"""Tests of YoloSeg and SegmentationEvaluate."""

from layer_suite import BATCH, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("YoloSeg", "yolo_seg_param { object_scale: 0.5 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)),
    layer_case(
        "YoloSeg",
        "yolo_seg_param { object_scale: 0.5 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 3, 4),
        (BATCH, 2),
        name="weighted",
    ),
    layer_case(
        "SegmentationEvaluate", "segmentation_evaluate_param { num_classes: 2 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)
    ),
    layer_case(
        "SegmentationEvaluate",
        "segmentation_evaluate_param { num_classes: 2 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 6, 8),
        name="scaled",
    ),
)
