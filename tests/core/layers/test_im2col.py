"""Tests of Im2col."""

import numpy as np

from layer_nets import run_layer
from layer_suite import IMAGE, layer_case, properties, recorded

test_recorded = recorded("Im2col")
test_properties = properties(
    layer_case("Im2col", "convolution_param { kernel_size: 3 stride: 2 pad: 1 }", IMAGE),
)


def test_im2col_of_all_axes() -> None:
    (top,) = run_layer("Im2col", "convolution_param { axis: 0 kernel_size: 2 stride: 2 }", np.ones((2, 3, 4)))
    assert top.shape == (8, 1, 2)
