"""Tests of Permute, Flip, Reverse and others."""

from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Permute", "Flip", "Reverse", "ShuffleChannel", "Transpose", family="detection")
test_properties = fork_properties(
    layer_case("ShuffleChannel", "shuffle_channel_param { group: 2 }", MAPS),
    layer_case("Flip", "flip_param { flip_height: true }", IMAGE),
    layer_case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", IMAGE),
    layer_case("Reverse", "reverse_param { axis: 2 axis: 3 }", IMAGE),
    layer_case("Transpose", "transpose_param { dim: 0 dim: 3 dim: 1 dim: -2 }", IMAGE),
)
