"""Tests of ReLU6, Mish, HardSigmoid and HardSwish."""

from layer_suite import BATCH, MATRIX, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("ReLU6", family="general")
test_properties = fork_properties(
    layer_case("Mish", "", MATRIX),
    layer_case("HardSigmoid", "", MAPS),
    layer_case("HardSwish", "", MAPS),
    layer_case("ReLU6", "relu6_param { negative_slope: 0.1 }", MAPS),
)
