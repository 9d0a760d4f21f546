"""Tests of LRN."""

from layer_suite import IMAGE, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("LRN", "lrn_param { local_size: 3 deconv_ignore: true }", IMAGE, name="for_deconv"),
)
