"""Tests of EuclideanDistance and WeightedEuclideanLoss."""

from layer_suite import BATCH, fork_properties, layer_case, recorded

test_recorded = recorded("EuclideanDistance", "WeightedEuclideanLoss", family="robotics")
test_properties = fork_properties(
    layer_case("EuclideanDistance", "", (BATCH, 6), (BATCH, 6)),
    layer_case("WeightedEuclideanLoss", "", (BATCH, 3), (BATCH, 3), (BATCH, 3, 3)),
)
