"""Tests of BoxGroupOutput, BoxOutput and FrcnnOutput."""

import numpy as np

from layer_suite import BATCH, fork_properties, layer_case, recorded
from mscnn.cases import BBOX_REG_PARAM, Random, Shape, draw_rois, draw_small_numbers


def draw_probabilities(random: Random, shape: Shape) -> np.ndarray:
    return np.moveaxis(random.dirichlet(np.ones(shape[1]), (shape[0], *shape[2:])), -1, 1)


def draw_image_size(random: Random, shape: Shape) -> np.ndarray:
    return np.array([[90.0, 100.0]])


test_recorded = recorded("BoxGroupOutput", "BoxOutput", "FrcnnOutput", family="mscnn")
test_properties = fork_properties(
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
)
