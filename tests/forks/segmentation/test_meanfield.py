"""Tests of MultiStageMeanfield."""

from layer_suite import BATCH, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)
MEANFIELD_PARAM = "multi_stage_meanfield_param { num_iterations: 2 theta_alpha: 3 theta_beta: 2 theta_gamma: 3 }"

test_properties = fork_properties(
    layer_case("MultiStageMeanfield", MEANFIELD_PARAM, MAPS, MAPS, (BATCH, 3, 5, 6)),
)
