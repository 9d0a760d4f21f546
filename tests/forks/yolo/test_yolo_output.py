"""Tests of YoloDetectionOutput, Yolov3DetectionOutput and EvalDetection."""

import numpy as np

from layer_suite import BATCH, fork_properties, layer_case, recorded
from yolo.cases import LARGE_ANCHORS, SMALL_ANCHORS, draw_labels, draw_small_numbers

CELLS = (BATCH, 14, 3, 3)
EVAL_SETTINGS = f"num_class: 2 num_object: 2 {SMALL_ANCHORS} nms: 0.5 threshold: 0.1"


def draw_probabilities(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(0.1, 0.9, shape).astype(np.float32)


def draw_cell_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw YOLOv1's labels of 2 x 2 cells: difficult flags, object flags, classes, boxes."""
    integers = random.integers(0, 2, (shape[0], 12))
    return np.concatenate([integers, random.uniform(0.1, 0.9, (shape[0], 16))], axis=1).astype(np.float32)


test_recorded = recorded("YoloDetectionOutput", "Yolov3DetectionOutput", family="yolo")
test_properties = fork_properties(
    layer_case(
        "EvalDetection",
        f"eval_detection_param {{ side: 3 {EVAL_SETTINGS} }}",
        CELLS,
        (BATCH, 1, 5, 5),
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    ),
    layer_case(
        "EvalDetection",
        "eval_detection_param { side: 2 num_class: 3 num_object: 2 threshold: 0.2 nms: 0.5 }",
        (BATCH, 52),
        (BATCH, 28),
        name="cells",
        samplers={
            "b0": draw_probabilities,
            "b1": draw_cell_labels,
        },
    ),
    layer_case(
        "YoloDetectionOutput",
        f"yolo_detection_output_param {{ num_classes: 2 num_box: 2 confidence_threshold: 0.2 {SMALL_ANCHORS} }}",
        (BATCH, 14, 3, 4),
        (BATCH, 14, 2, 2),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 anchors_scale: 16 "
        f"mask: 2 mask: 0 confidence_threshold: 0.2 {LARGE_ANCHORS} }}",
        (BATCH, 7, 2, 3),
        (BATCH, 7, 4, 6),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 2 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 mask: 0 nms_threshold: 1.5 {LARGE_ANCHORS} }}",
        (BATCH, 14, 2, 3),
        name="all",
        samplers={"b0": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 gaussian_box: true {LARGE_ANCHORS} }}",
        (BATCH, 11, 2, 3),
        name="gaussian",
        samplers={"b0": draw_small_numbers},
    ),
)
