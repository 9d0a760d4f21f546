"""Tests of element-wise layers."""

from typing import Any

import jax
import numpy as np
import pytest

import caffejax
from layer_nets import differentiate_layer
from layer_suite import IMAGE, MATRIX, layer_case, properties, recorded

test_recorded = recorded(
    "AbsVal", "BNLL", "Clip", "ELU", "Exp", "Log", "PReLU", "Power", "ReLU", "Sigmoid", "Swish", "TanH", "Threshold"
)
test_properties = properties(
    layer_case("AbsVal", "", MATRIX),
    layer_case("BNLL", "", MATRIX),
    layer_case("Clip", "clip_param { min: -0.5 max: 0.7 }", MATRIX),
    layer_case("ELU", "elu_param { alpha: 0.5 }", MATRIX),
    layer_case("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", MATRIX),
    layer_case("Log", "log_param { base: 2 }", MATRIX, distribution="positive"),
    layer_case("PReLU", "", IMAGE),
    layer_case("Power", "power_param { power: 2 scale: 0.5 shift: 1 }", MATRIX),
    layer_case("ReLU", "relu_param { negative_slope: 0.1 }", IMAGE),
    layer_case("Sigmoid", "", MATRIX),
    layer_case("Swish", "swish_param { beta: 2 }", MATRIX),
    layer_case("TanH", "", MATRIX),
    layer_case("Threshold", "", MATRIX),
)


@pytest.mark.parametrize("kernels", ["fast", "reference"])
def test_relu_of_negative_numbers_is_0_not_minus_0(kernels: Any) -> None:
    """All recorded cases agree: the formula is max(x, 0) + slope * min(x, 0)."""
    top = caffejax.layer("ReLU", kernels=kernels)(np.array([-1, 2, np.nan], np.float32))
    np.testing.assert_array_equal(top, [0, 2, np.nan])
    assert not np.signbit(top[0])


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize(
    ("layer_type", "text", "x", "y", "dy"),
    [
        ("ELU", "", [1e4, -1e4], [1e4, -1], [1, 0]),
        ("BNLL", "", [1e4, -1e4], [1e4, 0], [1, 0]),
        ("Sigmoid", "", [1e4, -1e4], [1, 0], [0, 0]),
        ("Swish", "", [1e4, -1e4], [1e4, 0], [1, 0]),
        ("Power", "power: 3", [0, -2], [0, -8], [0, 12]),
        ("Power", "power: 2", [0, -2], [0, 4], [0, -4]),
        ("Power", "power: 0", [0, -2], [1, 1], [0, 0]),
        ("Power", "power: 2 shift: 3 scale: 0", [0, np.inf], [9, 9], [0, 0]),
        ("Exp", "base: 2 shift: 200 scale: 100", [-2, -1.99], [1, 2], [69.3147, 138.629]),
        ("Clip", "min: 1 max: -1", [-5, 0], [1, 1], [0, 0]),
    ],
)
def test_extreme_bottoms_give_the_limits(
    layer_type: str, text: str, x: list[float], y: list[float], dy: list[float], backward: str
) -> None:
    tops, diffs = differentiate_layer(layer_type, text, x, backward=backward)
    np.testing.assert_allclose(tops[0], y, rtol=1e-4)
    np.testing.assert_allclose(diffs[0], dy, rtol=1e-4)


@pytest.mark.parametrize(("text", "expected"), [("", [0.25] * 3), ("channel_shared: true filler { value: 2 }", 2)])
def test_initial_slopes_of_prelu(text: str, expected: Any) -> None:
    params = caffejax.layer("PReLU", text).init(jax.random.key(0), (2, 3, 4)).params
    np.testing.assert_array_equal(*params.values(), expected)
