"""Nets with host layers: segments, forward and backward passes, and the number of compilations."""

import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.program.net import Net
from caffejax.core.solver import Solver

ROWS = 16
BODY = """
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
%s
layer { name: "ip2" type: "InnerProduct" bottom: "kept" top: "ip2"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "ip2" top: "ip2" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "kept_label" top: "loss"
  propagate_down: true propagate_down: false }
"""
FILTER = """layer { name: "filter" type: "Filter" bottom: "ip1" bottom: "label" bottom: "keep"
  top: "kept" top: "kept_label" }"""
INPUTS = f"""layer {{ name: "in" type: "Input" top: "data" top: "label" top: "keep" input_param {{
  shape {{ dim: {ROWS} dim: 4 }} shape {{ dim: {ROWS} }} shape {{ dim: {ROWS} }} }} }}"""
FILTERED = INPUTS + BODY % FILTER
PLAIN = INPUTS.replace("data", "all").replace('"keep"', '"unused"') + BODY % ""


def make_batch(row_count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(row_count)
    keep = np.zeros(ROWS, np.float32)
    keep[rng.permutation(ROWS)[:row_count]] = 1
    return {
        "data": rng.normal(size=(ROWS, 4)).astype(np.float32),
        "label": rng.integers(0, 3, ROWS).astype(np.float32),
        "keep": keep,
    }


def compute_reference_loss(params: Any, inputs: dict[str, np.ndarray]) -> jax.Array:
    """The same loss on the rows that pass."""
    rows = np.flatnonzero(inputs["keep"])
    (w1, b1), (w2, b2) = ((params[layer]["weight"], params[layer]["bias"]) for layer in ("ip1", "ip2"))
    scores = jnp.tanh(jnp.maximum(inputs["data"][rows] @ w1.T + b1, 0) @ w2.T + b2)
    labels = inputs["label"][rows].astype(int)
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(len(rows)), labels])


@pytest.mark.parametrize("row_count", [1, 5, ROWS])
def test_loss_and_gradients_use_only_the_filtered_rows(row_count: int) -> None:
    net = Net(FILTERED, "TRAIN")
    params, state = net.init(jax.random.key(0))
    inputs = make_batch(row_count)
    (loss, _), grads = jax.value_and_grad(net.loss, has_aux=True)(params, state, inputs)
    expected, expected_grads = jax.value_and_grad(compute_reference_loss)(params, inputs)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), grads, expected_grads)


def test_loss_and_gradients_are_zero_if_no_row_is_left() -> None:
    net = Net(FILTERED, "TRAIN")
    params, state = net.init(jax.random.key(0))
    inputs = make_batch(0)
    (loss, _), grads = jax.value_and_grad(net.loss, has_aux=True)(params, state, inputs)
    assert loss == 0
    assert all(not np.any(g) for g in jax.tree.leaves(grads))
    values, _ = net.forward(params, state, inputs, blobs=("ip2",))
    assert values["ip2"].shape == (0, 3)


def test_compilations_are_bounded_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    net = Net(FILTERED, "TRAIN")
    params, state = net.init(jax.random.key(0))
    with caplog.at_level(logging.INFO, logger="caffejax"):
        for row_count in range(ROWS + 1):
            values, _ = net.forward(params, state, make_batch(row_count), blobs=("ip2",))
            assert values["ip2"].shape == (row_count, 3)
    messages = [r.getMessage() for r in caplog.records]
    padded_messages = [m for m in messages if "up to" in m]
    assert len(padded_messages) == 5  # 1, 2, 4, 8, 16 rows
    assert padded_messages[-1] == "Compiling layers ip2 .. tanh for up to 16 rows (5 sizes so far)"
    other_messages = [
        m for m in messages if m not in padded_messages
    ]  # a loss depends on all rows, so it cannot be padded
    assert len(other_messages) == ROWS
    assert all(m.startswith("Compiling layers loss .. loss for ") for m in other_messages)
    assert other_messages[-1].endswith(f"({ROWS + 1} shapes so far)")


def test_a_net_with_host_layers_trains(tmp_path: Path) -> None:
    data_layer = """layer { name: "in" type: "DummyData" top: "data" top: "label" top: "keep" dummy_data_param {
      shape { dim: 8 dim: 4 } shape { dim: 8 } shape { dim: 8 } data_filler { type: "gaussian" }
      data_filler { type: "constant" value: 1 } data_filler { type: "uniform" min: -0.5 max: 1.4 } } }"""
    floor = (
        """layer { name: "floor" type: "Threshold" bottom: "keep" top: "passed" threshold_param { threshold: 0 } }"""
    )
    net = data_layer + floor + (BODY % FILTER).replace('bottom: "keep"', 'bottom: "passed"')
    solver = Solver(
        f'net_param {{ {net} }} base_lr: 0.5 lr_policy: "fixed" momentum: 0.9 iter_size: 2 random_seed: 1 '
        f'max_iter: 20 snapshot_prefix: "{tmp_path}/x"'
    )
    solver.step(1)
    first_loss = solver.smoothed_loss
    solver.step(15)
    assert solver.smoothed_loss < first_loss / 2
    solver.close()


def test_perturbations_are_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    net, inputs = Net(FILTERED, "TRAIN"), make_batch(5)
    params, state = net.init(jax.random.key(0))

    def compute_diff() -> jax.Array:
        return jax.grad(lambda x: net.loss(params, state, inputs, perturbations={"ip1": x})[0])(jnp.zeros((ROWS, 6)))

    first_diff = compute_diff()
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(compute_diff(), first_diff)
    assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
