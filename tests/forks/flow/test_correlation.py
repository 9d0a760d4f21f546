"""Tests of Correlation and Correlation1D."""

from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)

test_recorded = recorded("Correlation", family="flow")
test_properties = fork_properties(
    layer_case(
        "Correlation", "correlation_param { pad: 3 kernel_size: 3 max_displacement: 2 stride_2: 2 }", IMAGES, IMAGES
    ),
    layer_case(
        "Correlation",
        "correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 stride_1: 2 correlation_type: SUBTRACT }",
        IMAGES,
        IMAGES,
        name="subtract",
    ),
    layer_case(
        "Correlation1D",
        "correlation_param { pad: 2 kernel_size: 1 max_displacement: 2 single_direction: -1 }",
        IMAGES,
        IMAGES,
    ),
)
