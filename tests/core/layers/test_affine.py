"""Tests of Bias and Scale."""

from typing import Any

import jax
import numpy as np
import pytest

import caffejax
from layer_suite import IMAGE, layer_case, properties, recorded

test_recorded = recorded("Bias", "Scale")
test_properties = properties(
    layer_case("Bias", "bias_param { filler { value: 0.5 } }", IMAGE),
    layer_case("Bias", "", IMAGE, (3,), name="bottom"),
    layer_case("Scale", "scale_param { bias_term: true }", IMAGE),
    layer_case("Scale", "", IMAGE, (3,), name="bottom"),
)


@pytest.mark.parametrize(
    ("layer_type", "text", "expected"),
    [
        ("Bias", "", [[0] * 3]),
        ("Scale", "bias_term: true bias_filler { value: 3 }", [[1] * 3, [3] * 3]),
        ("Scale", "num_axes: 0 filler { value: 2 }", [2]),
    ],
)
def test_initial_values_of_params(layer_type: str, text: str, expected: list[Any]) -> None:
    params = caffejax.layer(layer_type, text).init(jax.random.key(0), (2, 3, 4)).params
    for array, value in zip(params.values(), expected, strict=True):
        np.testing.assert_array_equal(array, value)
