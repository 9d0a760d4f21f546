"""Cases of the layers of MS-CNN and Cascade R-CNN."""

from typing import Any

import numpy as np
from case import BATCH, layer_case

Random, Shape = np.random.Generator, tuple[int, ...]
BBOX_REG_PARAM = "bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 " + (
    "bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 %s }"
)
ANCHOR_SETTINGS = "field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16"
GROUP_SETTINGS = f"cls_num: 2 {ANCHOR_SETTINGS} field_whr: 8 field_xyr: 1"
SINGLE_ANCHOR_SETTINGS = GROUP_SETTINGS.replace(ANCHOR_SETTINGS, "field_w: 30 field_h: 60 stride: 16")
MAP_SETTINGS = "cls_num: 3 coord_num: 4 field_w: 30 field_h: 60 field_whr: 2 field_xyr: 2 downsample_rate: 16"
LOSS_SETTINGS = "lambda: 0.5 bb_smooth: true bg_threshold: 0.3 bg_multiple: 2 pos_neg_weighted: true"


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


def draw_truth(random: Random, shape: Shape) -> np.ndarray:
    """Draw rows [image, box, label, ignored, difficult]."""
    label_columns = np.zeros((shape[0], 3))
    label_columns[:, 0] = random.integers(1, 3, shape[0])
    return np.concatenate([draw_rois_of_two_images(random, shape), label_columns], axis=1)


def draw_label_maps(random: Random, shape: Shape) -> np.ndarray:
    """Return the label, box (center and sides) and overlap of each cell of a map."""
    batch, _, height, width = shape
    label = random.integers(0, 3, (batch, 1, height, width)) * random.integers(0, 2, (batch, 1, height, width))
    center = random.uniform(0, 16 * width, (batch, 2, height, width))
    sides = random.uniform(20, 60, (batch, 2, height, width))
    return np.concatenate([label, center, sides, random.uniform(0, 0.5, (batch, 1, height, width))], axis=1)


def draw_small_numbers(random: Random, shape: Shape) -> np.ndarray:
    return 0.5 * random.normal(size=shape)


def draw_probabilities(random: Random, shape: Shape) -> np.ndarray:
    return np.moveaxis(random.dirichlet(np.ones(shape[1]), (shape[0], *shape[2:])), -1, 1)


def draw_image_size(random: Random, shape: Shape) -> np.ndarray:
    return np.array([[90.0, 100.0]])


def group_loss_case(param: str, name: str, **options: Any) -> Any:
    shapes = [(BATCH, c, 3, 4) for c in (2, 4, 6)]
    return layer_case(
        "DetectionGroupLoss",
        f"detection_group_loss_param {{ {SINGLE_ANCHOR_SETTINGS} "
        f"lambda: 2 bg_threshold: 0.3 bg_multiple: 1 objectness: true {param} }} {BBOX_REG_PARAM % ''}",
        *shapes,
        name=name,
        samplers={"b1": draw_small_numbers, "b2": draw_label_maps},
        **options,
    )


def detection_loss_case(mode: str, **options: Any) -> Any:
    return layer_case(
        "DetectionLoss",
        f'detection_loss_param {{ {MAP_SETTINGS} {LOSS_SETTINGS} sample_mode: "{mode}" }} {BBOX_REG_PARAM % ""}',
        (BATCH, 7, 4, 5),
        (BATCH, 6, 4, 5),
        name=mode,
        samplers={"b1": draw_label_maps},
        **options,
    )


LAYER_CASES = [
    layer_case(
        "BboxAccuracy",
        BBOX_REG_PARAM % "",
        (BATCH, 12),
        (BATCH, 5),
        (BATCH, 6),
        tops=2,
        samplers={"b0": draw_small_numbers, "b1": draw_rois, "b2": draw_matched_truth},
    ),
    layer_case(
        "BoxGroupOutput",
        "box_group_output_param { fg_thr: 0.4 iou_thr: 0.6 box_group_param { field_w: 30 field_h: 60 stride: 16 } "
        f"field_whr: 8 field_xyr: 1 max_nms_num: 10 max_post_nms_num: 6 min_size: 3 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 2, 3, 4),
        (BATCH, 4, 3, 4),
        tops=2,
        phase="TEST",
        samplers={"b0": draw_probabilities, "b1": draw_small_numbers},
    ),
    layer_case(
        "BoxOutput",
        "box_output_param { fg_thr: -1 iou_thr: 0.6 field_w: 30 field_w: 60 field_h: 60 field_h: 120 "
        f"downsample_rate: 8 downsample_rate: 16 max_nms_num: 12 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 7, 4, 5),
        (BATCH, 7, 2, 3),
        tops=2,
        phase="TEST",
    ),
    layer_case(
        "DecodeBBox", BBOX_REG_PARAM % "", (BATCH, 8), (BATCH, 5), name="test", phase="TEST", samplers={"b1": draw_rois}
    ),
    layer_case(
        "DecodeBBox",
        BBOX_REG_PARAM % "",
        (BATCH, 8),
        (BATCH, 5),
        (BATCH, 6),
        name="train",
        samplers={"b0": draw_small_numbers, "b1": draw_rois, "b2": draw_matched_truth},
    ),
    layer_case(
        "DetectionAccuracy",
        f"detection_accuracy_param {{ {MAP_SETTINGS} top_k: 2 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 7, 4, 5),
        (BATCH, 6, 4, 5),
        tops=2,
        samplers={"b1": draw_label_maps},
    ),
    layer_case(
        "DetectionGroupAccuracy",
        f"detection_group_accuracy_param {{ {SINGLE_ANCHOR_SETTINGS} objectness: true }} {BBOX_REG_PARAM % ''}",
        (BATCH, 2, 3, 4),
        (BATCH, 4, 3, 4),
        (BATCH, 6, 3, 4),
        tops=2,
        samplers={"b1": draw_small_numbers, "b2": draw_label_maps},
    ),
    group_loss_case('neg_mining_type: "bootstrap"', "bootstrap"),
    group_loss_case('batch_size: 8 neg_mining_type: "random"', "random", random=True),
    group_loss_case('batch_size: 8 neg_mining_type: "mixture"', "mixture", random=True),
    detection_loss_case("bootstrap"),
    detection_loss_case("all"),
    detection_loss_case("mixture", random=True),
    layer_case(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 max_det_num: 5 }} {BBOX_REG_PARAM % 'cls_aware: false'}",
        (BATCH, 4),
        (BATCH, 8),
        (BATCH, 5),
        (1, 2),
        phase="TEST",
        name="agnostic",
        distribution="probabilities",
        samplers={"b1": draw_small_numbers, "b2": draw_rois, "b3": draw_image_size},
    ),
    layer_case(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 }} {BBOX_REG_PARAM % ''}",
        (BATCH, 4),
        (BATCH, 16),
        (BATCH, 5),
        (1, 2),
        phase="TEST",
        name="aware",
        distribution="probabilities",
        samplers={"b1": draw_small_numbers, "b2": draw_rois, "b3": draw_image_size},
    ),
    layer_case(
        "HardMining",
        "hard_mining_param { num_image: 2 num_roi_per_image: 1 }",
        (BATCH, 1),
        (BATCH, 5),
        (BATCH, 2),
        tops=2,
        samplers={"b1": draw_rois_of_two_images},
    ),
    layer_case(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: 4 num_img_per_batch: 2 img_width: 90 img_height: 90 } "
        f"{BBOX_REG_PARAM % ''}",
        (BATCH, 5),
        (2, 8),
        tops=7,
        samplers={"b0": draw_rois_of_two_images, "b1": draw_truth},
        random=True,
    ),
    layer_case(
        "ScaleRoute", "scale_route_param { high_scale: 40 }", (BATCH, 5), phase="TEST", samplers={"b0": draw_rois}
    ),
    layer_case(
        "ScaleRoute",
        "scale_route_param { low_scale: 30 }",
        (BATCH, 5),
        (BATCH, 2),
        tops=2,
        name="two",
        samplers={"b0": draw_rois},
    ),
]
