"""Tests of ContrastiveLoss."""

from layer_suite import BATCH, MATRIX, fork_properties, layer_case

PAIRS = 'contrastive_loss_param { output_matches: true distance_calculation: "MANHATTAN" }'

test_properties = fork_properties(
    layer_case(
        "ContrastiveLoss",
        f"loss_weight: 1 loss_weight: 0 {PAIRS}",
        MATRIX,
        MATRIX,
        (BATCH, 2),
        tops=2,
        classes=2,
        name="of_labels",
    ),
)
