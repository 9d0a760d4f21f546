"""Tests of LRN."""

from layer_suite import IMAGE, layer_case, properties, recorded

test_recorded = recorded("LRN")
test_properties = properties(
    layer_case("LRN", "lrn_param { local_size: 3 alpha: 0.5 }", IMAGE, name="across"),
    layer_case("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }", IMAGE, name="within"),
)
