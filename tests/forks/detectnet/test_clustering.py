"""Tests of Python."""

from typing import Any

import numpy as np

from detectnet.cases import Random, Shape
from layer_suite import BATCH, fork_properties, layer_case


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


def python_case(module: str, name: str, param: str, *bottoms: Any, **options: Any) -> Any:
    python_param = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return layer_case("Python", python_param, *bottoms, name=name, phase="TEST", **options)


test_properties = fork_properties(
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
)
