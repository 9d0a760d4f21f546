"""Training on a user's data: equal to a database with the same rows, resumed, and on several devices."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from caffejax import Net, Solver, SolverError
from caffejax.cli import main
from compile_flags import make_cpu_devices_environment

INPUT = """layer { name: "in" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }"""
HDF5_INPUT = """layer { name: "in" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param { source: "list.txt" batch_size: 4 } }"""
LAYERS = """
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "fc" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """net: "net.prototxt" base_lr: 0.5 momentum: 0.9 lr_policy: "fixed" iter_size: 2 random_seed: 3
test_iter: 2 test_interval: 4 test_initialization: false max_iter: 9 snapshot_prefix: "x" """
NUM_ROWS = 10


def make_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"data": rng.normal(size=(NUM_ROWS, 3)).astype(np.float32), "label": rng.integers(0, 5, NUM_ROWS)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(INPUT + LAYERS)
    Path("solver.prototxt").write_text(SOLVER)
    return tmp_path


def train(solver: Solver, steps: int) -> dict[str, Any]:
    solver.step(steps)
    return {"params": solver.variables.params, "scores": solver.test(), "loss": solver.smoothed_loss}


def assert_equal(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(*map(jax.tree.leaves, (actual, expected)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_arrays_train_like_the_same_rows_in_a_file(folder: Path) -> None:
    with h5py.File("rows.h5", "w") as file:
        for name, array in make_rows().items():
            file[name] = array
    Path("list.txt").write_text("rows.h5\n")
    Path("stored.prototxt").write_text(HDF5_INPUT + LAYERS)
    Path("stored_solver.prototxt").write_text(SOLVER.replace("net.prototxt", "stored.prototxt"))
    actual = train(Solver("solver.prototxt", data=make_rows(), test_data=make_rows()), 7)
    assert_equal(actual, train(Solver("stored_solver.prototxt"), 7))


def read_epoch(epoch: int) -> Any:
    order = np.random.default_rng(epoch).permutation(NUM_ROWS)
    return [tuple(array[order][i : i + 4] for array in make_rows().values()) for i in (0, 4)]


@pytest.mark.parametrize("data", [make_rows(), read_epoch], ids=["arrays", "a function"])
def test_resumes_bit_for_bit(folder: Path, data: Any) -> None:
    def make_solver() -> Solver:
        return Solver("solver.prototxt", data=data, test_data=data)

    uninterrupted = make_solver()
    uninterrupted.step(3)
    uninterrupted.snapshot()
    expected = train(uninterrupted, 6)
    for snapshot in ("x.orbax/3", "x_iter_3.solverstate"):
        resumed = make_solver()
        resumed.restore(snapshot)
        assert_equal(train(resumed, 6), expected)
        resumed.close()
    uninterrupted.restore("x.orbax")  # back, in the same process
    assert_equal(train(uninterrupted, 6), expected)


def test_a_smaller_batch_is_not_padded(folder: Path) -> None:
    Path("solver.prototxt").write_text(SOLVER.replace("iter_size: 2", ""))
    small_batch = {name: array[:3] for name, array in make_rows().items()}
    solver = Solver("solver.prototxt", data=[small_batch], test_data=[small_batch])
    (params, state), net = solver.variables, Net("net.prototxt", phase="TRAIN")
    expected = net.loss(params, state, {name: array.astype(np.float32) for name, array in small_batch.items()})[0]
    solver.step(1)
    np.testing.assert_allclose(solver.smoothed_loss, expected, rtol=1e-6)


MISSING = (
    r"{} has no data for layer 'in' \(Input\) with 'data' \(4x3\), 'label' \(4\). In Python, pass the data to the "
    r"solver: caffejax.Solver\(..., {}="
)


def test_missing_and_surplus_data_are_reported_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SolverError, match=MISSING.format("the train net", "data")) as exc_info:
        Solver("solver.prototxt")
    exc_info.match(MISSING.format("test net #0", "test_data"))
    assert main(["train", "--solver=solver.prototxt"]) == 1
    assert "On the command line, replace these layers with data layers" in capsys.readouterr().err
    with pytest.raises(SolverError, match=MISSING.format("test net #0", "test_data")):
        Solver("solver.prototxt", data=make_rows())
    Path("net.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "data" dummy_data_param { shape { dim: 4 dim: 3 } } }'
        'layer { name: "l" type: "DummyData" top: "label" dummy_data_param { shape { dim: 4 } } }' + LAYERS
    )
    with pytest.raises(SolverError, match=r"data is given, but the train net has no Input layers") as exc_info:
        Solver("solver.prototxt", data=make_rows(), test_data=make_rows())
    exc_info.match("test_data is given, but test net #0 has no Input layers")
    Path("solver.prototxt").write_text(SOLVER.replace("test_iter: 2", "test_iter: 2 test_iter: 2"))
    with pytest.raises(SolverError, match="test_data must be a list of 2"):
        Solver("solver.prototxt", data=make_rows(), test_data=make_rows())


def test_each_of_several_test_nets_has_separate_data(folder: Path) -> None:
    Path("solver.prototxt").write_text(SOLVER.replace("test_iter: 2", "test_iter: 1 test_iter: 1"))
    all_rows = make_rows()
    parts = [{name: array[i : i + 4] for name, array in all_rows.items()} for i in (0, 4)]
    solver = Solver("solver.prototxt", data=all_rows, test_data=parts)
    net = Net("net.prototxt")
    for scores, part in zip(solver.test(), parts, strict=True):
        inputs = {name: array.astype(np.float32) for name, array in part.items()}
        np.testing.assert_allclose(scores.loss, net.loss(*solver.variables, inputs)[0], rtol=1e-6)


TWO_DEVICES_SCRIPT = """
import sys, numpy as np
from caffejax import Parallel, Solver
rows = dict(np.load("rows.npz"))
batches = [{name: array[i : i + 4] for name, array in rows.items()} for i in (0, 4)]
for name, data in (("arrays", rows), ("list", batches)):
    for devices, options in (("each", {}), ("global", {"parallel": Parallel(batch="global")})):
        solver = Solver("solver.prototxt", devices=2, data=data, test_data=data, **options)
        solver.step(5)
        blobs = [solver.variables.params["fc"][blob] for blob in ("bias", "weight")]
        np.savez(f"{name}_{devices}.npz", *blobs, loss=solver.test()[0].loss)
"""


@pytest.mark.long
def test_several_devices_take_batches_in_turn_or_split_each(folder: Path) -> None:
    """The results are those of one device with twice the iter_size, or with the same batches."""
    Path("solver.prototxt").write_text(SOLVER.replace("iter_size: 2", "iter_size: 1"))
    all_rows = {name: array[:8] for name, array in make_rows().items()}
    np.savez("rows.npz", **all_rows)
    command = [sys.executable, "-c", TWO_DEVICES_SCRIPT]
    process = subprocess.run(
        command, env=os.environ | make_cpu_devices_environment(2), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    for batch_mode, iter_size in (("global", 1), ("each", 2)):
        param = SOLVER.replace("iter_size: 2", f"iter_size: {iter_size}")
        Path("solver.prototxt").write_text(param)
        one_device_solver = Solver("solver.prototxt", data=all_rows, test_data=all_rows)
        one_device_solver.step(5)
        expected = [*jax.tree.leaves(one_device_solver.variables.params["fc"]), one_device_solver.test()[0].loss]
        for data_kind in ("arrays", "list"):
            with np.load(f"{data_kind}_{batch_mode}.npz") as file:
                for a, b in zip((file["arr_0"], file["arr_1"], file["loss"]), expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=f"{data_kind} {batch_mode}")
