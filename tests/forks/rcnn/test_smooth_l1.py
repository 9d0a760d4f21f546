"""Tests of SmoothL1Loss."""

from layer_suite import MATRIX, fork_properties, joint_batches, layer_case, recorded

test_recorded = recorded("SmoothL1Loss", family="rcnn")
test_properties = fork_properties(
    layer_case("SmoothL1Loss", "", MATRIX, MATRIX, name="ssd"),
    layer_case("SmoothL1Loss", "loss_weight: 1", MATRIX, MATRIX, MATRIX, name="fast"),
    layer_case("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", MATRIX, MATRIX, MATRIX, MATRIX, name="faster"),
)
test_joint_batches = joint_batches(
    layer_case(
        "SmoothL1Loss",
        "loss_weight: 2 smooth_l1_loss_param {} loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }",
        MATRIX,
        MATRIX,
        name="PRE_FIXED",
    )
)
