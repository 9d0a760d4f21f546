"""Which bottoms get a gradient, by Caffe's rules for `propagate_down` and `force_backward`."""

from typing import Any

import jax
import numpy as np
import pytest

import caffejax
import caffejax.pycaffe as caffe

NET = """
layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "below" type: "InnerProduct" bottom: "x" top: "h"
  inner_product_param { num_output: 3 weight_filler { type: "constant" value: 2 } } }
layer { name: "above" type: "InnerProduct" bottom: "h" top: "y" propagate_down: false
  inner_product_param { num_output: 4 weight_filler { type: "constant" value: 1 } } }
layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }
"""


@pytest.mark.parametrize(("header", "factor"), [("", 0), ("force_backward: true", 1)])
def test_force_backward_is_stronger_than_propagate_down(header: str, factor: int) -> None:
    x = np.ones((2, 3), np.float32)
    net = caffejax.Net(header + NET, "TRAIN")
    variables = net.init(jax.random.key(0))

    def loss(params: Any, inputs: Any) -> Any:
        return net.loss(params, variables.state, inputs)[0]

    grads, inputs = jax.grad(loss, argnums=(0, 1))(variables.params, {"x": x})
    np.testing.assert_array_equal(inputs["x"], np.full((2, 3), 24 * factor))
    np.testing.assert_array_equal(grads["below"]["weight"], np.full((3, 3), 8 * factor))
    np.testing.assert_array_equal(grads["above"]["bias"], np.full(4, 2))


@pytest.mark.parametrize(("header", "factor"), [("", 0), ("force_backward: true", 1)])
def test_pycaffe_gives_the_same_result(header: str, factor: int) -> None:
    net = caffe.Net(header + NET, caffe.TRAIN)
    net.blobs["x"].data[...] = 1
    net.forward()
    net.backward()
    np.testing.assert_array_equal(net.blobs["x"].diff, np.full((2, 3), 24 * factor))
    np.testing.assert_array_equal(net.blobs["h"].diff, np.full((2, 3), 4 * factor))
    np.testing.assert_array_equal(net.params["below"][0].diff, np.full((3, 3), 8 * factor))


def test_labels_are_not_forced() -> None:
    """SoftmaxWithLoss does not allow it for its labels."""
    net = caffejax.Net(
        'force_backward: true layer { name: "d" type: "Input" top: "x" top: "t" '
        "input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }"
        'layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "t" top: "l" propagate_down: [false, false] }',
        "TRAIN",
    )
    assert net.graph.layer("l").bottom_need_backward == (True, False)
    assert net.graph.layer("l").gradient_stops == (False, True)
