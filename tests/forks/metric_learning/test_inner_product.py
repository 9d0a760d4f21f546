"""Tests of InnerProduct."""

from layer_suite import MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("InnerProduct", "inner_product_param { bias_term: false }", MATRIX, (4, 5), name="of_bottoms"),
    layer_case(
        "InnerProduct",
        'inner_product_param { num_output: 4 normalize: true weight_filler { type: "gaussian_unitball" } }',
        MATRIX,
        name="of_unit_rows",
    ),
    layer_case(
        "InnerProduct", "inner_product_param { num_output: 4 enable_noise: true }", MATRIX, name="noisy", random=True
    ),
)
