"""A user's layer type trains without a hand-written Backward."""

import jax.numpy as jnp
import numpy as np
import pytest

import caffejax
from caffejax import declare
from caffejax.base.errors import GraphError
from caffejax.core.layers import layer_types, register_temporarily

SOLVER = """
base_lr: 0.1 lr_policy: "fixed" random_seed: 1
net_param {
  layer { name: "d" type: "DummyData" top: "x" top: "t" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 } data_filler { value: 1 } data_filler { value: 8 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
    num_output: 1 weight_filler { type: "constant" value: 0.5 } } }
  layer { name: "own" type: "%s" bottom: "ip" top: "y" }
  layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
}
"""


def test_without_a_rule_a_layer_trains_by_autodiff():
    with register_temporarily(declare("TestCube")(lambda x: x**3)):
        solver = caffejax.Solver(SOLVER % "TestCube")
        solver.step(1)
        params = solver.train_state.params["ip"]
        # y = 1.5^3, dL/dy = (y - 8) / 4 for each of 4 rows, dy/dw = 3 * 1.5^2
        step = 0.1 * (1.5**3 - 8) * 3 * 1.5**2
        np.testing.assert_allclose(params["weight"], jnp.full((1, 3), 0.5 - step), rtol=1e-6)
        np.testing.assert_allclose(params["bias"], [-step], rtol=1e-6)
        solver.close()
    assert "TestCube" not in layer_types()


def test_training_a_layer_without_a_backward_pass_is_refused():
    with pytest.raises(GraphError, match=r"'own' \(Threshold\): has no backward pass"):
        caffejax.Solver(SOLVER % "Threshold")
