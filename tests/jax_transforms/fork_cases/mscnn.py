"""Types of MS-CNN and Cascade R-CNN."""

from typing import Any

import numpy as np
from case import ROWS, layer

Random, Shape = np.random.Generator, tuple[int, ...]
REG = "bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 " + (
    "bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 %s }"
)
FIELDS = "field_w: 30 field_w: 50 field_h: 60 field_h: 40 stride: 16"
GROUP = f"cls_num: 2 {FIELDS} field_whr: 8 field_xyr: 1"
MAP = "cls_num: 3 coord_num: 4 field_w: 30 field_h: 60 field_whr: 2 field_xyr: 2 downsample_rate: 16"
LOSS = "lambda: 0.5 bb_smooth: true bg_threshold: 0.3 bg_multiple: 2 pos_neg_weighted: true"


def boxes(random: Random, n: int) -> np.ndarray:
    corner, sides = random.uniform(0, 60, (n, 2)), random.uniform(10, 60, (n, 2))
    return np.concatenate([corner, corner + sides], axis=1)


def rois(random: Random, shape: Shape) -> np.ndarray:
    image = np.full((shape[0], 1), 0.25)  # as 0, and none below it a small step away
    return np.concatenate([image, boxes(random, shape[0])], axis=1)


def two_images(random: Random, shape: Shape) -> np.ndarray:
    return np.concatenate([random.integers(0, 2, (shape[0], 1)), boxes(random, shape[0])], axis=1)


def draw_matched(random: Random, shape: Shape) -> np.ndarray:
    """[label, box, overlap]."""
    label, overlap = random.integers(0, 3, (shape[0], 1)), random.uniform(0.5, 0.9, (shape[0], 1))
    return np.concatenate([label, boxes(random, shape[0]), overlap], axis=1)


def truth(random: Random, shape: Shape) -> np.ndarray:
    """[image, box, label, ignored, difficult]."""
    more = np.zeros((shape[0], 3))
    more[:, 0] = random.integers(1, 3, shape[0])
    return np.concatenate([two_images(random, shape), more], axis=1)


def draw_label_maps(random: Random, shape: Shape) -> np.ndarray:
    """For each place of a map label, box by centre and sides, and overlap."""
    batch, _, height, width = shape
    label = random.integers(0, 3, (batch, 1, height, width)) * random.integers(0, 2, (batch, 1, height, width))
    centre = random.uniform(0, 16 * width, (batch, 2, height, width))
    sides = random.uniform(20, 60, (batch, 2, height, width))
    return np.concatenate([label, centre, sides, random.uniform(0, 0.5, (batch, 1, height, width))], axis=1)


def draw_small_numbers(random: Random, shape: Shape) -> np.ndarray:
    return 0.5 * random.normal(size=shape)


def probabilities(random: Random, shape: Shape) -> np.ndarray:
    return np.moveaxis(random.dirichlet(np.ones(shape[1]), (shape[0], *shape[2:])), -1, 1)


def draw_image_size(random: Random, shape: Shape) -> np.ndarray:
    return np.array([[90.0, 100.0]])


def group_loss(param: str, name: str, **options: Any) -> Any:
    shapes = [(ROWS, c, 3, 4) for c in (2, 4, 6)]
    return layer(
        "DetectionGroupLoss",
        f"detection_group_loss_param {{ {GROUP.replace(FIELDS, 'field_w: 30 field_h: 60 stride: 16')} "
        f"lambda: 2 bg_threshold: 0.3 bg_multiple: 1 objectness: true {param} }} {REG % ''}",
        *shapes,
        name=name,
        draws={"b1": draw_small_numbers, "b2": draw_label_maps},
        **options,
    )


def detection_loss(mode: str, **options: Any) -> Any:
    return layer(
        "DetectionLoss",
        f'detection_loss_param {{ {MAP} {LOSS} sample_mode: "{mode}" }} {REG % ""}',
        (ROWS, 7, 4, 5),
        (ROWS, 6, 4, 5),
        name=mode,
        draws={"b1": draw_label_maps},
        **options,
    )


LAYERS = [
    layer(
        "BboxAccuracy",
        REG % "",
        (ROWS, 12),
        (ROWS, 5),
        (ROWS, 6),
        tops=2,
        draws={"b0": draw_small_numbers, "b1": rois, "b2": draw_matched},
    ),
    layer(
        "BoxGroupOutput",
        "box_group_output_param { fg_thr: 0.4 iou_thr: 0.6 box_group_param { field_w: 30 field_h: 60 stride: 16 } "
        f"field_whr: 8 field_xyr: 1 max_nms_num: 10 max_post_nms_num: 6 min_size: 3 }} {REG % ''}",
        (ROWS, 2, 3, 4),
        (ROWS, 4, 3, 4),
        tops=2,
        phase="TEST",
        draws={"b0": probabilities, "b1": draw_small_numbers},
    ),
    layer(
        "BoxOutput",
        "box_output_param { fg_thr: -1 iou_thr: 0.6 field_w: 30 field_w: 60 field_h: 60 field_h: 120 "
        f"downsample_rate: 8 downsample_rate: 16 max_nms_num: 12 }} {REG % ''}",
        (ROWS, 7, 4, 5),
        (ROWS, 7, 2, 3),
        tops=2,
        phase="TEST",
    ),
    layer("DecodeBBox", REG % "", (ROWS, 8), (ROWS, 5), name="test", phase="TEST", draws={"b1": rois}),
    layer(
        "DecodeBBox",
        REG % "",
        (ROWS, 8),
        (ROWS, 5),
        (ROWS, 6),
        name="train",
        draws={"b0": draw_small_numbers, "b1": rois, "b2": draw_matched},
    ),
    layer(
        "DetectionAccuracy",
        f"detection_accuracy_param {{ {MAP} top_k: 2 }} {REG % ''}",
        (ROWS, 7, 4, 5),
        (ROWS, 6, 4, 5),
        tops=2,
        draws={"b1": draw_label_maps},
    ),
    layer(
        "DetectionGroupAccuracy",
        f"detection_group_accuracy_param {{ {GROUP.replace(FIELDS, 'field_w: 30 field_h: 60 stride: 16')} "
        f"objectness: true }} {REG % ''}",
        (ROWS, 2, 3, 4),
        (ROWS, 4, 3, 4),
        (ROWS, 6, 3, 4),
        tops=2,
        draws={"b1": draw_small_numbers, "b2": draw_label_maps},
    ),
    group_loss('neg_mining_type: "bootstrap"', "bootstrap"),
    group_loss('batch_size: 8 neg_mining_type: "random"', "random", random=True),
    group_loss('batch_size: 8 neg_mining_type: "mixture"', "mixture", random=True),
    detection_loss("bootstrap"),
    detection_loss("all"),
    detection_loss("mixture", random=True),
    layer(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 max_det_num: 5 }} {REG % 'cls_aware: false'}",
        (ROWS, 4),
        (ROWS, 8),
        (ROWS, 5),
        (1, 2),
        phase="TEST",
        name="agnostic",
        numbers="probabilities",
        draws={"b1": draw_small_numbers, "b2": rois, "b3": draw_image_size},
    ),
    layer(
        "FrcnnOutput",
        f"frcnn_output_param {{ conf_thr: 0.1 iou_thr: 0.4 }} {REG % ''}",
        (ROWS, 4),
        (ROWS, 16),
        (ROWS, 5),
        (1, 2),
        phase="TEST",
        name="aware",
        numbers="probabilities",
        draws={"b1": draw_small_numbers, "b2": rois, "b3": draw_image_size},
    ),
    layer(
        "HardMining",
        "hard_mining_param { num_image: 2 num_roi_per_image: 1 }",
        (ROWS, 1),
        (ROWS, 5),
        (ROWS, 2),
        tops=2,
        draws={"b1": two_images},
    ),
    layer(
        "ProposalTarget",
        "proposal_target_param { cls_num: 3 batch_size: 4 num_img_per_batch: 2 img_width: 90 img_height: 90 } "
        f"{REG % ''}",
        (ROWS, 5),
        (2, 8),
        tops=7,
        draws={"b0": two_images, "b1": truth},
        random=True,
    ),
    layer("ScaleRoute", "scale_route_param { high_scale: 40 }", (ROWS, 5), phase="TEST", draws={"b0": rois}),
    layer(
        "ScaleRoute",
        "scale_route_param { low_scale: 30 }",
        (ROWS, 5),
        (ROWS, 2),
        tops=2,
        name="two",
        draws={"b0": rois},
    ),
]
