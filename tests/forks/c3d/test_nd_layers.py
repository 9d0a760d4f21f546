"""Tests of NdConvolution and NdPooling."""

from layer_suite import BATCH, fork_properties, layer_case

VOLUME = (BATCH, 2, 4, 5, 6)

test_properties = fork_properties(
    layer_case(
        "NdConvolution",
        "convolution_param { num_output: 4 group: 2 kernel_shape { dim: 2 dim: 3 dim: 3 } "
        "stride_shape { dim: 1 dim: 2 dim: 1 } pad_shape { dim: 1 dim: 1 dim: 0 } }",
        VOLUME,
    ),
    layer_case(
        "NdPooling",
        "pooling_param { kernel_shape { dim: 2 dim: 2 dim: 3 } stride_shape { dim: 2 dim: 2 dim: 2 } "
        "pad_shape { dim: 0 dim: 1 dim: 1 } }",
        VOLUME,
    ),
    layer_case("NdPooling", "pooling_param { pool: AVE kernel_shape { dim: 2 dim: 2 } }", (BATCH, 2, 4, 5), name="ave"),
)
