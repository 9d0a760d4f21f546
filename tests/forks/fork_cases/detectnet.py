"""Cases of NVIDIA's DetectNet, its built-in Python layers included."""

from typing import Any

import numpy as np
from case import BATCH, layer_case

Random, Shape = np.random.Generator, tuple[int, ...]
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


def draw_boxes(random: Random, shape: Shape) -> np.ndarray:
    """Draw lists of boxes [x1, y1, x2, y2, confidence] that end with zeros."""
    corner = random.integers(0, 3, (*shape[:2], 2)) * 10
    rows = np.concatenate([corner, corner + 20, np.ones((*shape[:2], 1))], axis=2)
    rows[:, -1] = 0
    return rows


def draw_scored_boxes(random: Random, shape: Shape) -> np.ndarray:
    rows = draw_boxes(random, shape)
    rows[:, :, 4] = random.integers(0, 4, shape[:2]) + 0.25  # none of them a small step away from another
    return np.floor(rows)


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


def python_case(module: str, name: str, param: str, *bottoms: Any, **options: Any) -> Any:
    python_param = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return layer_case("Python", python_param, *bottoms, name=name, phase="TEST", **options)


LAYER_CASES = [
    transformation_case("test", GROUND_TRUTH_PARAM % "GRIDBOX_MIN", phase="TEST"),
    transformation_case("train", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "0", random=True),
    transformation_case("turned", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "1", random=True),
    python_case(
        "clustering",
        "ClusterDetections",
        "40, 24, 8, 0.3, 0, 0.2, -99, 2, 9",
        (BATCH, 2, 3, 5),
        (BATCH, 4, 3, 5),
        tops=2,
    ),
    python_case("clustering", "ClusterGroundtruth", "40, 24, 8, 1, 16", (BATCH, 1, 3, 5), (BATCH, 4, 3, 5)),
    python_case(
        "mean_ap", "ScoreDetections", "0.3", (BATCH, 3, 5), (BATCH, 4, 5), samplers={"b0": draw_boxes, "b1": draw_boxes}
    ),
    python_case("mean_ap", "mAP", "", (BATCH, 7, 5), tops=3, samplers={"b0": draw_scored_boxes}),
]
