"""Recurrent layers: program size for any sequence length, sequence breaks, and state kept between forward passes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from caffejax.base.variables import Variables
from caffejax.core.checkpoints.load_save import load_weights, save_weights
from caffejax.core.parallel.mesh import one_device_mesh
from caffejax.core.program.net import Net
from caffejax.core.solver.evaluate import Evaluator
from layer_nets import net_text
from layer_suite import BATCH, layer_case, properties, recorded

GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'

test_recorded = recorded("LSTM", "LSTMUnit", "RNN")
test_properties = properties(
    layer_case("LSTM", f"recurrent_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, BATCH, 5), (4, BATCH)),
    layer_case("LSTMUnit", "", (1, BATCH, 3), (1, BATCH, 12), (1, BATCH), tops=2),
    layer_case("RNN", f"recurrent_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, BATCH, 5), (4, BATCH)),
)

N, FEATURES, SIZE = 2, 3, 4
PARAM = (
    f"recurrent_param {{ num_output: {SIZE} %s "
    'weight_filler { type: "uniform" min: -1 max: 1 } bias_filler { type: "uniform" min: -1 max: 1 } }'
)


def add_force_backward(*args: Any) -> str:
    return "force_backward: true\n" + net_text(*args)


def make_recurrent_net(layer_type: str, length: int, backward: Any = "autodiff") -> Net:
    return Net(
        add_force_backward(layer_type, PARAM % "", [(length, N, FEATURES), (length, N)]), "TRAIN", backward=backward
    )


def draw_inputs(length: int, seed: int = 0) -> dict[str, jax.Array]:
    x = jax.random.normal(jax.random.key(seed), (length, N, FEATURES))
    return {"b0": x, "b1": jnp.ones((length, N)).at[0].set(0)}


def count_equations(jaxpr: Any) -> int:
    inner = (jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns)
    return len(jaxpr.eqns) + sum(count_equations(j) for js in inner for j in js)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("layer_type", ["LSTM", "RNN"])
def test_program_size_does_not_depend_on_the_sequence_length(layer_type: str, backward: str) -> None:
    def count_loss_equations(length: int) -> int:
        model = make_recurrent_net(layer_type, length, backward)
        params, state = model.init(jax.random.key(0))

        def loss(params: Any, x: Any) -> jax.Array:
            return jnp.sum(model.apply(params, state, x)[0]["t0"])

        return count_equations(jax.make_jaxpr(jax.grad(loss))(params, draw_inputs(length)).jaxpr)

    assert count_loss_equations(2) == count_loss_equations(100)


@pytest.mark.parametrize("layer_type", ["LSTM", "RNN"])
def test_sequence_in_two_passes_equals_one_pass(layer_type: str) -> None:
    model = make_recurrent_net(layer_type, 6)
    params, state = model.init(jax.random.key(0))
    x = draw_inputs(6)
    full_tops, _ = model.apply(params, state, x)
    first_tops, state = model.apply(params, state, {k: v[:4] for k, v in x.items()})
    second_tops, _ = model.apply(params, state, {k: v[4:] for k, v in x.items()})
    np.testing.assert_allclose(np.concatenate([first_tops["t0"], second_tops["t0"]]), full_tops["t0"], rtol=1e-5)


@pytest.mark.parametrize("layer_type", ["LSTM", "RNN"])
def test_cont_0_resets_the_state_of_one_stream(layer_type: str) -> None:
    model = make_recurrent_net(layer_type, 6)
    variables = model.init(jax.random.key(0))
    x = draw_inputs(6)
    interrupted_inputs = {**x, "b1": x["b1"].at[3, 0].set(0)}
    continued_top, interrupted_top = (model.apply(*variables, i)[0]["t0"] for i in (x, interrupted_inputs))
    suffix_top = model.apply(*variables, {k: v[3:] for k, v in interrupted_inputs.items()})[0]["t0"]
    np.testing.assert_allclose(interrupted_top[:3], continued_top[:3], rtol=1e-5)
    np.testing.assert_allclose(interrupted_top[3:, 0], suffix_top[:, 0], rtol=1e-5)
    np.testing.assert_allclose(interrupted_top[:, 1], continued_top[:, 1], rtol=1e-5)
    assert np.abs(interrupted_top[3:, 0] - continued_top[3:, 0]).max() > 1e-3


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("layer_type", ["LSTM", "RNN"])
def test_gradient_does_not_reach_the_previous_pass(layer_type: str, backward: str) -> None:
    model = make_recurrent_net(layer_type, 3, backward)
    params, state = model.init(jax.random.key(0))
    x = {**draw_inputs(3), "b1": jnp.ones((3, N))}

    def compute_second_loss(x_before: jax.Array) -> jax.Array:
        _, new_state = model.apply(params, state, {**x, "b0": x_before})
        return jnp.sum(model.apply(params, new_state, x)[0]["t0"])

    assert not np.any(jax.grad(compute_second_loss)(x["b0"]))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_exposed_state_starts_and_ends_the_sequence(backward: Any) -> None:
    shapes = [(4, N, FEATURES), (4, N), (1, N, SIZE), (1, N, SIZE)]
    net = Net(add_force_backward("LSTM", PARAM % "expose_hidden: true", shapes, 3), "TRAIN", backward=backward)
    params, state = net.init(jax.random.key(0))
    assert not state
    x = {"b0": draw_inputs(4)["b0"], "b1": jnp.ones((4, N))}
    zero_state = jnp.zeros((1, N, SIZE))
    top_names = ["t0", "t1", "t2"]

    def run(start: int, end: int, h: jax.Array, c: jax.Array) -> Any:
        steps = {k: v[start:end] for k, v in x.items()}
        return net.apply(params, state, {**steps, "b2": h, "b3": c}, blobs=top_names)[0]

    full_tops, first_tops = run(0, 4, zero_state, zero_state), run(0, 2, zero_state, zero_state)
    second_tops = run(2, 4, first_tops["t1"], first_tops["t2"])
    np.testing.assert_allclose(second_tops["t0"], full_tops["t0"][2:], rtol=1e-5)
    for top in ("t1", "t2"):
        np.testing.assert_allclose(second_tops[top], full_tops[top], rtol=1e-5)
    assert not np.any(jax.grad(lambda h: jnp.sum(run(0, 4, h, h)["t0"]))(zero_state + 1))
    np.testing.assert_array_equal(full_tops["t0"][-1:], full_tops["t1"])


@pytest.mark.parametrize(("layer_type", "n_blobs", "n_states"), [("LSTM", 3, 2), ("RNN", 5, 1)])
def test_recurrent_state_is_not_a_blob_and_not_in_weight_files(
    layer_type: str, n_blobs: int, n_states: int, tmp_path: Path
) -> None:
    model = make_recurrent_net(layer_type, 3)
    assert len(model.graph.params) == len(model.graph.unique_params) == n_blobs
    params, state = model.init(jax.random.key(0))
    assert [list(params["layer"]), list(state["layer"])] == [
        [p.slot.name for p in model.graph.params],
        ["carried_hidden", "carried_cell"][:n_states],
    ]
    _, state = model.apply(params, state, draw_inputs(3))
    save_weights(tmp_path / "w.caffemodel", model.graph, Variables(params, state))
    initial = model.init(jax.random.key(1))
    loaded = load_weights(tmp_path / "w.caffemodel", model.graph, initial)
    for loaded_blob, saved_blob in zip(loaded.params["layer"].values(), params["layer"].values(), strict=True):
        np.testing.assert_array_equal(loaded_blob, saved_blob)
    assert not any(np.any(s) for s in jax.tree.leaves(loaded.state))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("layer_type", ["LSTM", "RNN"])
def test_recurrent_state_keeps_its_dtype(layer_type: str, dtype: Any) -> None:
    model = make_recurrent_net(layer_type, 3)
    params, state = model.init(jax.random.key(0))
    x = jax.tree.map(lambda a: a.astype(dtype), draw_inputs(3))
    tops, new_state = model.apply(jax.tree.map(lambda a: a.astype(dtype), params), state, x)
    assert tops["t0"].dtype == dtype
    assert jax.tree.map(jnp.result_type, new_state) == jax.tree.map(jnp.result_type, state)


def test_wrong_number_of_streams_is_refused() -> None:
    model = make_recurrent_net("LSTM", 3)
    variables = model.init(jax.random.key(0))
    x = {"b0": jnp.ones((3, 5, FEATURES)), "b1": jnp.ones((3, 5))}
    with pytest.raises(Exception, match="the bottoms have 5 streams, but the recurrent state has 2"):
        model.apply(*variables, x)


def test_force_backward_skips_cont() -> None:
    graph = make_recurrent_net("LSTM", 3).graph
    assert graph.layer("layer").bottom_need_backward == (True, False)
    graph.check_backward()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_forget_gate_gradient_with_fractional_cont_equals_caffe(backward: Any) -> None:
    net = Net(add_force_backward("LSTMUnit", "", [(1, 1, 1), (1, 1, 4), (1, 1)], 2), backward=backward)
    x = {"b0": jnp.full((1, 1, 1), 2.0), "b1": jnp.zeros((1, 1, 4)), "b2": jnp.full((1, 1), 0.5)}
    compute_cell = lambda gates: net.apply({}, {}, {**x, "b1": gates}, blobs=["t0"])[0]["t0"].sum()  # noqa: E731
    f = 0.5 * 0.5  # cont times the sigmoid of 0
    np.testing.assert_allclose(jax.grad(compute_cell)(x["b1"])[0, 0, 1], 2.0 * f * (1 - f), rtol=1e-5)


def test_test_net_continues_from_the_state_of_its_last_test() -> None:
    ones = 'data_filler { type: "constant" value: 1 }'
    text = f"""
    layer {{ name: "data" type: "DummyData" top: "x" top: "cont" dummy_data_param {{ {ones}
      shape {{ dim: 3 dim: {N} dim: {FEATURES} }} shape {{ dim: 3 dim: {N} }} }} }}
    layer {{ name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "t0" {PARAM % ""} }}
    """
    model = Net(text)
    variables = model.init(jax.random.key(0))
    key = jax.random.key(0)
    first_evaluator, second_evaluator = (Evaluator(model, one_device_mesh(jax.devices()[0])) for _ in range(2))
    mean_output = first_evaluator(variables, 2, key).outputs["t0"]
    outputs = [second_evaluator(variables, 1, key).outputs["t0"] for _ in range(2)]
    np.testing.assert_allclose(np.mean(outputs, axis=0), mean_output, rtol=1e-6)
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4
