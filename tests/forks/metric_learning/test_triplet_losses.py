"""Tests of CenterLoss, GeneralContrastiveLoss, GeneralTripletLoss and TripletLoss."""

from layer_suite import BATCH, LABELS, MATRIX, fork_properties, joint_batches, layer_case, recorded

test_recorded = recorded("CenterLoss", "GeneralContrastiveLoss", family="metric_learning")
test_properties = fork_properties(
    layer_case(
        "CenterLoss",
        'center_loss_param { num_output: 4 center_filler { type: "gaussian" std: 1 } } loss_weight: 0.5',
        (BATCH, 5),
        LABELS,
        classes=4,
    ),
    layer_case("GeneralContrastiveLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_negative_only: true exp_negative_weight: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="nearest",
    ),
    layer_case(
        "GeneralContrastiveLoss",
        "general_contrastive_loss_param { max_positive_only: true add_intra_mae: true }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="intra",
    ),
    layer_case("GeneralTripletLoss", "", (BATCH, 5), LABELS, classes=5, distribution="positive"),
    layer_case(
        "GeneralTripletLoss",
        "general_triplet_loss_param { hardest_only: true add_center_loss: false margin: 1 }",
        (BATCH, 5),
        LABELS,
        classes=5,
        distribution="positive",
        name="hardest",
    ),
    layer_case("TripletLoss", "triplet_loss_param { margin: 3 }", MATRIX, MATRIX, MATRIX),
    layer_case(
        "TripletLoss", "triplet_loss_param { alpha: 3 }", MATRIX, MATRIX, MATRIX, (BATCH,), name="labels", classes=3
    ),
)
LOSS_WEIGHTS = "loss_weight: 1 loss_weight: 0"
test_joint_batches = joint_batches(
    layer_case("GeneralTripletLoss", LOSS_WEIGHTS, MATRIX, LABELS, classes=5, tops=2, name="means"),
    layer_case(
        "GeneralContrastiveLoss",
        f"{LOSS_WEIGHTS} general_contrastive_loss_param {{ negative_margin: 2 normalize_negative: 0.1 }}",
        MATRIX,
        LABELS,
        classes=5,
        tops=2,
        name="means",
    ),
)
