"""Tests of ConvolutionDepthwise, DepthwiseConvolution and Convolution."""

from layer_suite import BATCH, IMAGE, Case, Shape, fork_properties, layer_case, recorded

DILATED = "convolution_param { num_output: 4 kernel_size: 2 hole: 2 }"
MAPS: Shape = (BATCH, 4, 5, 6)
DEPTHWISE_FUSED = """
  layer { name: "conv" type: "ConvolutionDepthwise" bottom: "b0" top: "conv"
    convolution_param { kernel_size: 3 pad: 1 bias_term: false } }
  layer { name: "norm" type: "BN" bottom: "conv" top: "conv" bn_param { slope_filler { value: 1 } } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""

test_recorded = recorded("ConvolutionDepthwise", "DepthwiseConvolution", family="general")
test_properties = fork_properties(
    layer_case("Convolution", DILATED, IMAGE, name="hole"),
    layer_case("ConvolutionDepthwise", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }", MAPS),
    Case("ConvolutionDepthwise_BN_ReLU_train", DEPTHWISE_FUSED, {"b0": MAPS}),
    Case("ConvolutionDepthwise_BN_ReLU_test", DEPTHWISE_FUSED, {"b0": MAPS}, "TEST"),
    layer_case("DepthwiseConvolution", "convolution_param { num_output: 4 group: 4 kernel_size: 3 pad: 1 }", MAPS),
)
