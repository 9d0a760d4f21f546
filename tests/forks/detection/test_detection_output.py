"""Tests of DetectionOutput."""

from detection.cases import NUM_CLASSES, NUM_PRIORS, draw_priors
from layer_suite import BATCH, Case, fork_properties, layer_case, recorded


def detection_output_case(param: str, name: str, groups: int = 1) -> Case:
    shapes = ((BATCH, NUM_PRIORS * groups * 4), (BATCH, NUM_PRIORS * NUM_CLASSES), (1, 2, NUM_PRIORS * 4))
    text = f"detection_output_param {{ num_classes: {NUM_CLASSES} {param} }}"
    return layer_case("DetectionOutput", text, *shapes, name=name, phase="TEST", samplers={"b2": draw_priors})


test_recorded = recorded("DetectionOutput", family="detection")
test_properties = fork_properties(
    detection_output_case("code_type: CENTER_SIZE nms_param { top_k: 6 } keep_top_k: 5", "best"),
    detection_output_case(
        "share_location: false confidence_threshold: 0.4 nms_param { eta: 0.9 nms_threshold: 0.8 }", "all", NUM_CLASSES
    ),
)
