"""Recurrent layers: one step however long the sequence, breaks, state carried between forward passes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from layer_nets import net_text

from caffejax.checkpoints.load_save import load_weights, save_weights
from caffejax.net import Net, Variables
from caffejax.training.evaluate import Evaluator

N, FEATURES, SIZE = 2, 3, 4
PARAM = (
    f"recurrent_param {{ num_output: {SIZE} %s "
    'weight_filler { type: "uniform" min: -1 max: 1 } bias_filler { type: "uniform" min: -1 max: 1 } }'
)


def force_backward(*args: Any) -> str:
    return "force_backward: true\n" + net_text(*args)


def recurrent(kind: str, length: int, backward: Any = "autodiff") -> Net:
    return Net(force_backward(kind, PARAM % "", [(length, N, FEATURES), (length, N)]), "TRAIN", backward=backward)


def inputs(length: int, seed: int = 0) -> dict[str, jax.Array]:
    x = jax.random.normal(jax.random.key(seed), (length, N, FEATURES))
    return {"b0": x, "b1": jnp.ones((length, N)).at[0].set(0)}


def equations(jaxpr: Any) -> int:
    inner = (jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns)
    return len(jaxpr.eqns) + sum(equations(j) for js in inner for j in js)


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_the_program_does_not_grow_with_the_sequence(kind: str, backward: str) -> None:
    def size(length: int) -> int:
        model = recurrent(kind, length, backward)
        params, state = model.init(jax.random.key(0))

        def loss(params: Any, x: Any) -> jax.Array:
            return jnp.sum(model.apply(params, state, x)[0]["t0"])

        return equations(jax.make_jaxpr(jax.grad(loss))(params, inputs(length)).jaxpr)

    assert size(2) == size(100)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_a_sequence_in_two_passes_is_the_sequence(kind: str) -> None:
    model = recurrent(kind, 6)
    params, state = model.init(jax.random.key(0))
    x = inputs(6)
    full_tops, _ = model.apply(params, state, x)
    first, state = model.apply(params, state, {k: v[:4] for k, v in x.items()})
    second, _ = model.apply(params, state, {k: v[4:] for k, v in x.items()})
    np.testing.assert_allclose(np.concatenate([first["t0"], second["t0"]]), full_tops["t0"], rtol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_cont_0_forgets_one_stream_and_not_the_other(kind: str) -> None:
    model = recurrent(kind, 6)
    variables = model.init(jax.random.key(0))
    x = inputs(6)
    interrupted_inputs = {**x, "b1": x["b1"].at[3, 0].set(0)}
    continued_top, interrupted_top = (model.apply(*variables, i)[0]["t0"] for i in (x, interrupted_inputs))
    suffix_top = model.apply(*variables, {k: v[3:] for k, v in interrupted_inputs.items()})[0]["t0"]
    np.testing.assert_allclose(interrupted_top[:3], continued_top[:3], rtol=1e-5)
    np.testing.assert_allclose(interrupted_top[3:, 0], suffix_top[:, 0], rtol=1e-5)
    np.testing.assert_allclose(interrupted_top[:, 1], continued_top[:, 1], rtol=1e-5)
    assert np.abs(interrupted_top[3:, 0] - continued_top[3:, 0]).max() > 1e-3


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_no_gradient_passes_from_one_pass_to_the_one_before(kind: str, backward: str) -> None:
    model = recurrent(kind, 3, backward)
    params, state = model.init(jax.random.key(0))
    x = {**inputs(3), "b1": jnp.ones((3, N))}

    def second_pass(x_before: jax.Array) -> jax.Array:
        _, carried = model.apply(params, state, {**x, "b0": x_before})
        return jnp.sum(model.apply(params, carried, x)[0]["t0"])

    assert not np.any(jax.grad(second_pass)(x["b0"]))


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_exposed_state_starts_and_ends_the_sequence(backward: Any) -> None:
    shapes = [(4, N, FEATURES), (4, N), (1, N, SIZE), (1, N, SIZE)]
    exposed = Net(force_backward("LSTM", PARAM % "expose_hidden: true", shapes, 3), "TRAIN", backward=backward)
    params, state = exposed.init(jax.random.key(0))
    assert not state
    x = {"b0": inputs(4)["b0"], "b1": jnp.ones((4, N))}
    zero = jnp.zeros((1, N, SIZE))
    all_tops = ["t0", "t1", "t2"]

    def run(first: int, last: int, h: jax.Array, c: jax.Array) -> Any:
        part = {k: v[first:last] for k, v in x.items()}
        return exposed.apply(params, state, {**part, "b2": h, "b3": c}, blobs=all_tops)[0]

    full_tops, first = run(0, 4, zero, zero), run(0, 2, zero, zero)
    second = run(2, 4, first["t1"], first["t2"])
    np.testing.assert_allclose(second["t0"], full_tops["t0"][2:], rtol=1e-5)
    for top in ("t1", "t2"):
        np.testing.assert_allclose(second[top], full_tops[top], rtol=1e-5)
    assert not np.any(jax.grad(lambda h: jnp.sum(run(0, 4, h, h)["t0"]))(zero + 1))
    np.testing.assert_array_equal(full_tops["t0"][-1:], full_tops["t1"])


@pytest.mark.parametrize(("kind", "n_blobs", "n_states"), [("LSTM", 3, 2), ("RNN", 5, 1)])
def test_recurrent_state_is_not_a_blob_and_not_in_weight_files(
    kind: str, n_blobs: int, n_states: int, tmp_path: Path
) -> None:
    model = recurrent(kind, 3)
    assert len(model.graph.params) == len(model.graph.unique_params) == n_blobs
    params, state = model.init(jax.random.key(0))
    assert [list(params["layer"]), list(state["layer"])] == [[*range(n_blobs)], [*range(n_blobs, n_blobs + n_states)]]
    _, state = model.apply(params, state, inputs(3))
    save_weights(tmp_path / "w.caffemodel", model.graph, Variables(params, state))
    fresh = model.init(jax.random.key(1))
    loaded = load_weights(tmp_path / "w.caffemodel", model.graph, fresh)
    for mine, theirs in zip(loaded.params["layer"].values(), params["layer"].values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not any(np.any(s) for s in jax.tree.leaves(loaded.state))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_recurrent_state_keeps_its_dtype(kind: str, dtype: Any) -> None:
    model = recurrent(kind, 3)
    params, state = model.init(jax.random.key(0))
    x = jax.tree.map(lambda a: a.astype(dtype), inputs(3))
    tops, new = model.apply(jax.tree.map(lambda a: a.astype(dtype), params), state, x)
    assert tops["t0"].dtype == dtype
    assert jax.tree.map(jnp.result_type, new) == jax.tree.map(jnp.result_type, state)


def test_other_numbers_of_streams_than_remembered_are_refused() -> None:
    model = recurrent("LSTM", 3)
    variables = model.init(jax.random.key(0))
    x = {"b0": jnp.ones((3, 5, FEATURES)), "b1": jnp.ones((3, 5))}
    with pytest.raises(Exception, match="the bottoms have 5 streams, but the recurrent state has 2"):
        model.apply(*variables, x)


def test_forced_gradients_leave_cont_alone() -> None:
    graph = recurrent("LSTM", 3).graph
    assert graph.layer("layer").bottom_need_backward == (True, False)
    graph.check_backward()


@pytest.mark.parametrize("backward", ["autodiff", "rules"])
def test_the_forget_gates_gradient_with_cont_between_0_and_1_is_caffes(backward: Any) -> None:
    unit = Net(force_backward("LSTMUnit", "", [(1, 1, 1), (1, 1, 4), (1, 1)], 2), backward=backward)
    x = {"b0": jnp.full((1, 1, 1), 2.0), "b1": jnp.zeros((1, 1, 4)), "b2": jnp.full((1, 1), 0.5)}
    cell = lambda gates: unit.apply({}, {}, {**x, "b1": gates}, blobs=["t0"])[0]["t0"].sum()  # noqa: E731
    f = 0.5 * 0.5  # cont times the sigmoid of 0
    np.testing.assert_allclose(jax.grad(cell)(x["b1"])[0, 0, 1], 2.0 * f * (1 - f), rtol=1e-5)


def test_a_test_net_goes_on_where_its_last_test_ended() -> None:
    ones = 'data_filler { type: "constant" value: 1 }'
    text = f"""
    layer {{ name: "data" type: "DummyData" top: "x" top: "cont" dummy_data_param {{ {ones}
      shape {{ dim: 3 dim: {N} dim: {FEATURES} }} shape {{ dim: 3 dim: {N} }} }} }}
    layer {{ name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "t0" {PARAM % ""} }}
    """
    model = Net(text)
    variables = model.init(jax.random.key(0))
    key = jax.random.key(0)
    at_once, in_turn = (Evaluator(model, jax.devices()[0]) for _ in range(2))
    both = at_once(variables, 2, key).outputs["t0"]
    singly = [in_turn(variables, 1, key).outputs["t0"] for _ in range(2)]
    np.testing.assert_allclose(np.mean(singly, axis=0), both, rtol=1e-6)
    assert np.abs(singly[0] - singly[1]).max() > 1e-4
