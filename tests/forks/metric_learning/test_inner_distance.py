"""Tests of InnerDistance."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from caffejax.core.solver import Solver
from layer_nets import net_text
from layer_suite import BATCH, LABELS, fork_properties, layer_case, recorded

FILLER = 'weight_filler { type: "gaussian" std: 1 }'

test_recorded = recorded("InnerDistance", family="metric_learning")
test_properties = fork_properties(
    layer_case("InnerDistance", f"inner_distance_param {{ num_output: 3 {FILLER} }}", (BATCH, 4)),
    layer_case(
        "InnerDistance",
        f"inner_distance_param {{ num_output: 4 normalize: true {FILLER} }}",
        (BATCH, 5),
        name="unit",
    ),
    layer_case("InnerDistance", 'inner_distance_param { distance_type: "L1" }', (BATCH, 5), (4, 5), name="l1_bottom"),
    layer_case(
        "InnerDistance", "inner_distance_param { update_center_only: true }", (BATCH, 5), (4, 5), LABELS, name="centers"
    ),
)


RANDOM = np.random.default_rng(0)

WEIGHT_FILLER = 'weight_filler { type: "gaussian" std: 1 }'

INNER_DISTANCE_NET = f"""
layer {{ name: "x" type: "DummyData" top: "x" top: "label" dummy_data_param {{
  shape {{ dim: 5 dim: 4 }} shape {{ dim: 5 }}
  data_filler {{ type: "gaussian" std: 1 }} data_filler {{ value: 1 }} }} }}
layer {{ name: "far" type: "InnerDistance" bottom: "x" top: "far"
  inner_distance_param {{ num_output: 3 normalize: true {WEIGHT_FILLER} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "far" bottom: "label" top: "loss" }}
"""


def test_training_updates_the_weights_that_forward_wrote(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(INNER_DISTANCE_NET)
    solver_text = f'net: "{tmp_path}/net.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 1 random_seed: 1'
    (tmp_path / "solver.prototxt").write_text(solver_text)
    solver = Solver(tmp_path / "solver.prototxt")
    old_weight = np.array(solver.variables.params["far"]["weight"])
    solver.step(1)  # with a rate of 0, all that happens
    new_weight = solver.variables.params["far"]["weight"]
    norm = np.linalg.norm(old_weight, axis=1, keepdims=True)
    assert np.all(np.abs(norm - 1) > 1e-3)
    np.testing.assert_allclose(new_weight, old_weight / norm, rtol=1e-4)


@pytest.mark.parametrize("distance_type", ["L1", "L2"])
def test_update_center_only_updates_only_the_rows_of_the_labels(distance_type: str) -> None:
    x, centers = RANDOM.normal(size=(5, 4)), RANDOM.normal(size=(3, 4))
    labels, d_top = np.array([0, 2, 2, 1, 0]), RANDOM.normal(size=(5, 3)).astype("f")
    differences = x[:, None] - centers
    slope = d_top[:, :, None] * (np.sign(differences) if distance_type == "L1" else 2 * differences)
    d_centers = -np.where((labels[:, None] == np.arange(3))[:, :, None], slope, 0).sum(0)
    text = f'distance_type: "{distance_type}" update_center_only: true'
    for has_params in (True, False):
        shapes = [(5, 4), (5,)] if has_params else [(5, 4), (3, 4), (5,)]
        weight = "num_output: 3 transpose: true" if has_params else ""
        net = Net(net_text("InnerDistance", f"inner_distance_param {{ {weight} {text} }}", shapes))
        params, state = net.init(jax.random.key(0))
        blob = np.float32(centers)
        if has_params:  # the fork's shape, of the same numbers in memory
            assert params["layer"]["weight"].shape == (4, 3)

        def compute_weighted_sum(
            x: Any, blob: Any, has_params: bool = has_params, net: Any = net, state: Any = state
        ) -> Any:
            inputs = {"b0": x, "b1": labels} if has_params else {"b0": x, "b1": blob, "b2": labels}
            inputs = {name: jnp.asarray(value, jnp.float32) for name, value in inputs.items()}
            weights = {"layer": {"weight": blob.reshape(4, 3)}} if has_params else {}
            return jnp.sum(net.apply(weights, state, inputs)[0]["t0"] * d_top)

        np.testing.assert_allclose(
            compute_weighted_sum(np.float32(x), blob),
            np.sum(d_top * (np.abs(differences) if distance_type == "L1" else differences**2).sum(2)),
            rtol=1e-4,
        )
        dx, d_blob = jax.grad(compute_weighted_sum, (0, 1))(np.float32(x), jnp.asarray(blob))
        np.testing.assert_allclose(dx, slope.sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(d_blob, d_centers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("InnerDistance", 'inner_distance_param { distance_type: "L3" }', [(2, 3)], "L1"),
        ("InnerDistance", "", [(2, 3), (4, 2)], "rows of 3 values"),
        ("InnerDistance", "", [(2, 3), (4, 3), (2,)], "only with update_center_only"),
        ("InnerDistance", "inner_distance_param { num_output: 3 update_center_only: true }", [(2, 3), (3,)], "label"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
