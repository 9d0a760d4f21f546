"""Cases of C3D's layers, over time and two spatial axes."""

from case import BATCH, layer_case

VOLUME = (BATCH, 2, 4, 5, 6)

LAYER_CASES = [
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
    layer_case("VoxelSoftmax", "", VOLUME),
    layer_case("VoxelSoftmaxLoss", "", VOLUME, (BATCH, 1, 4, 5, 6)),
]
