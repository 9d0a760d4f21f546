"""Tests of Axpy."""

from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Axpy", family="general")
test_properties = fork_properties(
    layer_case("Axpy", "", (BATCH, 4, 1, 1), MAPS, MAPS),
)
