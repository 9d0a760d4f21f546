"""Tests of Eltwise and Reduction."""

import numpy as np
import pytest

from layer_nets import differentiate_layer
from layer_suite import IMAGE, MATRIX, joint_batches, layer_case, properties, recorded

test_recorded = recorded("Eltwise", "Reduction")
test_properties = properties(
    layer_case("Eltwise", "eltwise_param { coeff: 2 coeff: -1 }", IMAGE, IMAGE, name="sum"),
    layer_case("Eltwise", "eltwise_param { operation: PROD }", IMAGE, IMAGE, IMAGE, name="prod"),
    layer_case("Eltwise", "eltwise_param { operation: MAX }", IMAGE, IMAGE, name="max"),
    layer_case("Reduction", "reduction_param { axis: 1 operation: SUMSQ }", IMAGE, name="rows"),
    layer_case("Reduction", "reduction_param { operation: MEAN }", IMAGE, name="all"),
)
test_joint_batches = joint_batches(
    *(
        layer_case("Reduction", f"reduction_param {{ operation: {name} coeff: 0.3 }}", MATRIX, name=name)
        for name in ("SUM", "ASUM", "SUMSQ", "MEAN")
    )
)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_gradient_of_a_product_with_a_zero_of_eltwise(backward: str) -> None:
    text = "operation: PROD stable_prod_grad: false"
    _, diffs = differentiate_layer("Eltwise", text, [0, 0], [2, 0], [3, 5], backward=backward)
    np.testing.assert_array_equal(diffs, [[6, 0], [0, 0], [0, 0]])


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_gradient_of_equal_maxima_of_eltwise(backward: str) -> None:
    bottoms = [1, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 2]
    _, diffs = differentiate_layer("Eltwise", "operation: MAX", *bottoms, backward=backward)
    np.testing.assert_array_equal(diffs, [[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
