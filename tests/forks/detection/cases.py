"""What several files of tests share: settings, and functions that draw bottoms."""

import numpy as np

NUM_CLASSES, NUM_PRIORS = 3, 10


def draw_boxes(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw boxes within the image, with shape (n, 4)."""
    center, half_sides = random.uniform(0.3, 0.7, (n, 2)), random.uniform(0.1, 0.3, (n, 2))
    return np.concatenate([center - half_sides, center + half_sides], axis=1)


def draw_priors(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2] // 4
    return np.stack([draw_boxes(random, n).ravel(), np.tile([0.1, 0.1, 0.2, 0.2], n)])[None]


def draw_truth(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw ground truth of the first two images; every third row is padding, with image -1."""
    n = shape[2]
    images = np.where(np.arange(n) % 3, np.arange(n) % 2, -1)
    columns = [images, random.integers(1, NUM_CLASSES, n), np.zeros(n), *draw_boxes(random, n).T, np.zeros(n)]
    return np.stack(columns, axis=1)[None, None]


def compute_overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the intersection over union of two boxes, in float32."""
    width, height = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), np.float32(0)) for i in (0, 1))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return float(width * height / (areas[0] + areas[1] - width * height))


def coarse_boxes(random: np.random.Generator, n: int) -> np.ndarray:
    """Draw boxes on a grid, so that many overlaps are equal."""
    low = random.integers(0, 6, (n, 2))
    return (np.concatenate([low, low + random.integers(1, 4, (n, 2))], axis=1) / 8).astype(np.float32)
