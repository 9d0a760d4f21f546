"""Tests of DummyData and Parameter."""

from layer_suite import layer_case, properties, recorded

test_recorded = recorded("DummyData", "Parameter")
test_properties = properties(
    layer_case("DummyData", 'dummy_data_param { shape { dim: 3 } data_filler { type: "gaussian" } }', random=True),
    layer_case("Parameter", "parameter_param { shape { dim: 3 dim: 4 } }"),
)
