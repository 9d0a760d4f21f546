"""Tests of BoxAnnotatorOHEM, SmoothL1LossOHEM and SoftmaxWithLossOHEM."""

import pytest

from caffejax.base.errors import CaffejaxError
from layer_suite import BATCH, Shape, fork_properties, joint_batches, layer_case, normalizations_case, recorded
from rcnn.cases import ROI_SHAPE, ROIS, draw_rois, make_net

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


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        (
            "BoxAnnotatorOHEM",
            "box_annotator_ohem_param { roi_per_img: 1 }",
            [ROI_SHAPE, (3,), (4,), ROI_SHAPE],
            "bottom 1 must have one",
        ),
        ("SmoothL1LossOHEM", "", [(4, 3), (4, 2)], "must have the shape of bottom 0"),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)
