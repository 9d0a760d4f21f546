"""The state of another update rule is refused, in every format; a rule that stores the same continues."""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.solverstate import SolverState, read_solverstate, write_solverstate
from caffejax.core.solver import Solver

NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""
RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")
FORMATS = ("_iter_0.solverstate", "HDF5_iter_0.solverstate.h5", ".orbax", ".orbax/0")
# h of SGD and of Nesterov is the same sum of rate * gradient, so Caffe, too, continues one with the other
SAME_STATE = {("SGD", "Nesterov"), ("Nesterov", "SGD")}
PAIRS = [(writer, reader) for writer in RULES for reader in RULES if writer != reader]
# the signs of what the rules store, by slot: velocities and means of gradients have both
SIGNS = {"SGD": (-1,), "Nesterov": (-1,), "AdaGrad": (1,), "RMSProp": (1,), "AdaDelta": (1, 1), "Adam": (-1, 1)}


def make_solver(folder: Path, rule: str, settings: str = "") -> Solver:
    momentum = "" if rule in ("AdaGrad", "RMSProp") else "momentum: 0.9"
    return Solver(
        f'net_param {{ {NET} }} base_lr: 0.1 lr_policy: "fixed" {momentum} type: "{rule}" max_iter: 9 random_seed: 1 '
        f'snapshot_prefix: "{folder / (rule + settings[-4:])}" {settings}'
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a snapshot of each rule in each format."""
    path = tmp_path_factory.mktemp("states")
    for rule in RULES:
        for settings in ("", "snapshot_format: HDF5"):
            solver = make_solver(path, rule, settings)
            solver.snapshot()
            solver.close()
    return path


@pytest.fixture(scope="module")
def solvers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Solver]]:
    path = tmp_path_factory.mktemp("solvers")
    result = {rule: make_solver(path, rule) for rule in RULES}
    yield result
    for solver in result.values():
        solver.close()


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_a_state_of_another_rule_is_refused_in_every_format(
    folder: Path, solvers: dict[str, Solver], writer: str, reader: str
) -> None:
    for name in FORMATS:
        path = f"{folder / writer}{name}"
        if (writer, reader) in SAME_STATE:
            solvers[reader].restore(path)
            continue
        with pytest.raises(WeightsError) as exc_info:
            solvers[reader].restore(path)
        (problem,) = exc_info.value.problems
        assert problem.file == path
        assert problem.message.startswith(f"this is the state of type {writer}, but the solver's type is {reader}")
        assert "--weights" in problem.message
        assert "weights=" in problem.message


@pytest.mark.parametrize(("writer", "reader"), [p for p in PAIRS if p not in SAME_STATE])
def test_a_state_that_names_no_rule_is_judged_by_its_history(
    folder: Path, solvers: dict[str, Solver], writer: str, reader: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Caffe's files: the number of arrays and the signs of sums of squares tell rules apart, else a line says so."""
    stored = read_solverstate(f"{folder / writer}_iter_0.solverstate")
    (tmp_path / Path(stored.learned_net).name).write_bytes(Path(stored.learned_net).read_bytes())
    num_blobs = len(solvers[reader].net.graph.unique_params)
    history = tuple(
        np.full(stored.history[slot * num_blobs + i].shape, 0.5 * sign if i else 0.5, np.float32)
        for slot, sign in enumerate(SIGNS[writer])
        for i in range(num_blobs)
    )
    for suffix in ("", ".h5"):
        path = tmp_path / f"x.solverstate{suffix}"
        write_solverstate(path, SolverState(3, stored.learned_net, history))
        is_refused = len(SIGNS[writer]) != len(SIGNS[reader]) or any(
            w < r for w, r in zip(SIGNS[writer], SIGNS[reader], strict=True)
        )
        if is_refused:
            with pytest.raises(WeightsError) as exc_info:
                solvers[reader].restore(path)
            (problem,) = exc_info.value.problems
            assert all(word in problem.message for word in (writer, reader, "--weights"))
            assert problem.file == str(path)
        else:
            caplog.clear()
            with caplog.at_level("INFO", "caffejax"):
                solvers[reader].restore(path)
            (line,) = [r for r in caplog.records if "does not name its" in (m := r.getMessage()) and str(path) in m]
            has_evidence = sum(w > r for w, r in zip(SIGNS[writer], SIGNS[reader], strict=True)) > 0
            assert (line.levelname == "WARNING" and writer in line.getMessage()) == has_evidence


def test_velocity_is_continued_and_said(
    folder: Path, solvers: dict[str, Solver], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "caffejax"):
        solvers["Nesterov"].restore(f"{folder / 'SGD'}.orbax")
    assert any("the state of SGD is continued by Nesterov" in message for message in caplog.messages)


def test_a_checkpoint_of_an_earlier_version_names_its_rule_in_the_text_of_the_solver(tmp_path: Path) -> None:
    """Its record has no field for the rule."""
    solver = make_solver(tmp_path, "SGD")
    state = solver.train_state.replace(key=jax.random.key_data(solver.train_state.key))
    solver.snapshots._last_iteration = -1
    from caffejax.core.checkpoints.orbax import CheckpointFolder
    from caffejax.core.schema import format_text
    from caffejax.core.solver.train_state_io import to_arrays

    folder = CheckpointFolder(tmp_path / "old.orbax")
    folder.save(2, to_arrays(state), {"format": 1, "solver": format_text(solver.param), "seed": 1})
    folder.close()
    solver.close()
    reader = make_solver(tmp_path, "RMSProp")
    with pytest.raises(WeightsError, match="this is the state of type SGD, but the solver's type is RMSProp"):
        reader.restore(tmp_path / "old.orbax")
    reader.close()
