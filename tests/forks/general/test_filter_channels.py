"""Tests of Filter."""

from layer_suite import MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("Filter", "filter_param { num_output: 2 }", MATRIX, name="channels"),
)
