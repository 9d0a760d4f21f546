"""Training of nets with layers on the host as one program: each runs once a pass, in Caffe's order."""

import logging
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import user_layers
from python_nets import python_layer

from caffejax import CaffejaxError, Loader, Net, Parallel, Solver
from caffejax.base.config import DataShard, NetConfig
from caffejax.core.program.interpreter import CompiledParts
from caffejax.core.solver.host_program import as_one_program

DATA = """layer { name: "data" type: "DummyData" top: "x" top: "target" dummy_data_param {
  shape { dim: 8 dim: 5 } shape { dim: 8 dim: 3 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
"""
INNER_PRODUCT = """layer { name: "%s" type: "InnerProduct" bottom: "x" top: "%s" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
"""
LOSS = """layer { name: "%s" type: "EuclideanLoss" bottom: "%s" bottom: "target" top: "%s" }
"""


def make_solver(folder: Path, net: str, settings: str = "", **options: Any) -> Solver:
    return Solver(
        f'net_param {{ {DATA + net} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 20 '
        f'snapshot_prefix: "{folder / "x"}" {settings}',
        **options,
    )


def forbid_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it an error to train in parts."""
    monkeypatch.setattr(CompiledParts, "__call__", lambda *_: pytest.fail("the net runs in parts"))


def record(name: str, bottom: str, top: str) -> str:
    return python_layer(name, "Recorder", bottom, top, param_str=name)


# two branches without a path from one to the other, and a layer that only writes
BRANCHES = (
    INNER_PRODUCT % ("ip1", "ip1")
    + INNER_PRODUCT % ("ip2", "ip2")
    + record("a", "ip1", "a")
    + record("b", "ip2", "b")
    + record("c", "a", "c")
    + python_layer("writes", "Recorder", "b", param_str="writes")
    + record("d", "b", "d")
    + LOSS % ("loss_c", "c", "loss_c")
    + record("metric", "x", "metric")
    + LOSS % ("loss_d", "d", "loss_d")
)
RECOMPUTE: dict[str, Any] = {"remat": "auto", "memory_limit": 1}
FORWARD = ["a forward", "b forward", "c forward", "writes forward", "d forward", "metric forward"]
BACKWARD = ["d backward", "c backward", "b backward", "a backward"]


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ("", {}),
        ("iter_size: 2", {}),
        ("", {"steps_per_dispatch": 3}),
        ("iter_size: 2", {"steps_per_dispatch": 2}),
        ("iter_size: 2", RECOMPUTE),
    ],
)
def test_layers_run_once_a_pass_in_the_order_of_caffe(
    settings: str, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_parts(monkeypatch)
    monkeypatch.setattr(user_layers, "RECORD", [])
    solver = make_solver(tmp_path, BRANCHES, settings, **options)
    solver.step(6)
    passes = 6 * (2 if settings else 1)
    assert passes * (FORWARD + BACKWARD) == user_layers.RECORD
    solver.close()


def test_training_as_one_program_equals_training_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's numbers are those of the parts, up to rounding."""
    params = []
    for in_parts in (False, True):
        with monkeypatch.context() as patch:
            if in_parts:
                patch.setattr("caffejax.core.solver.host_program.schedule_in_order", lambda graph: None)
            solver = make_solver(tmp_path, BRANCHES, "iter_size: 2 clip_gradients: 5 weight_decay: 0.1")
            solver.step(10)
            params.append(solver.variables.params)
            solver.close()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *params)


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_an_exception_of_a_layer_reaches_the_caller_unchanged_and_leaves_the_state(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_parts(monkeypatch)
    solver = make_solver(tmp_path, INNER_PRODUCT % ("ip", "ip") + record("a", "ip", "a") + LOSS % ("loss", "a", "loss"))
    solver.step(2)
    before = jax.tree.map(np.array, solver.variables.params)

    def fail(*_: Any) -> None:
        raise ConnectionError("the camera is unplugged")

    with monkeypatch.context() as patch:
        patch.setattr(user_layers.Recorder, method, fail)
        with pytest.raises(ConnectionError, match="the camera is unplugged") as exc_info:
            solver.step(1)
    assert exc_info.value.__notes__[0] == f"in layer 'a' (Python): user_layers.Recorder.{method}"
    jax.tree.map(np.testing.assert_array_equal, solver.variables.params, before)
    solver.step(2)
    assert solver.iteration == 4
    solver.close()


def test_a_layer_whose_tops_change_their_shape_trains_in_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shape that forward sets behind the solver's back: from there on, training runs in parts."""
    net = INNER_PRODUCT % ("ip", "ip") + python_layer("rows", "SomeRows", "ip", "rows")
    net += 'layer { name: "loss" type: "Reduction" bottom: "rows" top: "loss" loss_weight: 1 }'
    with caplog.at_level(logging.INFO, logger="caffejax"):
        solver = make_solver(tmp_path, net)
        solver.step(2)
        grads_before = jax.tree.map(np.array, solver.variables.params)
        monkeypatch.setattr(user_layers.SomeRows, "num_rows", 3)
        solver.step(1)
        solver.step(1)
    messages = [r.getMessage() for r in caplog.records if "in parts" in r.getMessage()]
    assert len(messages) == 1
    assert "layer 'rows' (Python): top 0 has shape (3, 3), but had (8, 3) when the net was traced" in messages[0]
    assert solver.iteration == 4
    assert not np.array_equal(grads_before["ip"]["weight"], solver.variables.params["ip"]["weight"])
    solver.close()


def test_a_layer_that_reshapes_in_forward_trains_in_parts_from_the_start(tmp_path: Path) -> None:
    net = INNER_PRODUCT % ("ip", "ip") + python_layer("rows", "ReshapesInForward", "ip", "rows")
    net += 'layer { name: "loss" type: "Reduction" bottom: "rows" top: "loss" loss_weight: 1 }'
    solver = make_solver(tmp_path, net)
    assert as_one_program(solver.net) is None
    solver.step(2)
    solver.close()


def train_on_devices(
    folder: Path, devices: int, settings: str, steps_per_dispatch: int, **options: Any
) -> tuple[Any, list[int]]:
    """Return the params after six steps, and how often each instance of CountsPasses ran."""
    user_layers.NUM_PASSES.clear()
    net = INNER_PRODUCT % ("ip", "ip") + python_layer("count", "CountsPasses", "ip", "counted")
    net += python_layer("lin", "Linear", "counted", "lin", param_str="{'num_output': 3}")
    net += python_layer("loss", "Euclidean", "lin target", "loss", "loss_weight: 1")
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(96, n)).astype(np.float32) for name, n in (("x", 5), ("target", 3))}
    inputs = """layer { name: "in" type: "Input" top: "x" top: "target"
      input_param { shape { dim: 8 dim: 5 } shape { dim: 8 dim: 3 } } }"""
    solver = Solver(
        f'net_param {{ {inputs + net} }} base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 20 '
        f'snapshot_prefix: "{folder / "x"}" {settings}',
        data=data,
        devices=devices,
        parallel=Parallel(batch="global") if devices > 1 else Parallel(),
        steps_per_dispatch=steps_per_dispatch,
        **options,
    )
    solver.step(6)
    params = jax.tree.map(np.array, solver.variables.params)
    solver.close()
    return params, list(user_layers.NUM_PASSES)


@pytest.mark.parametrize(
    ("settings", "steps_per_dispatch", "options"),
    [("", 1, {}), ("iter_size: 2", 1, RECOMPUTE), ("iter_size: 2", 3, {})],
)
def test_several_devices_have_instances_of_their_own_and_train_as_one_device(
    settings: str, steps_per_dispatch: int, options: Any, tmp_path: Path, eight_devices: ProcessPoolExecutor
) -> None:
    """Each instance runs once a pass, on its device's rows; a loss of shape (1,) is a mean over the rows."""
    num_passes = 12 if settings else 6
    arguments = settings, steps_per_dispatch
    params, counts = eight_devices.submit(train_on_devices, tmp_path, 4, *arguments, **options).result()
    expected_params, expected_counts = train_on_devices(tmp_path, 1, settings, 1)
    assert (counts, expected_counts) == ([num_passes] * 4, [num_passes])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), params, expected_params)


ROWS = python_layer("rows", "Rows", "", "x target") + INNER_PRODUCT % ("ip", "ip") + LOSS % ("loss", "ip", "loss")


def train_on_a_source(folder: Path, devices: int, settings: str, steps_per_dispatch: int) -> tuple[Any, list[int]]:
    """Return the params after six steps, with a snapshot in between, and the numbers of the passes of the source."""
    user_layers.NUM_PASSES.clear()
    for num_steps in (3, 6):
        solver = Solver(
            f'net_param {{ {ROWS} }} base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 random_seed: 3 max_iter: 20 '
            f'snapshot_prefix: "{folder / str(devices)}" {settings}',
            devices=devices,
            parallel=Parallel(batch="global") if devices > 1 else Parallel(),
            steps_per_dispatch=steps_per_dispatch,
            resume="auto",
        )
        solver.step(num_steps - solver.iteration)
        solver.snapshot()
        params = jax.tree.map(np.array, solver.variables.params)
        solver.close()
    return params, list(user_layers.NUM_PASSES)


@pytest.mark.parametrize(("settings", "steps_per_dispatch"), [("", 1), ("iter_size: 2", 3)])
def test_a_source_runs_once_a_pass_for_all_devices_which_train_as_one(
    settings: str, steps_per_dispatch: int, tmp_path: Path, eight_devices: ProcessPoolExecutor
) -> None:
    arguments = settings, steps_per_dispatch
    params, passes = eight_devices.submit(train_on_a_source, tmp_path, 8, *arguments).result()
    expected_params, expected_passes = train_on_a_source(tmp_path, 1, *arguments)
    assert passes == expected_passes == list(range(12 if settings else 6))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), params, expected_params)


def test_each_process_takes_its_part_of_a_source() -> None:
    configs = [NetConfig(num_parts=4, shard=DataShard(i, 2, 4)) for i in (0, 2)]
    loaders = [Loader(Net(ROWS, "TRAIN", config=config).graph) for config in configs]
    for index in range(3):
        parts = [next(loader)["x"] for _ in range(2) for loader in loaders]
        whole = np.random.default_rng(index).normal(size=(8, 5))
        np.testing.assert_allclose(np.concatenate([parts[i] for i in (0, 2, 1, 3)]), whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("Rows", r"top 0 has shape \(8, 5\), whose examples cannot be divided among 3 devices; return a multiple of 3"),
        ("no_bottoms", "is traced or has blobs, so its top has one size on each device"),
        ("ParameterLayer", "is traced or has blobs, so its top has one size on each device"),
    ],
)
def test_layers_whose_batch_cannot_be_divided_are_named(layer: str, words: str) -> None:
    text = python_layer("rows", layer, "", "x target" if layer == "Rows" else "x")
    with pytest.raises(CaffejaxError, match=rf"layer 'rows' \(Python\): .*{words}"):
        Net(text, "TRAIN", config=NetConfig(num_parts=3))


def test_layers_write_once_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_parts(monkeypatch)
    monkeypatch.chdir(tmp_path)
    writer = """layer { name: "out" type: "HDF5Output" bottom: "ip" bottom: "target"
      hdf5_output_param { file_name: "o.h5" } }
    """
    solver = make_solver(
        tmp_path, INNER_PRODUCT % ("ip", "ip") + writer + LOSS % ("loss", "ip", "loss"), "iter_size: 2"
    )
    solver.step(3)
    solver.close()
    with h5py.File("o.h5") as file:
        assert file["data"].shape == (3 * 2 * 8, 3)
