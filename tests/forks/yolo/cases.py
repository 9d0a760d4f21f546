"""What several files of tests share: settings, and functions that draw bottoms."""

from typing import Any

import numpy as np

SMALL_ANCHORS = "biases: 0.7 biases: 0.9 biases: 2.4 biases: 1.6"
LARGE_ANCHORS = "biases: 10 biases: 14 biases: 37 biases: 58 biases: 81 biases: 60"


def draw_small_numbers(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers so small that the sine of a loss, a sum of squares over many cells, has no large rounding error."""
    return random.uniform(-0.5, 0.5, shape).astype(np.float32)


def draw_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw labels of two classes; the last image has only one box."""
    result = random.uniform(0.1, 0.9, shape).astype(np.float32)
    result[..., 0] = random.integers(2, size=shape[:-1])
    result[-1, :, 1:] = 0
    return result


ANCHORS = np.array([[10, 14], [40, 30], [60, 90]])
BIASES = " ".join(f"biases: {n}" for n in ANCHORS.ravel())


def compute_iou(a: Any, b: Any) -> float:
    sides = np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    intersection = np.prod(np.maximum(sides, 0))
    return float(intersection / (np.prod(a[2:]) + np.prod(b[2:]) - intersection))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
