"""The finite check: non-finite values are detected, traced to a layer on request, and never saved."""

import re
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from caffejax.base.errors import SolverError
from caffejax.cli import main
from caffejax.core.solver import Solver, nan_check

INNER_PRODUCT_PARAM = 'inner_product_param { num_output: 3 weight_filler { type: "xavier" } }'
DATA = """
layer { name: "data" type: "HDF5Data" top: "x" top: "label" hdf5_data_param { source: "list.txt" batch_size: 4 } }
"""
SOFTMAX = f"""{DATA}
layer {{ name: "ip1" type: "InnerProduct" bottom: "x" top: "ip1" {INNER_PRODUCT_PARAM} }}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" {INNER_PRODUCT_PARAM} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""
# labels that a layer computes, so that reading them cannot say that they are none of the classes
COMPUTED_LABELS = SOFTMAX.replace('bottom: "label"', 'bottom: "computed"').replace(
    'layer { name: "ip1"', 'layer { name: "c" type: "Power" bottom: "label" top: "computed" } layer { name: "ip1"'
)
# the square root of zeros, in place: finite forward, with an infinite gradient
INFINITE_GRADIENT = (
    SOFTMAX.replace(INNER_PRODUCT_PARAM, "inner_product_param { num_output: 3 }", 1)
    .replace('name: "relu" type: "ReLU"', 'name: "root" type: "Power"')
    .replace('top: "ip1" }', 'top: "ip1" power_param { power: 0.5 } }')
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a temporary directory with 40 valid examples."""
    monkeypatch.chdir(tmp_path)
    write_examples(np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % 3)
    Path("list.txt").write_text("data.h5\n")
    return tmp_path


def write_examples(x: Any, labels: Any) -> None:
    with h5py.File("data.h5", "w") as f:
        f["x"], f["label"] = np.asarray(x, np.float32), np.asarray(labels, np.float32)


def make_solver_text(net: str = SOFTMAX, lr: float = 0.01, extra_settings: str = "") -> str:
    settings = "" if "type:" in extra_settings else 'type: "SGD" '
    return (
        f'net_param {{ {net} }} base_lr: {lr} lr_policy: "fixed" random_seed: 1 max_iter: 40 '
        f'snapshot_prefix: "snap" {settings}{extra_settings}'
    )


def get_failure_message(solver_text: str, **options: Any) -> str:
    """Return the error that stops training; check that no snapshot is written, even on request."""
    solver = Solver(solver_text, **options)
    with pytest.raises(SolverError) as exc_info:
        solver.solve()
    files = sorted(Path.cwd().rglob("*"))
    for _ in range(2):
        if any(not np.isfinite(leaf).all() for leaf in jax.tree.leaves(solver.variables)):
            with pytest.raises(SolverError):
                solver.snapshot()
    solver.close()
    assert sorted(Path.cwd().rglob("*")) == files
    return str(exc_info.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("settings", ["", "display: 10", "iter_size: 2", "snapshot: 10"])
def test_a_learning_rate_that_is_too_high_is_reported(settings: str) -> None:
    message = get_failure_message(make_solver_text(lr=1e30, extra_settings=settings))
    assert "Training has diverged: lower base_lr, set clip_gradients, and check that all labels" in message
    assert message.endswith("run again with debug_nans=True (--debug_nans)")
    assert re.match(r"iteration \d+: the loss is (nan|inf); it was finite up to iteration \d+\. ", message)

    debug_message = get_failure_message(make_solver_text(lr=1e30, extra_settings=settings), debug_nans=True)
    assert re.match(
        r"layer 'ip\d' \(InnerProduct\): iteration \d+: its output 'ip\d' has .*ranges of its bottoms: '(x|ip1)' from ",
        debug_message,
    )
    assert "lower base_lr" in debug_message
    assert "debug_nans" not in debug_message


@pytest.mark.usefixtures("folder")
def test_the_state_before_the_step_is_kept() -> None:
    solver = Solver(make_solver_text(lr=1e30), debug_nans=True)
    with pytest.raises(SolverError):
        solver.solve()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(solver.variables))
    assert solver.iteration == int(solver.train_state.iteration)
    solver.close()


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_label_out_of_range_is_reported(folder: Path, debug: bool, iter_size: int) -> None:
    labels = np.arange(40) % 3
    labels[33] = 7  # the second of the batch of iteration 8
    write_examples(np.ones((40, 5)), labels)
    message = get_failure_message(
        make_solver_text(COMPUTED_LABELS, extra_settings=f"iter_size: {iter_size}"), debug_nans=debug
    )
    if debug:
        assert message.startswith(
            f"layer 'loss' (SoftmaxWithLoss): iteration {8 // iter_size}: its output 'loss' has 1 NaN of 1 values: "
            "label 7 at [1] of 'computed' is not one of the classes 0 to 2. Correct the labels"
        )
    else:
        assert message.startswith(f"iteration {8 // iter_size}: the loss is nan; it was finite up to")
        assert "labels are below the number of classes" in message


@pytest.mark.usefixtures("folder")
def test_nonfinite_parameters_with_a_finite_loss_are_not_saved() -> None:
    message = get_failure_message(make_solver_text(INFINITE_GRADIENT, extra_settings="snapshot: 1"))
    assert re.match(
        r"parameter (bias|weight) of layer 'ip1' has .* values .* after iteration 0, whose loss was finite\. Training",
        message,
    )


@pytest.mark.usefixtures("folder")
def test_old_losses_are_checked_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nan_check, "MAX_UNREAD", 5)
    solver = Solver(make_solver_text(lr=1e30))
    for _ in range(9):
        solver.step(1)
    with pytest.raises(SolverError, match="the loss is"):
        solver.step(1)
    with pytest.raises(SolverError, match="the loss is"):
        _ = solver.smoothed_loss
    solver.close()


def test_debug_nans_does_not_change_results(folder: Path) -> None:
    plain_solver, debug_solver = Solver(make_solver_text()), Solver(make_solver_text(), debug_nans=True)
    for solver in (plain_solver, debug_solver):
        solver.step(5)
        solver.close()
    for a, b in zip(jax.tree.leaves(plain_solver.variables), jax.tree.leaves(debug_solver.variables), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("flag", ["--debug_nans", "--debug-nans", "-debug_nans"])
def test_debug_nans_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    """After a snapshot and a bad label, the message says how to continue; continuing that way names the layer."""
    labels = np.arange(40) % 3
    labels[33] = -1
    write_examples(np.ones((40, 5)), labels)
    Path("solver.prototxt").write_text(make_solver_text(COMPUTED_LABELS, extra_settings="snapshot: 4"))
    assert main(["train", "--solver=solver.prototxt"]) == 1
    err = capsys.readouterr().err
    (message,) = [line for line in err.splitlines() if line.startswith("caffejax: ")]
    assert "Traceback" not in err
    assert "run again from the snapshot snap.orbax/8 with debug_nans=True (--debug_nans)" in message
    files_before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert main(["train", "--solver=solver.prototxt", "--snapshot=snap.orbax/8", flag]) == 1
    err = capsys.readouterr().err
    assert "layer 'loss' (SoftmaxWithLoss): iteration 8: " in err
    assert "label -1 at [1] of 'computed' is not one of the classes 0 to 2" in err
    metrics = folder / "snap.metrics.jsonl"  # the second run is recorded, too
    assert metrics.read_bytes().startswith(files_before[metrics])
    files_before[metrics] = metrics.read_bytes()
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files_before
