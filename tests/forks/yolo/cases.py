"""What several files of tests share: settings, and functions that draw bottoms."""

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
