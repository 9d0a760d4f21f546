"""Types of NVIDIA's DetectNet, its Python layers that are built in among them."""

from typing import Any

import numpy as np
from case import ROWS, layer

Random, Shape = np.random.Generator, tuple[int, ...]
TRUTH = (
    "detectnet_groundtruth_param { stride: 8 scale_cvg: 0.6 gridbox_type: %s min_cvg_len: 6 max_cvg_len: 9 "
    "image_size_x: 40 image_size_y: 24 object_class { src: 1 dst: 0 } object_class { src: 3 dst: 1 } }"
)
CHANGES = "detectnet_augmentation_param { shift_x: 4 shift_y: 4 rotation_prob: %s max_rotate_degree: 10 }"
MEAN = "transform_param { mean_value: 100 }"


def labels(random: Random, shape: Shape) -> np.ndarray:
    """[count, 16], then [x, y, width, height, angle, class]."""
    rows = np.zeros(shape)
    rows[:, 0, 0, :2] = 2, 16
    rows[:, 0, 1:, :2] = random.uniform(0, 15, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 2:4] = random.uniform(8, 20, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 5] = random.choice([1, 2, 3], rows[:, 0, 1:].shape[:2])
    return rows


def boxes(random: Random, shape: Shape) -> np.ndarray:
    """Lists [x1, y1, x2, y2, confidence] that end with zeros."""
    corner = random.integers(0, 3, (*shape[:2], 2)) * 10
    rows = np.concatenate([corner, corner + 20, np.ones((*shape[:2], 1))], axis=2)
    rows[:, -1] = 0
    return rows


def draw_scored(random: Random, shape: Shape) -> np.ndarray:
    rows = boxes(random, shape)
    rows[:, :, 4] = random.integers(0, 4, shape[:2]) + 0.25  # none of them a small step away from another
    return np.floor(rows)


def transformation(name: str, param: str, **options: Any) -> Any:
    bottoms = (ROWS, 3, 24, 36), (ROWS, 1, 4, 16)
    draws = {"b1": labels}
    return layer("DetectNetTransformation", f"{param} {MEAN}", *bottoms, tops=2, name=name, draws=draws, **options)


def python(module: str, name: str, param: str, *bottoms: Any, **options: Any) -> Any:
    python_param = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return layer("Python", python_param, *bottoms, name=name, phase="TEST", **options)


LAYERS = [
    transformation("test", TRUTH % "GRIDBOX_MIN", phase="TEST"),
    transformation("train", TRUTH % "GRIDBOX_MAX" + CHANGES % "0", random=True),
    transformation("turned", TRUTH % "GRIDBOX_MAX" + CHANGES % "1", random=True),
    python(
        "clustering", "ClusterDetections", "40, 24, 8, 0.3, 0, 0.2, -99, 2, 9", (ROWS, 2, 3, 5), (ROWS, 4, 3, 5), tops=2
    ),
    python("clustering", "ClusterGroundtruth", "40, 24, 8, 1, 16", (ROWS, 1, 3, 5), (ROWS, 4, 3, 5)),
    python("mean_ap", "ScoreDetections", "0.3", (ROWS, 3, 5), (ROWS, 4, 5), draws={"b0": boxes, "b1": boxes}),
    python("mean_ap", "mAP", "", (ROWS, 7, 5), tops=3, draws={"b0": draw_scored}),
]
