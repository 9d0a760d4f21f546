"""`Solver` with an optax transformation of the user's: Caffe's loop and snapshots, its numbers, and refused states."""

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import caffejax

NET = """
layer { name: "x" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } } }
layer { name: "first" type: "InnerProduct" bottom: "x" top: "h" param { lr_mult: 0 } param { lr_mult: 0 }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 1 } } }
layer { name: "drop" type: "Dropout" bottom: "h" top: "h" }
layer { name: "a/second" type: "InnerProduct" bottom: "h" top: "y"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""
OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "adamw": lambda: optax.adamw(optax.cosine_decay_schedule(0.1, 20), weight_decay=0.1),
    "sgd": lambda: optax.sgd(0.1),
    "noise": lambda: optax.chain(
        optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.add_decayed_weights(0.1), optax.sgd(0.1)
    ),
    "schedule-free": lambda: optax.contrib.schedule_free_sgd(0.1),
    "hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "MultiSteps": lambda: optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(),
    "plateau": lambda: optax.chain(optax.adam(0.1), optax.contrib.reduce_on_plateau(patience=2)),
}
N = 8


def draw_data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(N * 4, 3)).astype("f"), "t": rng.normal(size=(N * 4, 2)).astype("f")}


def make_solver(folder: Path, settings: str = "", **options: Any) -> caffejax.Solver:
    text = f'net_param {{ {NET} }} random_seed: 1 snapshot_prefix: "{folder / "s"}" max_iter: 50 {settings}'
    return caffejax.Solver(text, data=draw_data(), **options)


def assert_equal(actual: Any, expected: Any, rtol: float = 0) -> None:
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert_allclose(a, b, rtol=rtol, atol=rtol)


# -- numbers


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_trains_as_a_loop_of_optax_and_keeps_frozen_params(name: str, tmp_path: Path) -> None:
    solver, tx = make_solver(tmp_path, optimizer=OPTIMIZERS[name]()), OPTIMIZERS[name]()
    net, start = solver.net, solver.train_state
    params, key = jax.tree.map(jnp.copy, start.params), jnp.copy(start.key)
    first, opt_state = params, tx.init(params)
    data = {blob: array.reshape(N, 4, -1) for blob, array in draw_data().items()}
    for i in range(N):
        batch = {blob: array[i] for blob, array in data.items()}
        loss, grads = jax.value_and_grad(
            lambda p, i=i, batch=batch: net.loss(p, {}, batch, caffejax.iteration_key(key, i))[0]
        )(params)
        extra = {"value": loss} if name == "plateau" else {}
        updates, opt_state = tx.update(grads, opt_state, params, **extra)
        params = optax.apply_updates(params, updates) | {"first": first["first"]}
        solver.step(1)
        assert_allclose(solver.smoothed_loss, loss, rtol=1e-5)
    assert_equal(solver.train_state.params, params, rtol=1e-5)
    assert_equal(solver.train_state.params["first"], first["first"])  # to the bit
    solver.close()


def test_iter_size_gives_it_the_mean(tmp_path: Path) -> None:
    """Three passes over one batch are one pass, without Dropout."""
    net = NET.replace('layer { name: "drop" type: "Dropout" bottom: "h" top: "h" }', "")
    params: list[Any] = []
    for n in (1, 3):
        solver = caffejax.Solver(
            f"net_param {{ {net} }} random_seed: 1 max_iter: 9 iter_size: {n}",
            data={blob: np.tile(array[:4], (n, 1)) for blob, array in draw_data().items()},
            optimizer=optax.sgd(0.1),
        )
        solver.step(2)
        params.append(solver.train_state.params)
        solver.close()
    assert_equal(params[1], params[0], rtol=1e-6)


def test_steps_that_are_dispatched_together_are_the_same(tmp_path: Path) -> None:
    alone, together = (make_solver(tmp_path, optimizer=optax.adam(0.1), steps_per_dispatch=n) for n in (1, 4))
    for solver in (alone, together):
        solver.step(8)
        solver.close()
    assert_equal(together.train_state.replace(key=0), alone.train_state.replace(key=0), rtol=1e-6)


# -- snapshots


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_resumes_to_the_bit(name: str, tmp_path: Path) -> None:
    solver = make_solver(tmp_path, "snapshot: 3", optimizer=OPTIMIZERS[name]())
    solver.step(6)
    solver.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.orbax", "s_iter_3.caffemodel", "s_iter_6.caffemodel"]
    resumed = make_solver(tmp_path, optimizer=OPTIMIZERS[name](), resume=tmp_path / "s.orbax" / "3")
    assert resumed.iteration == 3
    resumed.step(3)
    assert str(jax.tree.structure(resumed.train_state)) == str(jax.tree.structure(solver.train_state))
    for a, b in zip(*(jax.tree.leaves(s.train_state.replace(key=0)) for s in (resumed, solver)), strict=True):
        assert_array_equal(a, b)
    resumed.close()


def test_a_state_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    caffe = make_solver(tmp_path / "caffe", 'type: "Adam" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9')
    adam = make_solver(tmp_path / "adam", optimizer=optax.adam(0.1))
    for solver in (caffe, adam):
        solver.snapshot()
    sgd = make_solver(tmp_path / "sgd", optimizer=optax.sgd(0.1, momentum=0.9))
    for solver, path, message in (
        (sgd, "adam/s.orbax", "the state is that of another optax transformation"),
        (sgd, "caffe/s.orbax", "this is the state of type Adam, but the solver's type is optax"),
        (sgd, "caffe/s_iter_0.solverstate", "this is the state of type Adam, but the solver's type is optax"),
        (caffe, "adam/s.orbax", "this is the state of type optax, but the solver's type is Adam.*the same optimizer="),
    ):
        with pytest.raises(
            caffejax.WeightsError, match=message.replace("the state is", "its optimizer state is")
        ) as info:
            solver.restore(tmp_path / path)
        (problem,) = info.value.problems
        assert problem.file == str(tmp_path / path)
        assert "weights=" in problem.message
    with pytest.raises(caffejax.SolverError, match="of type Adam, but the solver's type is optax"):
        sgd.train_state = caffe.train_state
    with pytest.raises(caffejax.SolverError, match="optimizer state belongs to a different"):
        sgd.train_state = adam.train_state
    for solver in (caffe, adam, sgd):
        solver.close()


def test_a_solverstate_of_caffe_is_refused(tmp_path: Path) -> None:
    """It names no rule."""
    from caffejax.core.checkpoints.solverstate import SolverState, write_solverstate

    solver = make_solver(tmp_path, optimizer=optax.sgd(0.1))
    write_solverstate(str(tmp_path / "c_iter_2.solverstate"), SolverState(2, "", ()))
    with pytest.raises(
        caffejax.WeightsError, match=r"rule of Caffe's, and this solver has another.*c_iter_2.caffemodel"
    ):
        solver.restore(tmp_path / "c_iter_2.solverstate")
    solver.close()


def test_a_train_state_of_another_rule_is_refused_and_both_are_named(tmp_path: Path) -> None:
    """With as many slots: SGD's velocity is no mean of squares."""
    solvers = {
        rule: make_solver(tmp_path / rule, f'type: "{rule}" base_lr: 0.1 lr_policy: "fixed"')
        for rule in ("SGD", "Nesterov", "RMSProp")
    }
    with pytest.raises(caffejax.SolverError, match=r"of type SGD, but the solver's type is RMSProp"):
        solvers["RMSProp"].train_state = solvers["SGD"].train_state
    solvers["SGD"].step(3)
    solvers["Nesterov"].train_state = jax.tree.map(jnp.copy, solvers["SGD"].train_state)  # both store the same
    solvers["Nesterov"].step(1)
    assert solvers["Nesterov"].iteration == 4
    assert solvers["Nesterov"].train_state.rule == "Nesterov"
    unnamed = solvers["SGD"].train_state.replace(rule="", iteration=jnp.int32(7))
    solvers["SGD"].train_state = unnamed
    solvers["SGD"].step(1)
    assert int(solvers["SGD"].train_state.opt_state.count) == 8  # the count follows the iteration
    for solver in solvers.values():
        solver.close()


# -- settings and messages


def test_one_warning_names_the_settings_that_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = (
        'type: "Adam" base_lr: 0.1 momentum: 0.9 weight_decay: 0.1 lr_policy: "stepp" clip_gradients: 1 display: 1'
    )
    with caplog.at_level("INFO", "caffejax"):
        solver = make_solver(tmp_path, settings, optimizer=optax.sgd(0.1))
        metrics = caffejax.JsonLines(tmp_path / "metrics.jsonl")
        solver.callbacks.append(metrics)
        metrics.on_start(solver)
        solver.step(2)
        metrics.on_end(solver, None)
        solver.snapshot()
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == [
        "the option optimizer replaces these settings, which only lr_schedule reads: "
        "type, momentum, weight_decay, clip_gradients, base_lr, lr_policy"
    ]
    assert not any("lr = " in message or "Learning Rate" in message for message in caplog.messages)
    assert any("No .solverstate is written" in message for message in caplog.messages)
    assert np.isnan(solver.rate)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [("loss" in line, "lr" in line) for line in lines if line["event"] == "train"] == [(True, False)] * 2
    assert "optax; iteration 2 of 50" in repr(solver)
    solver.close()


def test_optax_is_no_type_of_a_prototxt(tmp_path: Path) -> None:
    with pytest.raises(caffejax.SolverError, match="unknown solver type 'optax'"):
        make_solver(tmp_path, 'type: "optax" base_lr: 0.1 lr_policy: "fixed"')


def test_what_is_no_transformation_is_refused(tmp_path: Path) -> None:
    steps: Any = optax.MultiSteps(optax.sgd(0.1), 2)
    for optimizer, message in (
        (steps, r"not MultiSteps; pass optimizer=MultiSteps\(\.\.\.\)\.gradient_transformation\(\)"),
        ("adam", r"optimizer must be an optax transformation, not str; such as optax\.adam\(1e-3\)"),
        (optax.adam, "not function"),
    ):
        with pytest.raises(caffejax.SolverError, match=message):
            make_solver(tmp_path, optimizer=optimizer)


def test_options_that_do_not_exist_are_answered_by_a_suggestion_or_a_list(tmp_path: Path) -> None:
    for name, answer in (
        ("optimiser", "did you mean 'optimizer'"),
        ("qqqq", "the options are .*checkpoint_only.*optimizer"),
    ):
        with pytest.raises(caffejax.CaffejaxError, match=f"there is no option '{name}'.*{answer}"):
            make_solver(tmp_path, "", **{name: 1})


# -- several devices

LARGE_NET = """
layer { name: "x" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "h"
  inner_product_param { num_output: 400 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "h" top: "h2"
  inner_product_param { num_output: 400 weight_filler { type: "xavier" } } }
layer { name: "c" type: "InnerProduct" bottom: "h2" top: "y"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""


def train_on_two_devices(folder: Path, shard: Any) -> tuple[bool, list[Any]]:
    """Return whether a moment of Adam is sharded, and params of two devices and of one that continues a snapshot."""
    text = f'net_param {{ {LARGE_NET} }} random_seed: 1 snapshot_prefix: "{folder / "s"}" max_iter: 9'
    options = {"data": draw_data(), "optimizer": optax.adam(0.01)}
    two = caffejax.Solver(text, devices=2, parallel=caffejax.Parallel(batch="global", shard=shard), **options)
    two.step(3)
    two.snapshot()
    leaves = jax.tree_util.tree_leaves_with_path(two._updater.sharded_state[0].opt_state)
    (moment,) = [x for path, x in leaves if ".mu" in jax.tree_util.keystr(path) and x.size == 400 * 400]
    two.step(2)
    one = caffejax.Solver(text, resume=folder / "s.orbax", **options)
    one.step(2)
    results = [jax.tree.map(np.asarray, solver.train_state.params) for solver in (two, one)]
    for solver in (two, one):
        solver.close()
    return not moment.is_fully_replicated, results


@pytest.mark.parametrize("shard", ["none", "optimizer", "params"])
def test_several_devices_shard_its_state(eight_devices: ProcessPoolExecutor, shard: str, tmp_path: Path) -> None:
    """The arrays that belong to params are sharded as Caffe's history is, and one device continues the snapshot."""
    is_sharded, (two, one) = eight_devices.submit(train_on_two_devices, tmp_path, shard).result()
    assert is_sharded == (shard != "none")
    for a, b in zip(jax.tree.leaves(two), jax.tree.leaves(one), strict=True):
        assert_allclose(a, b, rtol=1e-4, atol=1e-5)
