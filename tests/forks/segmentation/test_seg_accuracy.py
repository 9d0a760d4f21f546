"""Tests of SegAccuracy and EltwiseAccuracy."""

from layer_suite import BATCH, Shape, fork_properties, joint_batches, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)
LABELS: Shape = (BATCH, 1, 5, 6)

test_recorded = recorded("SegAccuracy", family="segmentation")
test_properties = fork_properties(
    layer_case("EltwiseAccuracy", "eltwise_accuracy_param { top_k: 2 }", MAPS, LABELS, classes=4),
    layer_case("SegAccuracy", "", MAPS, LABELS, classes=4),
    layer_case(
        "SegAccuracy", "seg_accuracy_param { reset: false ignore_label: 3 }", MAPS, LABELS, classes=4, name="kept"
    ),
)
test_joint_batches = joint_batches(
    layer_case(
        "EltwiseAccuracy",
        "eltwise_accuracy_param { ignore_label: 1 }",
        (BATCH, 3, 2, 4),
        (BATCH, 2, 4),
        classes=3,
        name="ignore",
    )
)
