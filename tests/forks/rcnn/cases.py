"""What several files of tests share: settings, and functions that draw bottoms."""

from typing import Any

import numpy as np

from layer_suite import BATCH, Shape, layer_case

MAPS: Shape = (2, 3, 6, 7)
ROIS: Shape = (BATCH, 5)
POOL = "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5"


def draw_rois(random: np.random.Generator, shape: tuple[int, ...], num_images: int = 2) -> np.ndarray:
    """Draw rows [image, x1, y1, x2, y2] within maps of half the size; scaled corners are not near halves."""
    corner = random.integers(0, 5, (shape[0], 2)) * 2.0
    end_corner = corner + random.integers(1, 3, (shape[0], 2)) * 2.0
    return np.concatenate([random.integers(0, num_images, (shape[0], 1)), corner + 0.1, end_corner + 0.2], axis=1)


def draw_rois_of_one_image(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw_rois(random, shape, num_images=1)


def draw_image_info(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray([[64, 64, 1, 1][: shape[1]]])


def python_case(module: str, cls: str, text: str, *bottoms: Shape, **options: Any) -> Any:
    param = f"python_param {{ module: '{module}' layer: '{cls}' param_str: \"{text}\" }}"
    return layer_case("Python", param, *bottoms, name=cls, **options)


SCORES: Shape = (1, 18, 4, 4)
