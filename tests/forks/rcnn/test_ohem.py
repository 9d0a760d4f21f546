"""Tests of BoxAnnotatorOHEM, SmoothL1LossOHEM and SoftmaxWithLossOHEM."""

from layer_suite import BATCH, Shape, fork_properties, joint_batches, layer_case, normalizations_case, recorded
from rcnn.cases import ROIS, draw_rois

HEAT_MAP: Shape = (BATCH, 3, 2, 4)

test_recorded = recorded("BoxAnnotatorOHEM", "SmoothL1LossOHEM", family="rcnn")
test_recorded_by_segmentation = recorded("SoftmaxWithLossOHEM", family="segmentation")
test_properties = fork_properties(
    layer_case(
        "SoftmaxWithLossOHEM",
        "loss_weight: 1 loss_weight: 0 loss_weight: 0 loss_param { ignore_label: 1 }",
        (BATCH, 5),
        (BATCH,),
        tops=3,
        classes=5,
    ),
    layer_case(
        "SmoothL1LossOHEM",
        "loss_weight: 1 loss_weight: 0",
        (BATCH, 4, 2, 1),
        (BATCH, 4, 2, 1),
        (BATCH, 4, 2, 1),
        tops=2,
    ),
    layer_case(
        "BoxAnnotatorOHEM",
        "box_annotator_ohem_param { roi_per_img: 2 }",
        ROIS,
        (BATCH,),
        (BATCH,),
        (BATCH, 8),
        tops=2,
        samplers={"b0": draw_rois},
    ),
)
HARD_EXAMPLE_LOSS = layer_case("SmoothL1LossOHEM", "", HEAT_MAP, HEAT_MAP)
test_joint_batches = joint_batches(
    *(normalizations_case(HARD_EXAMPLE_LOSS, **ignored) for ignored in ({}, {"ignore_label": 1}))
)
