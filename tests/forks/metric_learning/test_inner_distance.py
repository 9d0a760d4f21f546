"""Tests of InnerDistance."""

from layer_suite import BATCH, LABELS, fork_properties, layer_case, recorded

FILLER = 'weight_filler { type: "gaussian" std: 1 }'

test_recorded = recorded("InnerDistance", family="metric_learning")
test_properties = fork_properties(
    layer_case("InnerDistance", f"inner_distance_param {{ num_output: 3 {FILLER} }}", (BATCH, 4)),
    layer_case(
        "InnerDistance",
        f"inner_distance_param {{ num_output: 4 normalize: true {FILLER} }}",
        (BATCH, 5),
        name="unit",
    ),
    layer_case("InnerDistance", 'inner_distance_param { distance_type: "L1" }', (BATCH, 5), (4, 5), name="l1_bottom"),
    layer_case(
        "InnerDistance", "inner_distance_param { update_center_only: true }", (BATCH, 5), (4, 5), LABELS, name="centers"
    ),
)
