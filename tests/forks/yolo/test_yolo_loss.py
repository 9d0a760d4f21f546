"""Tests of RegionLoss and Yolov3."""

from layer_suite import BATCH, Case, fork_properties, layer_case, recorded
from yolo.cases import LARGE_ANCHORS, SMALL_ANCHORS, draw_labels, draw_small_numbers

YOLOV3_SETTINGS = f"num_class: 2 num: 2 anchors_scale: 32 mask: 1 mask: 2 coord_scale: 0.1 {LARGE_ANCHORS}"


def loss_case(layer_type: str, param: str, channels: int, name: str = "") -> Case:
    return layer_case(
        layer_type,
        param,
        (BATCH, channels, 3, 4),
        (BATCH, 1, 5, 5),
        name=name,
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    )


test_recorded = recorded("RegionLoss", "Yolov3", family="yolo")
test_properties = fork_properties(
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
)
