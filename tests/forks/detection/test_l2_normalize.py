"""Tests of Normalize."""

from layer_suite import IMAGE, fork_properties, layer_case, recorded

test_recorded = recorded("Normalize", family="detection")
test_properties = fork_properties(
    layer_case("Normalize", "normalize_param { }", IMAGE, name="normface"),
    layer_case("Normalize", "normalize_param { bp_norm: true }", IMAGE, name="normface_lengths", tops=2),
    layer_case("Normalize", "norm_param { across_spatial: false }", IMAGE, name="places"),
    layer_case("Normalize", "norm_param { channel_shared: false }", IMAGE, name="image_channels"),
)
