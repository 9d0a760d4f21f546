"""Tests of ConvolutionDepthwise, DepthwiseConvolution and Convolution."""

from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, net_text
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


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


def test_convolution_depthwise_equals_single_channel_convolutions() -> None:
    net = Net(
        net_text("ConvolutionDepthwise", "convolution_param { kernel_size: 3 pad: 1 bias_term: false }", [IMAGE_SHAPE])
    )
    weight, x = draw_normal(4, 1, 3, 3), draw_normal(*IMAGE_SHAPE)
    result = net.apply({"layer": {"weight": weight}}, {}, {"b0": x})[0]["t0"]
    single_channel_net = Net(
        net_text(
            "Convolution", "convolution_param { num_output: 1 kernel_size: 3 pad: 1 bias_term: false }", [(2, 1, 5, 6)]
        )
    )
    for c in range(4):
        expected = single_channel_net.apply({"layer": {"weight": weight[c : c + 1]}}, {}, {"b0": x[:, c : c + 1]})[0][
            "t0"
        ]
        np.testing.assert_allclose(result[:, c : c + 1], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("ConvolutionDepthwise", "convolution_param { kernel_size: 3 }", [(2, 4)], "needs a bottom with 4 axes"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
