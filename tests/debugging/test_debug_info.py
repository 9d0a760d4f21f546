"""The lines of `debug_info: true` for each layer, compared with plain computations."""

import logging
import re

import jax
import numpy as np
import pytest

from caffejax.training import Solver

SOLVER = """
net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "constant" value: 2 }
    data_filler { type: "constant" value: 1 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
    inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" relu_param { negative_slope: 0.5 } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
}
base_lr: 0.1 lr_policy: "fixed" display: 2 random_seed: 1 debug_info: true
"""


def test_the_log_has_mean_values_and_gradients_of_every_layer(caplog: pytest.LogCaptureFixture) -> None:
    solver = Solver(SOLVER)
    weight, bias = (np.asarray(solver.train_state.params["ip"][i]) for i in (0, 1))
    with caplog.at_level(logging.INFO, logger="caffejax"):
        solver.step(2)
    solver.close()
    lines = [m for r in caplog.records if re.match(r" +\[(Forward|Backward)\]", m := r.getMessage())]
    x, relu_input = np.full((4, 3), 2.0), np.full((4, 3), 2.0) @ weight.T + bias
    relu_output = np.where(relu_input > 0, relu_input, relu_input / 2)
    d_relu_output = (np.asarray(jax.nn.softmax(relu_output)) - np.array([0, 1])) / 4
    d_relu_input = d_relu_output * np.where(relu_input > 0, 1, 0.5)
    d_weight, d_bias = d_relu_input.T @ x, d_relu_input.sum(0)
    values = dict(re.fullmatch(r" +(.*(?:data|diff)): (\S+)", line).groups() for line in lines[:-1])  # type: ignore[union-attr]
    expected = {  # displayed iterations only: 0, not 1
        "[Forward] Layer data, top blob data data": x,
        "[Forward] Layer data, top blob label data": np.ones(4),
        "[Forward] Layer ip, top blob ip data": relu_input,
        "[Forward] Layer ip, param blob 0 data": weight,
        "[Forward] Layer ip, param blob 1 data": bias,
        "[Forward] Layer relu, top blob ip data": relu_output,
        "[Forward] Layer loss, top blob loss data": -np.log(np.asarray(jax.nn.softmax(relu_output))[:, 1]).mean(),
        "[Backward] Layer loss, bottom blob ip diff": d_relu_output,
        "[Backward] Layer relu, bottom blob ip diff": d_relu_input,
        "[Backward] Layer ip, param blob 0 diff": d_weight,
        "[Backward] Layer ip, param blob 1 diff": d_bias,
    }
    assert list(values) == list(expected)
    for name, value in expected.items():
        assert float(values[name]) == pytest.approx(np.abs(value).mean(), rel=1e-4), name
    params_and_gradients = np.concatenate([weight.ravel(), bias]), np.concatenate([d_weight.ravel(), d_bias])
    norms = [float(n) for n in re.findall(r"[\d.e+-]+(?=[,)])", lines[-1].split("norm", 1)[1])]
    sums = [
        np.abs(params_and_gradients[0]).sum(),
        np.abs(params_and_gradients[1]).sum(),
        np.linalg.norm(params_and_gradients[0]),
        np.linalg.norm(params_and_gradients[1]),
    ]
    assert norms == pytest.approx(sums, rel=1e-4)
