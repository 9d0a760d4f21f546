"""What several files of tests share: settings, and functions that draw bottoms."""

from typing import Any

import numpy as np

Random, Shape = np.random.Generator, tuple[int, ...]
BBOX_REG_PARAM = "bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 " + (
    "bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 %s }"
)
ANCHOR_SETTINGS = "field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16"
GROUP_SETTINGS = f"cls_num: 2 {ANCHOR_SETTINGS} field_whr: 8 field_xyr: 1"
SINGLE_ANCHOR_SETTINGS = GROUP_SETTINGS.replace(ANCHOR_SETTINGS, "field_w: 30 field_h: 60 stride: 16")
MAP_SETTINGS = "cls_num: 3 coord_num: 4 field_w: 30 field_h: 60 field_whr: 2 field_xyr: 2 downsample_rate: 16"


def draw_boxes(random: Random, n: int) -> np.ndarray:
    corner, sides = random.uniform(0, 60, (n, 2)), random.uniform(10, 60, (n, 2))
    return np.concatenate([corner, corner + sides], axis=1)


def draw_rois(random: Random, shape: Shape) -> np.ndarray:
    image = np.full((shape[0], 1), 0.25)  # as 0, and none below it a small step away
    return np.concatenate([image, draw_boxes(random, shape[0])], axis=1)


def draw_rois_of_two_images(random: Random, shape: Shape) -> np.ndarray:
    return np.concatenate([random.integers(0, 2, (shape[0], 1)), draw_boxes(random, shape[0])], axis=1)


def draw_matched_truth(random: Random, shape: Shape) -> np.ndarray:
    """Draw rows [label, box, overlap]."""
    label, overlap = random.integers(0, 3, (shape[0], 1)), random.uniform(0.5, 0.9, (shape[0], 1))
    return np.concatenate([label, draw_boxes(random, shape[0]), overlap], axis=1)


def draw_label_maps(random: Random, shape: Shape) -> np.ndarray:
    """Return the label, box (center and sides) and overlap of each cell of a map."""
    batch, _, height, width = shape
    label = random.integers(0, 3, (batch, 1, height, width)) * random.integers(0, 2, (batch, 1, height, width))
    center = random.uniform(0, 16 * width, (batch, 2, height, width))
    sides = random.uniform(20, 60, (batch, 2, height, width))
    return np.concatenate([label, center, sides, random.uniform(0, 0.5, (batch, 1, height, width))], axis=1)


def draw_small_numbers(random: Random, shape: Shape) -> np.ndarray:
    return 0.5 * random.normal(size=shape)


def draw_wide_rois(random: np.random.Generator, n: int, num_images: int = 1) -> np.ndarray:
    corner, sides = random.uniform(0, 150, (n, 2)), random.uniform(5, 100, (n, 2))
    return np.concatenate([random.integers(0, num_images, (n, 1)), corner, corner + sides], axis=1).astype(np.float32)


def compute_overlap(a: Any, b: Any, plus: float, measure: str = "IOU") -> float:
    sides = [min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1)]
    intersection = 0.0 if min(sides) < 0 else (sides[0] + plus) * (sides[1] + plus)
    area_a, area_b = ((x[2] - x[0] + plus) * (x[3] - x[1] + plus) for x in (a, b))
    denominator = {"IOU": area_a + area_b - intersection, "IOMU": min(area_a, area_b), "IOFU": area_a}[measure]
    return float(intersection / denominator)


TARGET_SETTINGS = "cls_num: 3 num_img_per_batch: 2 img_width: 300 img_height: 300"
BOX_GROUP_FIELDS = "field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16"
