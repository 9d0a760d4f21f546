"""Tests of MatWrite."""

from layer_suite import BATCH, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)

test_properties = fork_properties(
    layer_case("MatWrite", 'mat_write_param { prefix: "suite_" }', MAPS, tops=0),
)
