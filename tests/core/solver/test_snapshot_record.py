"""The JSON record of a snapshot: valid records are resumed, and invalid ones are refused with the name of the entry."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caffejax.base.errors import DataError, WeightsError
from caffejax.core.checkpoints.solverstate import read_solverstate, write_solverstate
from caffejax.core.solver import Solver
from caffejax.core.solver.snapshot_record import format_record

NET = """
layer {{ name: "digits" type: "Data" top: "data" top: "label"
  data_param {{ source: "{0}/digits_{1}_lmdb" batch_size: 2 backend: LMDB }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 10 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
DIGITS = Path(__file__).parents[3] / "configs" / "digits"


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("record")
    (folder / "train.prototxt").write_text(NET.format(DIGITS, "train"))
    (folder / "test.prototxt").write_text(NET.format(DIGITS, "test"))
    (folder / "solver.prototxt").write_text(
        f'train_net: "{folder}/train.prototxt" test_net: "{folder}/test.prototxt" test_iter: 1 test_interval: 100 '
        f'base_lr: 0.01 lr_policy: "plateau" plateau_winsize: 5 gamma: 0.1 max_iter: 10 snapshot_prefix: "{folder}/x"'
    )
    result = Solver(folder / "solver.prototxt")
    result.step(1)
    result.snapshot()
    yield result
    result.close()


@pytest.fixture(scope="module")
def snapshot(solver: Solver) -> Path:
    return Path(f"{solver.snapshots.prefix}_iter_1.solverstate")


def restore_with_record(solver: Solver, snapshot: Path, record: Any) -> None:
    """Restore with this record, which may be text that is not JSON; raise the error of `Solver.restore`."""
    path = snapshot.with_name("changed.solverstate")
    text = record if isinstance(record, str) else json.dumps(record)
    write_solverstate(path, replace(read_solverstate(snapshot), record=text))
    solver.restore(path)


def read_record(snapshot: Path) -> Any:
    return json.loads(read_solverstate(snapshot).record)


def test_a_solver_resumes_from_its_own_record(solver: Solver, snapshot: Path) -> None:
    record = read_record(snapshot)
    assert record.keys() == {"type", "data", "seed", "scores", "plateau", "key", "examples"}
    restore_with_record(solver, snapshot, record)
    assert solver.iteration == 1


@pytest.mark.parametrize(("factor", "num_warnings"), [(1, 0), (4, 1)])
def test_another_number_of_examples_is_reported(
    solver: Solver, snapshot: Path, caplog: pytest.LogCaptureFixture, factor: int, num_warnings: int
) -> None:
    record = read_record(snapshot)
    assert record["examples"] == solver.batch_size
    restore_with_record(solver, snapshot, record | {"examples": factor * solver.batch_size})
    message = f"with {factor * solver.batch_size} examples in each iteration, but this run has {solver.batch_size}"
    assert caplog.text.count(message) == num_warnings


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        ("plateau", {"step": 2, "minimum": 0.5, "last_event": 7}),
        ("stepearly", {"step": 1, "maximum": 0.75, "tests": 1}),
    ],
)
def test_adaptive_policies_resume_with_their_state(policy: str, state: dict[str, Any], tmp_path: Path) -> None:
    def make_solver() -> Solver:
        settings = f'lr_policy: "{policy}" plateau_winsize: 5 stepearly: 2 gamma: 0.1 snapshot_prefix: "{tmp_path}/x"'
        settings += f' train_net: "{tmp_path}/net.prototxt" test_net: "{tmp_path}/net.prototxt" test_iter: 1'
        settings += " test_interval: 100 test_initialization: false base_lr: 1 max_iter: 2"
        (tmp_path / "net.prototxt").write_text(NET.format(DIGITS, "train"))
        (tmp_path / "solver.prototxt").write_text(settings)
        return Solver(tmp_path / "solver.prototxt")

    with contextlib.closing(make_solver()) as solver:
        solver.step(1)
        solver.rate_schedule.state.update(state)
        solver.snapshot()
    for snapshot in ("x_iter_1.solverstate", "x.orbax"):
        with contextlib.closing(make_solver()) as solver:
            solver.restore(tmp_path / snapshot)
            assert solver.rate_schedule.state == state


@pytest.mark.parametrize(
    ("field", "value", "error_type", "message"),
    [
        ((), [1], WeightsError, r"damaged: its record is \[1\], not an object with named fields"),
        ((), "{", WeightsError, "damaged: its record is not JSON"),
        ((), "[" * 100_000, WeightsError, "damaged: its record is not JSON"),
        ((), " " * (17 << 20), WeightsError, "damaged: its record is 17 MiB long, but at most 16 MiB are allowed"),
        (("data",), 3, WeightsError, "'data' of its record is 3, not an object with the fields 'train' and 'test'"),
        (
            ("data", "train"),
            [],
            WeightsError,
            r"'data.train' of its record is \[\], not an object with a position for each layer",
        ),
        (("data", "test"), [1], WeightsError, r"'data.test' of its record is \[1\], not a list of objects"),
        (("data", "train", "digits"), [], DataError, r"\[\] is not the position of a data source"),
        (("data", "train", "digits"), {"examples": -1}, DataError, "is not the position"),
        (("data", "test", 0, "digits"), {"examples": 1 << 80}, DataError, "is not the position"),
        (("examples",), -1, WeightsError, "'examples' of its record is -1, not a number of examples"),
        (("carried",), 3, WeightsError, "'carried' of its record is 3, not an object with the recurrent state of each"),
        (("seed",), "x", WeightsError, "'seed' of its record is 'x', not a 64-bit integer"),
        (("key",), [1 << 40, 0], WeightsError, "'key' of its record is .*, not a list of two or four 32-bit integers"),
        (
            ("scores",),
            {"loss": []},
            WeightsError,
            "'scores' of its record is .*, not an object with a number for each output",
        ),
        (
            ("plateau",),
            {"step": 1.5},
            WeightsError,
            "'plateau' of its record is .*, not an object with the numbers 'step'",
        ),
    ],
)
def test_an_invalid_record_is_refused(
    solver: Solver, snapshot: Path, field: tuple[Any, ...], value: Any, error_type: type[Exception], message: str
) -> None:
    record = read_record(snapshot)
    container = {"": record}
    for name in ("", *field)[:-1]:
        container = container[name]
    container[("", *field)[-1]] = value
    state_before = solver.iteration, solver.train_state, solver.loader.get_state()
    with pytest.raises(error_type, match=message) as exc_info:
        restore_with_record(solver, snapshot, record if field else value)
    assert "changed.solverstate" in str(exc_info.value)
    assert (solver.iteration, solver.train_state, solver.loader.get_state()) == state_before, "refused, and changed"


def test_a_record_that_is_too_large_is_not_written() -> None:
    with pytest.raises(
        WeightsError, match=r"its record would be 17 MiB long, but at most 16 MiB are allowed; let `get_"
    ):
        format_record({"data": "-" * (17 << 20)})
