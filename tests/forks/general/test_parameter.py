"""Tests of Parameter."""

from layer_suite import fork_properties, layer_case

test_properties = fork_properties(
    layer_case(
        "Parameter",
        'parameter_param { shape { dim: 4 dim: 3 } blob_filler { type: "gaussian" } }',
        name="filled",
    ),
)
