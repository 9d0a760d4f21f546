"""Tests of Dropout."""

from layer_suite import IMAGE, layer_case, properties, recorded

test_recorded = recorded("Dropout")
test_properties = properties(
    layer_case("Dropout", "", IMAGE, name="train", random=True),
    layer_case("Dropout", "", IMAGE, name="test", phase="TEST"),
)
