"""Tests of DetectionEvaluate."""

import numpy as np

from detection.cases import NUM_CLASSES, draw_boxes, draw_truth
from layer_suite import fork_properties, layer_case, recorded


def draw_detections(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2]
    columns = [np.arange(n) // 4, random.integers(1, NUM_CLASSES, n), random.uniform(0, 1, n), *draw_boxes(random, n).T]
    return np.stack(columns, axis=1)[None, None]


test_recorded = recorded("DetectionEvaluate", family="detection")
test_properties = fork_properties(
    layer_case(
        "DetectionEvaluate",
        f"detection_evaluate_param {{ num_classes: {NUM_CLASSES} }}",
        (1, 1, 12, 7),
        (1, 1, 9, 8),
        phase="TEST",
        samplers={"b0": draw_detections, "b1": draw_truth},
    ),
)
