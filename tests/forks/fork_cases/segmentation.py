"""Cases of forks' layers for segmentation, cheap convolutions and activations."""

import numpy as np
from case import BATCH, Case, Shape, layer_case

IMAGE: Shape = (BATCH, 4, 5, 6)
LABELS: Shape = (BATCH, 1, 5, 6)
MEANFIELD_PARAM = "multi_stage_meanfield_param { num_iterations: 2 theta_alpha: 3 theta_beta: 2 theta_gamma: 3 }"
CONSTANT_FILLER = '{ type: "constant" value: 1 }'

DEPTHWISE_FUSED = """
  layer { name: "conv" type: "ConvolutionDepthwise" bottom: "b0" top: "conv"
    convolution_param { kernel_size: 3 pad: 1 bias_term: false } }
  layer { name: "norm" type: "BN" bottom: "conv" top: "conv" bn_param { slope_filler { value: 1 } } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""


def draw_pooling_indices(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw distinct indices, for each channel, into a top of twice the height and width."""
    *planes, height, width = shape
    permutations = [random.permutation(4 * height * width)[: height * width] for _ in range(int(np.prod(planes)))]
    return np.reshape(permutations, shape).astype(np.float32)


LAYER_CASES = [
    layer_case("Axpy", "", (BATCH, 4, 1, 1), IMAGE, IMAGE),
    layer_case("MatWrite", 'mat_write_param { prefix: "suite_" }', IMAGE, tops=0),
    layer_case(
        "BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} bias_filler {CONSTANT_FILLER} }}", IMAGE, name="pspnet_train"
    ),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} }}", IMAGE, name="pspnet_test", phase="TEST"),
    layer_case("BN", f"bn_param {{ slope_filler {CONSTANT_FILLER} frozen: true }}", IMAGE, name="pspnet_frozen"),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} shift_filler {CONSTANT_FILLER} }}", IMAGE, name="segnet"
    ),
    layer_case(
        "BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} bn_mode: INFERENCE }}", IMAGE, name="segnet_inference"
    ),
    layer_case("BN", f"bn_param {{ scale_filler {CONSTANT_FILLER} }}", IMAGE, tops=3, name="segnet_three_tops"),
    layer_case("ChannelScale", "", IMAGE, (BATCH, 1, 5, 6)),
    layer_case("ChannelScale", "channel_scale_param { global_scale: true }", IMAGE, (BATCH, 1, 5, 6), name="global"),
    layer_case("ConvolutionDepthwise", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }", IMAGE),
    Case("ConvolutionDepthwise_BN_ReLU_train", DEPTHWISE_FUSED, {"b0": IMAGE}),
    Case("ConvolutionDepthwise_BN_ReLU_test", DEPTHWISE_FUSED, {"b0": IMAGE}, "TEST"),
    layer_case("DepthwiseConvolution", "convolution_param { num_output: 4 group: 4 kernel_size: 3 pad: 1 }", IMAGE),
    layer_case("EltwiseAccuracy", "eltwise_accuracy_param { top_k: 2 }", IMAGE, LABELS, classes=4),
    layer_case("EuclideanDistance", "", (BATCH, 6), (BATCH, 6)),
    layer_case("HardSigmoid", "", IMAGE),
    layer_case("HardSwish", "", IMAGE),
    layer_case("Interp", "interp_param { zoom_factor: 2 pad_beg: -1 }", IMAGE, name="zoom"),
    layer_case("Interp", "interp_param { shrink_factor: 2 }", IMAGE, name="shrink"),
    layer_case("Interp", "interp_param { height: 7 width: 3 }", IMAGE, name="size"),
    layer_case("MultiStageMeanfield", MEANFIELD_PARAM, IMAGE, IMAGE, (BATCH, 3, 5, 6)),
    layer_case("Padding", "padding_param { pad_beg: 2 pad_end: -1 }", IMAGE),
    layer_case("ReLU6", "relu6_param { negative_slope: 0.1 }", IMAGE),
    layer_case("SeLu", "", IMAGE),
    layer_case("SeLuDropout", "", IMAGE, name="train", random=True),
    layer_case("SeLuDropout", "", IMAGE, name="test", phase="TEST"),
    layer_case("SegAccuracy", "", IMAGE, LABELS, classes=4),
    layer_case(
        "SegAccuracy", "seg_accuracy_param { reset: false ignore_label: 3 }", IMAGE, LABELS, classes=4, name="kept"
    ),
    layer_case("ShuffleChannel", "shuffle_channel_param { group: 2 }", IMAGE),
    layer_case("SpatialDropout", "", IMAGE, name="train", random=True),
    layer_case("SpatialDropout", "", IMAGE, name="test", phase="TEST"),
    layer_case("SpatialSoftmax", "spatial_softmax_param { temperature: 2 }", IMAGE),
    layer_case(
        "Unpooling",
        "unpooling_param { unpool_h: 10 unpool_w: 12 }",
        IMAGE,
        IMAGE,
        samplers={"b1": draw_pooling_indices},
    ),
    layer_case(
        "Unpooling", "unpooling_param { kernel_size: 2 stride: 2 unpool_h: 10 unpool_w: 12 }", IMAGE, name="no_mask"
    ),
    *(
        layer_case(
            "Unpooling",
            f"unpooling_param {{ unpool: {method} kernel_size: 3 stride: 2 unpool_h: 11 unpool_w: 13 }}",
            IMAGE,
            name=method,
        )
        for method in ("AVE", "TILE")
    ),
    layer_case(
        "Upsample", "upsample_param { scale: 2 }", IMAGE, IMAGE, name="segnet", samplers={"b1": draw_pooling_indices}
    ),
    layer_case("Upsample", "upsample_param { scale: 2 }", IMAGE, name="yolo"),
    layer_case("WeightedEuclideanLoss", "", (BATCH, 3), (BATCH, 3), (BATCH, 3, 3)),
]
