"""Tests of Convolution3D, Deconvolution3D, Pooling3D and others."""

from layer_suite import BATCH, fork_properties, layer_case, recorded

VOLUME = (BATCH, 2, 4, 5, 6)

test_recorded = recorded("Convolution3D", "Deconvolution3D", "Pooling3D", family="c3d")
test_properties = fork_properties(
    layer_case(
        "Convolution3D",
        "convolution3d_param { num_output: 3 kernel_size: 3 kernel_depth: 2 stride: 2 pad: 1 temporal_pad: 1 }",
        VOLUME,
    ),
    layer_case(
        "Convolution3D",
        "convolution_param { num_output: 3 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1 bias_term: false }",
        VOLUME,
        name="first_version",
    ),
    layer_case(
        "Deconvolution3D",
        "convolution3d_param { num_output: 3 kernel_size: 4 kernel_depth: 2 stride: 2 temporal_stride: 2 pad: 1 }",
        VOLUME,
    ),
    layer_case(
        "Deconvolution3D",
        "convolution_param { num_output: 3 kernel_size: 2 kernel_depth: 2 stride: 2 temporal_stride: 2 }",
        VOLUME,
        name="first_version",
    ),
    layer_case("Pooling3D", "pooling3d_param { kernel_size: 2 kernel_depth: 2 stride: 2 temporal_stride: 2 }", VOLUME),
    layer_case(
        "Pooling3D",
        "pooling_param { pool: AVE kernel_size: 3 kernel_depth: 1 stride: 2 pad: 1 }",
        VOLUME,
        name="ave_first_version",
    ),
    layer_case("VoxelSoftmax", "", VOLUME),
    layer_case("VoxelSoftmaxLoss", "", VOLUME, (BATCH, 1, 4, 5, 6)),
)
