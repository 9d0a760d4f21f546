"""Tests of SpatialSoftmax and Softmax."""

from layer_suite import BATCH, MATRIX, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("SpatialSoftmax", family="robotics")
test_properties = fork_properties(
    layer_case("Softmax", "softmax_param { temperature: 2.5 }", MATRIX, name="with_temperature"),
    layer_case("SpatialSoftmax", "spatial_softmax_param { temperature: 2 }", MAPS),
)
