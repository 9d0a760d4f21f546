"""The content of the live display while a solver trains."""

import re
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from caffejax import Solver
from caffejax.base.errors import SolverError
from caffejax.cli import main, progress_bar, training_progress
from caffejax.cli.training_progress import TrainingDisplay

SOLVER = """
base_lr: 0.1 lr_policy: "fixed" max_iter: 6 test_interval: 2 test_iter: 1 snapshot_after_train: false
net_param {
  layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
    shape { dim: 8 dim: 3 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
  layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
  layer { name: "accuracy" type: "Accuracy" bottom: "y" bottom: "label" top: "accuracy" include { phase: TEST } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }
}
"""


@pytest.mark.parametrize(
    ("outputs", "displayed_outputs"), [((), ["accuracy"]), (("loss", "accuracy"), ["loss", "accuracy"])]
)
def test_the_display_shows_scores_speed_and_waiting_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: tuple[str, ...], displayed_outputs: list[str]
) -> None:
    monkeypatch.setattr(training_progress, "_MIN_INTERVAL", 0)
    solver = Solver(f'{SOLVER} snapshot_prefix: "{tmp_path / "x"}"')
    bar = Progress(TextColumn("{task.fields[numbers]}"), console=Console(file=StringIO()), disable=True)
    display = TrainingDisplay(solver, outputs, bar)
    events, scores = [], []

    def record_display(solver: Solver) -> None:
        (task,) = bar.tasks
        events.append((task.completed, task.total, task.fields["numbers"]))
        scores.append(dict(solver.tests.scores))

    solver.callbacks += [display, record_display]
    solver.solve()
    solver.close()
    assert [completed for completed, *_ in events] == [1, 2, 3, 4, 5, 6]
    assert {total for _, total, _ in events} == {6}
    for (_, _, numbers), score in zip(events, scores, strict=True):
        result = re.fullmatch(r"loss (\S+)((?:  (?:test )?\S+ \S+)*?)  (\d+) images/s  waiting (\d+)%", numbers)
        assert result, numbers
        pairs = result[2].replace("test ", "").split()
        assert pairs[::2] == displayed_outputs
        assert [float(n) for n in pairs[1::2]] == pytest.approx([score[name] for name in displayed_outputs], rel=1e-3)
        assert 0 <= int(result[4]) <= 100


def test_a_resumed_run_begins_at_its_iteration(tmp_path: Path) -> None:
    solver = Solver(f'{SOLVER} snapshot_prefix: "{tmp_path / "x"}"')
    bar = Progress(console=Console(file=StringIO()), disable=True)
    display = TrainingDisplay(solver, (), bar)
    solver.iteration = 4
    display.on_start(solver)
    solver.close()
    assert bar.tasks[0].completed == 4


@pytest.mark.parametrize(("platform", "text"), [("cpu", "compiling"), ("gpu", "compiling: XLA is choosing kernels")])
def test_the_display_says_why_the_first_step_takes_long(platform: str, text: str, tmp_path: Path) -> None:
    solver: Any = Solver(f'{SOLVER} snapshot_prefix: "{tmp_path / "x"}"')
    solver.device = SimpleNamespace(platform=platform)
    bar = Progress(console=Console(file=StringIO()), disable=True)
    TrainingDisplay(solver, (), bar)
    solver.close()
    assert bar.tasks[0].fields["numbers"] == text


def test_outputs_that_no_test_net_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solver = Solver(f'{SOLVER} snapshot_prefix: "{tmp_path / "x"}"')
    with pytest.raises(SolverError, match=r"(?s)'acuracy'; did you mean 'accuracy'\?.*'zzz'; outputs: accuracy, loss"):
        training_progress.check_outputs(solver, ["acuracy", "loss", "zzz"])
    solver.close()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_train_shows_the_display_on_a_terminal_and_writes_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_progress, "_MIN_INTERVAL", 0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")  # all in one line
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.prototxt").write_text(SOLVER + "display: 2")
    assert main(["train", "--solver=s.prototxt", "--show=loss,accuracy"]) == 0
    text: Any = terminal.getvalue()
    plain_text = re.sub(r"\x1b\[[\d;?]*\w", "", text)
    assert re.search(r"6/6 .*loss \S+  test loss \S+  accuracy \S+  \d+ images/s  waiting \d+%", plain_text)
    assert text.count("Optimization Done.") == 1
    assert (tmp_path / "s.metrics.jsonl").read_text().count('"event": "train"') == 4
    assert main(["train", "--solver=s.prototxt", "--metrics=off"]) == 0
    assert (tmp_path / "s.metrics.jsonl").read_text().count('"event": "train"') == 4


@pytest.mark.parametrize(
    ("environment", "moves_cursor"),
    [
        ({"TERM": "xterm-256color", "PAGER": "cat", "GIT_PAGER": "cat"}, True),
        ({"TERM": "xterm-color"}, True),
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "1"}, False),  # `!command` in a notebook, by Jupyter's launcher
        ({"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}, False),  # and by any other
        ({"TERM": "dumb"}, False),
    ],
)
def test_the_cursor_moves_on_terminals_only(
    environment: dict[str, str], moves_cursor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JPY_PARENT_PID", "PAGER", "GIT_PAGER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar.show_loop_progress(2, "images") as advance:
        advance()
    assert ("\x1b" in terminal.getvalue()) is moves_cursor
