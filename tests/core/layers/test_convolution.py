"""Tests of Convolution and Deconvolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from layer_suite import BATCH, IMAGE, Case, layer_case, properties, recorded


def convolution(param: str, *shape: int, name: str) -> Case:
    return layer_case("Convolution", f"convolution_param {{ {param} }}", (BATCH, *shape), name=name)


FUSED_LAYERS = """
  layer { name: "conv" type: "Convolution" bottom: "b0" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 bias_term: false } }
  layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
  layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
"""

test_recorded = recorded("Convolution", "Deconvolution")
test_properties = properties(
    convolution("num_output: 4 kernel_size: 3 pad: 1", 3, 6, 7, name="plain"),
    convolution("num_output: 4 kernel_size: 1", 3, 5, 6, name="pointwise"),
    convolution("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 4", 4, 7, 6, name="depthwise"),
    convolution("num_output: 6 kernel_size: 3 group: 2 bias_term: false", 4, 6, 5, name="grouped"),
    convolution("num_output: 3 kernel_size: 2 stride: 2 dilation: 2 pad: 1", 2, 5, 6, 4, name="strided_dilated_3d"),
    convolution("num_output: 3 kernel_size: 3 stride: 2", 2, 9, name="one_d"),
    Case("Convolution_BatchNorm_Scale_ReLU_train", FUSED_LAYERS, {"b0": (BATCH, 3, 6, 5)}),
    Case("Convolution_BatchNorm_Scale_ReLU_test", FUSED_LAYERS, {"b0": (BATCH, 3, 6, 5)}, "TEST"),
    layer_case("Deconvolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 }", IMAGE),
    layer_case("Deconvolution", "convolution_param { num_output: 6 kernel_size: 2 group: 3 }", IMAGE, name="grouped"),
)


@pytest.mark.parametrize(
    "text",
    [
        "num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2 dilation: 2",
        "num_output: 2 kernel_h: 1 kernel_w: 4 stride_h: 1 stride_w: 3 pad_w: 2",
        "num_output: 2 kernel_size: 2 stride: 3 pad: 3",  # more padding than kernel
    ],
)
def test_deconvolution_equals_the_bottom_gradient_of_convolution(text: str) -> None:
    x = jax.random.normal(jax.random.key(0), (2, 4, 5, 4))
    fields = f'{text} bias_term: false weight_filler {{ type: "gaussian" std: 1 }}'
    deconvolution = caffejax.layer("Deconvolution", fields)
    params = deconvolution.init(jax.random.key(1), x).params
    y = deconvolution(params, x)
    convolution = caffejax.layer("Convolution", fields.replace(f"num_output: {y.shape[1]}", "num_output: 4"))
    _, vjp = jax.vjp(lambda y: convolution(params, y), jnp.zeros_like(y))
    np.testing.assert_allclose(y, vjp(x)[0], rtol=1e-4, atol=1e-5)
