"""Tests of Scale."""

from layer_suite import IMAGE, fork_properties, layer_case

BIAS = "bias_term: true bias_filler { value: 0.5 }"

test_properties = fork_properties(
    layer_case("Scale", f"scale_param {{ min_value: -100 max_value: 100 {BIAS} }}", IMAGE, name="held"),
    layer_case("Scale", "scale_param { match_by_count: true }", IMAGE, (3, 1, 1), name="matched"),
)
