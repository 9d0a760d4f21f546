"""Tests of L1Loss and LpqLoss."""

from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)

test_recorded = recorded("L1Loss", family="flow")
test_properties = fork_properties(
    layer_case("L1Loss", "", (BATCH, 5), (BATCH, 5)),
    layer_case("L1Loss", "l1_loss_param { plateau: 0.1 }", IMAGES, name="flow"),
    layer_case(
        "L1Loss", "l1_loss_param { l2_per_location: true normalize_by_num_entries: true }", IMAGES, IMAGES, name="l2"
    ),
    layer_case(
        "LpqLoss", "lpq_loss_param { p: 2 q: 0.4 p_epsilon: 0.1 normalize_by_num_entries: true }", IMAGES, IMAGES
    ),
)
