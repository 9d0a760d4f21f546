"""Cases of YOLO's layers."""

import numpy as np
from case import BATCH, Case, layer_case

SMALL_ANCHORS = "biases: 0.7 biases: 0.9 biases: 2.4 biases: 1.6"
LARGE_ANCHORS = "biases: 10 biases: 14 biases: 37 biases: 58 biases: 81 biases: 60"


def draw_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw labels of two classes; the last image has only one box."""
    result = random.uniform(0.1, 0.9, shape).astype(np.float32)
    result[..., 0] = random.integers(2, size=shape[:-1])
    result[-1, :, 1:] = 0
    return result


def draw_small_numbers(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers so small that the sine of a loss, a sum of squares over many cells, has no large rounding error."""
    return random.uniform(-0.5, 0.5, shape).astype(np.float32)


def loss_case(layer_type: str, param: str, channels: int, name: str = "") -> Case:
    return layer_case(
        layer_type,
        param,
        (BATCH, channels, 3, 4),
        (BATCH, 1, 5, 5),
        name=name,
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    )


YOLOV3_SETTINGS = f"num_class: 2 num: 2 anchors_scale: 32 mask: 1 mask: 2 coord_scale: 0.1 {LARGE_ANCHORS}"

LAYER_CASES = [
    layer_case("Reorg", "reorg_param { stride: 2 }", (BATCH, 4, 4, 6)),
    layer_case("Reorg", "reorg_param { stride: 2 reverse: true }", (BATCH, 4, 3, 2), name="reverse"),
    loss_case(
        "RegionLoss", f"region_loss_param {{ num_class: 2 num: 2 coord_scale: 0.1 thresh: 0.6 {SMALL_ANCHORS} }}", 14
    ),
    loss_case(
        "RegionLoss",
        f"region_loss_param {{ num_class: 2 num: 2 rescore: 0 bias_match: 0 coord_scale: 0.1 {SMALL_ANCHORS} }}",
        14,
        "match",
    ),
    loss_case("Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} }}", 14),
    loss_case(
        "Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} use_focal_loss: true use_logic_gradient: true }}", 14, "focal"
    ),
    *(
        loss_case("Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} iou_loss: {kind} }}", 14, kind)
        for kind in ("IOU", "GIOU", "DIOU", "CIOU")
    ),
    layer_case("YoloSeg", "yolo_seg_param { object_scale: 0.5 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)),
    layer_case(
        "YoloSeg",
        "yolo_seg_param { object_scale: 0.5 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 3, 4),
        (BATCH, 2),
        name="weighted",
    ),
    layer_case(
        "SegmentationEvaluate", "segmentation_evaluate_param { num_classes: 2 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)
    ),
    layer_case(
        "SegmentationEvaluate",
        "segmentation_evaluate_param { num_classes: 2 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 6, 8),
        name="scaled",
    ),
    layer_case(
        "YoloDetectionOutput",
        f"yolo_detection_output_param {{ num_classes: 2 num_box: 2 confidence_threshold: 0.2 {SMALL_ANCHORS} }}",
        (BATCH, 14, 3, 4),
        (BATCH, 14, 2, 2),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 anchors_scale: 16 "
        f"mask: 2 mask: 0 confidence_threshold: 0.2 {LARGE_ANCHORS} }}",
        (BATCH, 7, 2, 3),
        (BATCH, 7, 4, 6),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 2 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 mask: 0 nms_threshold: 1.5 {LARGE_ANCHORS} }}",
        (BATCH, 14, 2, 3),
        name="all",
        samplers={"b0": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 gaussian_box: true {LARGE_ANCHORS} }}",
        (BATCH, 11, 2, 3),
        name="gaussian",
        samplers={"b0": draw_small_numbers},
    ),
]
