"""Tests of InnerProduct."""

from layer_suite import IMAGE, MATRIX, layer_case, properties, recorded

test_recorded = recorded("InnerProduct")
test_properties = properties(
    layer_case("InnerProduct", "inner_product_param { num_output: 4 }", IMAGE),
    layer_case("InnerProduct", "inner_product_param { num_output: 4 transpose: true }", MATRIX, name="transposed"),
)
