"""Tests of DetectNetTransformation."""

from typing import Any

import numpy as np

from detectnet.cases import Random, Shape
from layer_suite import BATCH, fork_properties, layer_case

GROUND_TRUTH_PARAM = (
    "detectnet_groundtruth_param { stride: 8 scale_cvg: 0.6 gridbox_type: %s min_cvg_len: 6 max_cvg_len: 9 "
    "image_size_x: 40 image_size_y: 24 object_class { src: 1 dst: 0 } object_class { src: 3 dst: 1 } }"
)
AUGMENTATION_PARAM = "detectnet_augmentation_param { shift_x: 4 shift_y: 4 rotation_prob: %s max_rotate_degree: 10 }"
TRANSFORM_PARAM = "transform_param { mean_value: 100 }"


def draw_labels(random: Random, shape: Shape) -> np.ndarray:
    """Draw labels: a row [count, 16], then rows [x, y, width, height, angle, class]."""
    rows = np.zeros(shape)
    rows[:, 0, 0, :2] = 2, 16
    rows[:, 0, 1:, :2] = random.uniform(0, 15, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 2:4] = random.uniform(8, 20, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 5] = random.choice([1, 2, 3], rows[:, 0, 1:].shape[:2])
    return rows


def transformation_case(name: str, param: str, **options: Any) -> Any:
    bottoms = (BATCH, 3, 24, 36), (BATCH, 1, 4, 16)
    samplers = {"b1": draw_labels}
    return layer_case(
        "DetectNetTransformation",
        f"{param} {TRANSFORM_PARAM}",
        *bottoms,
        tops=2,
        name=name,
        samplers=samplers,
        **options,
    )


test_properties = fork_properties(
    transformation_case("test", GROUND_TRUTH_PARAM % "GRIDBOX_MIN", phase="TEST"),
    transformation_case("train", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "0", random=True),
    transformation_case("turned", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "1", random=True),
)
