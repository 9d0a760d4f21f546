"""Tests of BatchNorm and MVN."""

from layer_suite import IMAGE, layer_case, properties, recorded

test_recorded = recorded("BatchNorm", "MVN")
test_properties = properties(
    layer_case("BatchNorm", "", IMAGE, name="train"),
    layer_case("BatchNorm", "", IMAGE, name="test", phase="TEST"),
    layer_case("MVN", "", IMAGE),
)
