"""Tests of SoftmaxWithLoss."""

from layer_suite import BATCH, LABELS, fork_properties, layer_case

WEIGHTED = "loss_param { weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 2 class_weighting: 1 }"

test_properties = fork_properties(
    layer_case(
        "SoftmaxWithLoss",
        "loss_weight: 1 loss_weight: 0 loss_weight: 0",
        (BATCH, 3),
        LABELS,
        tops=3,
        classes=3,
        name="with_losses",
    ),
    layer_case("SoftmaxWithLoss", WEIGHTED, (BATCH, 3), LABELS, classes=3, name="of_weighted_classes"),
    layer_case(
        "SoftmaxWithLoss", "loss_param { weight_by_label_freqs: true }", (BATCH, 3), LABELS, classes=3, name="by_count"
    ),
)
