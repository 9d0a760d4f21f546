"""Tests of ReLU6, Mish, HardSigmoid and HardSwish."""

import numpy as np

from layer_nets import first_top, run_layer
from layer_suite import BATCH, MATRIX, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("ReLU6", family="general")
test_properties = fork_properties(
    layer_case("Mish", "", MATRIX),
    layer_case("HardSigmoid", "", MAPS),
    layer_case("HardSwish", "", MAPS),
    layer_case("ReLU6", "relu6_param { negative_slope: 0.1 }", MAPS),
)


def test_mish_of_extreme_numbers() -> None:
    x = np.array([-90.0, -3, -0.1, 0, 2, 90])
    expected = x * np.tanh(np.log1p(np.exp(x)))
    np.testing.assert_allclose(run_layer("Mish", "", x)[0], expected, rtol=1e-6, atol=1e-37)


def test_values_of_hard_swish_hard_sigmoid_and_selu() -> None:
    x = np.array([[-4, -3, -1, 0, 1, 2.5, 3, 4]], np.float32)
    np.testing.assert_allclose(first_top("HSwish", "", x), x * np.clip(x + 3, 0, 6) / 6, rtol=1e-6)
    np.testing.assert_allclose(first_top("HardSigmoid", "", x), np.clip(0.2 * x + 0.5, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(first_top("SeLu", "", x)[0, 0], 1.0507010 * 1.6732632 * np.expm1(-4), rtol=1e-5)
