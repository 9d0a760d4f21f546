"""Which state a run with `resume="auto"` continues, and that no run continues the states of another."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.solverstate import read_solverstate
from caffejax.core.solver import Solver

GOLDEN = Path(__file__).parents[2] / "golden" / "solver" / "sgd_step_momentum_l2"
NET = """
layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 0.5 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


def make_solver(folder: Path, settings: str = "", prefix: str = "snap", **options: object) -> Solver:
    text = f'net_param {{ {NET} }} lr_policy: "fixed" max_iter: 9 random_seed: 1 {settings}'
    text += "" if "base_lr" in settings else " base_lr: 0.125"
    return Solver(f'{text} snapshot_prefix: "{folder / prefix}"', **options)  # type: ignore[arg-type]


def weight(solver: Solver) -> float:
    """Return a weight: it starts at 0 and falls by base_lr with each update."""
    return float(np.asarray(solver.variables.params["ip"]["weight"])[0, 0])


def train(folder: Path, iterations: int, settings: str = "", **options: object) -> None:
    solver = make_solver(folder, settings, **options)
    solver.step(iterations)
    solver.snapshot()
    solver.close()


def resume(folder: Path, settings: str = "", **options: object) -> tuple[int, float]:
    solver = make_solver(folder, settings, resume="auto", **options)
    solver.close()
    return solver.iteration, weight(solver)


def steps(folder: Path) -> list[int]:
    return sorted(int(p.name) for p in folder.glob("*") if p.name.isdigit())


def remove_checkpoints(folder: Path) -> None:
    shutil.rmtree(folder / "snap.orbax")


@pytest.fixture(scope="module", params=["", "snapshot_format: HDF5"], ids=["binary", "HDF5"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a folder with the snapshots of iterations 2 and 4 of one run, and the setting of their format."""
    folder = tmp_path_factory.mktemp("run")
    with contextlib.chdir(folder):  # the states then name their weights by a relative path
        solver = make_solver(Path(), request.param)
        for _ in range(2):
            solver.step(2)
            solver.snapshot()
        solver.close()
    return folder, request.param


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda f, h: None, 4),
        (lambda f, h: remove_checkpoints(f), 4),
        (lambda f, h: shutil.rmtree(f / "snap.orbax" / "4"), 4),  # killed between the two
        (lambda f, h: (f / f"snap_iter_4.solverstate{h}").unlink(), 4),
        (lambda f, h: [remove_checkpoints(f), (f / f"snap_iter_4.solverstate{h}").unlink()], 2),  # killed before it
        (lambda f, h: [shutil.rmtree(f / "snap.orbax" / "4"), (f / f"snap_iter_4.caffemodel{h}").unlink()], 2),
        (lambda f, h: [remove_checkpoints(f), (f / f"snap_iter_4.caffemodel{h}").unlink()], 2),
        (lambda f, h: [p.rename(f / p.name.replace("snap", "snap_b")) for p in f.iterdir()], 0),  # of another prefix
        (lambda f, h: [p.rename(f / p.name.replace("_iter", ".iter")) for p in f.glob("*_iter_4.*")], 4),
    ],
)
def test_the_newest_state_is_continued(
    recorded: tuple[Path, str], change: Callable[[Path, str], object], expected: int, tmp_path: Path
) -> None:
    shutil.copytree(recorded[0], tmp_path / "run")
    change(tmp_path / "run", ".h5" if recorded[1] else "")
    assert resume(tmp_path / "run", recorded[1]) == (expected, -0.125 * expected)


def test_states_of_caffe_alone_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who comes from Caffe has no checkpoints."""
    monkeypatch.chdir(tmp_path)
    for file in GOLDEN.glob("snap_iter_10.*[!5]"):
        shutil.copy(file, tmp_path)
    solver = Solver(GOLDEN / "solver.prototxt", resume="auto")
    solver.close()
    assert solver.iteration == 10


def test_a_damaged_newest_state_is_named_with_the_next(recorded: tuple[Path, str], tmp_path: Path) -> None:
    h5 = ".h5" if recorded[1] else ""
    shutil.copytree(recorded[0], tmp_path / "run")
    newest, older = (tmp_path / "run" / f"snap_iter_{i}.solverstate{h5}" for i in (4, 2))
    remove_checkpoints(tmp_path / "run")
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.raises(WeightsError, match=rf"snap_iter_4.*resume with --snapshot={older}"):
        make_solver(tmp_path / "run", resume="auto")
    older.unlink()
    with pytest.raises(WeightsError, match="no other is good"):
        make_solver(tmp_path / "run", resume="auto")


def test_a_damaged_checkpoint_is_named_with_the_state_beside_it(recorded: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(recorded[0], tmp_path / "run")
    for file in (tmp_path / "run" / "snap.orbax" / "4").rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(file.read_bytes()[:10])
    state = tmp_path / "run" / f"snap_iter_4.solverstate{'.h5' if recorded[1] else ''}"
    with pytest.raises(WeightsError, match=rf"{state} can be read.*; step 2 is the newest good one; step 4 is damaged"):
        make_solver(tmp_path / "run", resume="auto")


def test_states_that_cannot_be_moved_aside_are_named(tmp_path: Path) -> None:
    """The later run does not go on with states of the earlier one beside its own."""
    train(tmp_path, 5)
    remove_checkpoints(tmp_path)
    (tmp_path / "snap.orbax.old").write_text("in the way")
    solver = make_solver(tmp_path, on_snapshot_error="continue")
    solver.step(2)
    for _ in range(2):
        with pytest.raises(WeightsError, match=r"cannot be moved aside"):
            solver.snapshot()
    assert (tmp_path / "snap_iter_5.solverstate").exists()
    (tmp_path / "snap.orbax.old").unlink()
    solver.snapshot()
    solver.close()
    assert [p.name for p in tmp_path.glob("*.solverstate")] == ["snap_iter_2.solverstate"]


def test_a_lone_state_without_weights_does_not_start_at_0(recorded: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(recorded[0], tmp_path / "run")
    remove_checkpoints(tmp_path / "run")
    for file in (tmp_path / "run").glob("*.caffemodel*"):
        file.unlink()
    with pytest.raises(WeightsError, match=r"snap_iter_4.*its weights are missing"):
        make_solver(tmp_path / "run", resume="auto")


@pytest.mark.parametrize("source", ["auto", "snap.orbax", "snap_iter_3.solverstate"])
def test_whatever_runs_first_runs_from_the_state(tmp_path: Path, source: str) -> None:
    train(tmp_path, 3)
    path = source if source == "auto" else tmp_path / source
    results = []
    for run in (
        lambda s: s.step(2),
        lambda s: s.snapshot(),
        lambda s: s.test(),
        lambda s: None,
        lambda s: [s.step(1), s.solve()],
    ):
        solver = make_solver(tmp_path, "test_iter: 1 test_interval: 100", resume=path)
        run(solver)
        solver.close()
        results.append((solver.iteration, weight(solver)))
    iterations = [5, 3, 3, 3, 9]
    assert results[:4] == [(i, -0.125 * i) for i in iterations[:4]]
    assert results[4] == (9, -0.125 * 9)


def test_weights_that_a_state_replaces_are_not_opened(tmp_path: Path) -> None:
    train(tmp_path, 3)
    (tmp_path / "no_weights.caffemodel").write_text("no weights")
    for options in ({"weights": tmp_path / "no_weights.caffemodel"}, {"weights": ["absent.caffemodel"]}, {}):
        assert resume(tmp_path, 'weights: "also_absent.caffemodel"', **options)[0] == 3


@pytest.mark.parametrize("checkpoint_only", [False, True])
@pytest.mark.parametrize(("first", "second"), [(5, 7), (7, 5), (5, 5)])
def test_two_runs_do_not_mix(
    tmp_path: Path, first: int, second: int, checkpoint_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Run B from 0, whose rate is twice run A's: whatever the numbers, B's states are alone, and A's are complete."""
    train(tmp_path, first)
    caplog.clear()
    train(tmp_path, second, "base_lr: 0.25", checkpoint_only=checkpoint_only)
    assert any("of an earlier run" in r.getMessage() and r.levelname == "WARNING" for r in caplog.records)
    assert steps(tmp_path / "snap.orbax") == [second]
    assert steps(tmp_path / "snap.orbax.old") == [first]
    assert resume(tmp_path, "base_lr: 0.25") == (second, -0.25 * second)
    states = [] if checkpoint_only else [tmp_path / f"snap_iter_{second}.solverstate"]
    assert sorted(tmp_path.glob("*.solverstate")) == states
    assert (tmp_path / f"snap_iter_{first}.caffemodel").exists()  # scripts may name A's weights
    moved_states = [f"/snap_iter_{first}.solverstate"] if first != second or checkpoint_only else []
    for old in ("", f"/{first}", *moved_states):
        solver = make_solver(tmp_path, resume=f"{tmp_path}/snap.orbax.old{old}")
        solver.close()
        assert (solver.iteration, weight(solver)) == (first, -0.125 * first), old


def test_states_after_the_one_that_is_continued_are_of_an_earlier_run(tmp_path: Path) -> None:
    for settings in ("snapshot: 2", "snapshot: 2 base_lr: 0.25"):
        solver = make_solver(tmp_path, settings, resume=tmp_path / "snap.orbax/2" if "base" in settings else None)
        solver.step(8 if "base" not in settings else 2)
        solver.close()
    assert steps(tmp_path / "snap.orbax") == [2, 4]
    assert sorted(p.name for p in tmp_path.glob("*.solverstate")) == [
        "snap_iter_2.solverstate",
        "snap_iter_4.solverstate",
    ]
    assert sorted(p.name for p in (tmp_path / "snap.orbax.old").glob("*.solverstate")) == [
        f"snap_iter_{i}.solverstate" for i in (6, 8)
    ]
    remove_checkpoints(tmp_path)
    assert resume(tmp_path) == (4, -0.125 * 2 - 0.25 * 2)


def test_a_state_beside_other_weights_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored path is relative to the working directory of the run; the copy's weights are beside it."""
    monkeypatch.chdir(tmp_path)
    train(Path(), 3)
    (tmp_path / "copy").mkdir()
    for file in tmp_path.glob("snap_iter_3.*"):
        shutil.copy(file, "copy")
    remove_checkpoints(tmp_path)
    train(Path(), 3, "base_lr: 0.25")
    assert read_solverstate("copy/snap_iter_3.solverstate").learned_net == "snap_iter_3.caffemodel"
    solver = make_solver(tmp_path, resume="copy/snap_iter_3.solverstate")
    solver.close()
    assert weight(solver) == -0.125 * 3
