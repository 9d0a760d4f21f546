"""Curves of runs: the panels, their content, and files that are not logs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_help_and_errors import run_with_error
from test_logs import CURRENT_LOG, NAN, make_row

from caffejax.cli import main
from caffejax.cli.plot import name_runs
from caffejax.tools.logs import draw_runs, read_log
from caffejax.tools.logs.log_plot import make_panels, moving_average

pytest.importorskip("matplotlib")

START_EVENT = {"event": "start", "iteration": 0, "seconds": 0}
EVENTS = [
    START_EVENT,
    {"event": "test", "iteration": 0, "seconds": 1.5, "net": 0, "lr": 0.01, "outputs": {"accuracy": 0.1, "loss": 2.5}},
    {"event": "train", "iteration": 0, "seconds": 2, "loss": 2.4, "lr": 0.01, "outputs": {"loss": 2.25}},
    {"event": "train", "iteration": 100, "seconds": 3, "loss": "NaN", "lr": 9.9e-05, "outputs": {"loss": "-Infinity"}},
    {"event": "snapshot", "iteration": 200, "seconds": 3.5, "checkpoint": "x"},
    {"event": "train", "iteration": 200, "seconds": 4.1, "loss": 0.125, "lr": 9.9e-05, "outputs": {}},
    {"event": "test", "iteration": 200, "seconds": 5, "net": 0, "lr": 9.9e-05, "outputs": {"accuracy": [1, 0.5]}},
    {"event": "end", "iteration": 200, "seconds": 5.1, "reason": "finished"},
]


def format_json_lines(*events: Any) -> str:
    return "".join(event if isinstance(event, str) else json.dumps(event) + "\n" for event in events)


def test_json_lines_are_parsed_like_a_log(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(format_json_lines(*EVENTS))
    log = read_log(tmp_path / "m.jsonl")
    assert log.loss == [
        make_row(0, 2, 0.01, loss=2.4),
        make_row(100, 3, 9.9e-05, loss=NAN),
        make_row(200, 4.1, 9.9e-05, loss=0.125),
    ]
    assert log.train == [make_row(0, 2, 0.01, loss=2.25), make_row(100, 3, 9.9e-05, loss=float("-inf"))]
    assert log.rate == [make_row(0, 2, 0.01), make_row(100, 3, 9.9e-05), make_row(200, 4.1, 9.9e-05)]
    accuracies = {"accuracy": 1, "accuracy[1]": 0.5}
    assert log.test == [make_row(0, 1.5, 0.01, accuracy=0.1, loss=2.5), make_row(200, 5, 9.9e-05, **accuracies)]


def make_train_event(iteration: int, loss: float, seconds: float = 0) -> dict[str, Any]:
    return {"event": "train", "iteration": iteration, "seconds": seconds, "loss": loss, "lr": 1}


def make_start_event(iteration: int) -> dict[str, Any]:
    return {**START_EVENT, "iteration": iteration}


@pytest.mark.parametrize(
    ("events", "losses"),
    [
        (
            [
                START_EVENT,
                make_train_event(0, 5),
                make_train_event(2, 4),
                make_train_event(4, 3),
                make_start_event(3),
                make_train_event(4, 2),
            ],
            {0: 5, 2: 4, 4: 2},
        ),
        (
            [
                START_EVENT,
                make_train_event(0, 5),
                make_train_event(2, 4),
                make_train_event(4, 3),
                make_start_event(2),
                make_train_event(2, 9),
            ],
            {0: 5, 2: 9},
        ),
        ([START_EVENT, make_train_event(0, 5), make_train_event(2, 4), START_EVENT, make_train_event(0, 7)], {0: 7}),
        ([START_EVENT, make_train_event(0, 5), '{"event": "train", "itera\n', make_train_event(2, 4)], {0: 5, 2: 4}),
        ([START_EVENT, make_train_event(0, 5), '{"event": "train", "iteration": 2, "loss": 1'], {0: 5}),
        (["{}\n", '{"event": 3}\n', "[]\n", "[" * 10**5 + "\n", "\n", make_train_event(1, 5)], {1: 5}),
        (
            [make_train_event(1, 5), '{"event": "train", "iteration": true, "loss": 1}\n', make_train_event(2, 4)],
            {1: 5, 2: 4},
        ),
        ([make_train_event(1, 5), '{"event": "train", "loss": 1}\n', '{"event": "train", "iteration": [7]}\n'], {1: 5}),
        (['{"event": "train", "iteration": 1, "loss": ' + "9" * 5000 + "}\n", make_train_event(2, 4)], {2: 4}),
    ],
)
def test_resumed_runs_and_truncated_or_damaged_lines(
    tmp_path: Path, events: list[Any], losses: dict[int, float]
) -> None:
    (tmp_path / "m.jsonl").write_text(format_json_lines(*events))
    assert {r["NumIters"]: r["loss"] for r in read_log(tmp_path / "m.jsonl").loss} == losses


def test_the_seconds_of_a_resumed_run_continue(tmp_path: Path) -> None:
    events = [
        START_EVENT,
        make_train_event(0, 5, 1),
        make_train_event(2, 4, 10),
        make_train_event(3, 4, 20),
        make_start_event(2),
        make_train_event(3, 4, 7),
    ]
    (tmp_path / "m.jsonl").write_text(format_json_lines(*events))
    assert [r["Seconds"] for r in read_log(tmp_path / "m.jsonl").loss] == [1, 10, 17]


def test_panels_are_of_the_loss_each_test_output_and_the_rate(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(CURRENT_LOG)
    (tmp_path / "b.jsonl").write_text(format_json_lines(*EVENTS))
    logs = [read_log(tmp_path / name) for name in ("a.log", "b.jsonl")]
    loss, accuracy, rate = make_panels(logs)
    assert [panel.title for panel in (loss, accuracy, rate)] == ["loss", "test accuracy", "learning rate"]
    assert [(c.run_index, c.is_test) for c in loss.curves] == [(0, False), (0, True), (1, False), (1, True)]
    assert loss.curves[0].points("NumIters")[0] == [0, 100, 200]
    assert loss.curves[1].points("Seconds") == ([1.5, 5], [2.5, 1e-05])
    assert [(c.run_index, c.points("NumIters")) for c in accuracy.curves] == [
        (0, ([0, 200], [0.1, 1])),
        (1, ([0, 200], [0.1, 1])),
        (1, ([200], [0.5])),
    ]
    assert [(c.run_index, c.points("NumIters")[1]) for c in rate.curves] == [
        (0, [0.01, 9.9e-05]),
        (1, [0.01] + [9.9e-05] * 2),
    ]


def test_outputs_of_several_nets_and_of_many_values(tmp_path: Path) -> None:
    def make_test_event(iteration: int, net: int, **outputs: Any) -> dict[str, Any]:
        return {"event": "test", "iteration": iteration, "net": net, "outputs": outputs}

    events = [
        make_test_event(step, net, acc=0.5 + net / 4, per_class=list(range(20))) for step in (0, 5) for net in (0, 1)
    ]
    (tmp_path / "m.jsonl").write_text(format_json_lines(*events))
    panels = {panel.title: panel.curves for panel in make_panels([read_log(tmp_path / "m.jsonl")])}
    assert list(panels) == [f"test {name} (net {net})" for net in (0, 1) for name in ("acc", "per_class")]
    assert panels["test acc (net 1)"][0].points("NumIters") == ([0, 5], [0.75, 0.75])
    assert panels["test per_class (net 0)"][0].points("NumIters") == ([0, 5], [9.5, 9.5])


@pytest.mark.parametrize(
    ("values", "width", "means"),
    [
        ([1, 2, 6, 4], 1, [1, 2, 6, 4]),
        ([1, 2, 6, 4], 3, [1, 3, 4, 4]),
        ([1, NAN, 6, 4, 9], 3, [1, 3.5, 5, 19 / 3, 9]),
        ([0, 10, 20, 30, 40], 99, [0, 10, 20, 30, 40]),
        ([NAN, NAN], 5, [NAN, NAN]),
        ([], 5, []),
    ],
)
def test_the_moving_mean_ignores_nan(values: list[float], width: int, means: list[float]) -> None:
    assert moving_average(values, width) == pytest.approx(means, nan_ok=True)


def test_the_figure_shows_the_curves(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(CURRENT_LOG)
    logs = {name: read_log(tmp_path / f"{name}.log") for name in "ab"}
    figure = draw_runs(logs, axis="seconds", smooth=3, log_loss=True)
    loss, accuracy, _ = figure.axes
    assert loss.get_yscale() == "log"
    assert [axes.get_xlabel() for axes in figure.axes] == ["seconds"] * 3
    curves = [tuple(map(tuple, line.get_xydata())) for line in loss.lines]
    assert len(curves) == 2 * (2 + 1)  # training as it is and moving_average, tests as they are
    assert curves[2] == ((1.5, 2.5), (5, 1e-05))
    assert loss.lines[0].get_color() != loss.lines[3].get_color()
    assert len(accuracy.lines) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "training", "test"]


@pytest.mark.parametrize("runs", ["a", "ab"])
def test_each_element_of_a_vector_has_its_colour_and_its_line_in_a_legend(tmp_path: Path, runs: str) -> None:
    columns = {"loss": 1, "per_class": 0.1, "per_class[1]": 0.2, "per_class[2]": 0.3}
    events = [{"event": "test", "iteration": i, "outputs": columns} for i in (0, 1)]
    for name in runs:
        (tmp_path / f"{name}.jsonl").write_text(format_json_lines(*events))
    loss, per_class = draw_runs({name: read_log(tmp_path / f"{name}.jsonl") for name in runs}).axes
    assert [line.get_ydata()[0] for line in per_class.lines] == [0.1, 0.2, 0.3] * len(runs)
    assert len({str(line.get_color()) for line in per_class.lines}) == 3 * len(runs)
    prefixes = [""] if runs == "a" else ["a: ", "b: "]
    labels = [text.get_text() for text in per_class.get_legend().get_texts()]
    assert labels == [f"{prefix}[{i}]" for prefix in prefixes for i in range(3)]
    assert loss.get_legend() is None


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_are_written_in_each_format(
    tmp_path: Path, suffix: str, magic: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text(CURRENT_LOG)
    (tmp_path / "b.metrics.jsonl").write_text(format_json_lines(*EVENTS))
    logs = [str(tmp_path / "a.log"), str(tmp_path / "b.metrics.jsonl")]
    assert main(["plot", *logs, f"--out={tmp_path / 'p'}.{suffix}", "--smooth=2", "--x=seconds"]) == 0
    assert (tmp_path / f"p.{suffix}").read_bytes().startswith(magic)
    if suffix == "svg":
        for name in ("a", "b", "test accuracy"):
            assert f"<!-- {name} -->" in (tmp_path / "p.svg").read_text()


def test_dollars_in_names_and_huge_numbers_are_drawn(tmp_path: Path) -> None:
    test_event = {"event": "test", "iteration": 0, "outputs": {"$\\frac$": 1, "\u5f35\x1b": 2}}
    (tmp_path / "m.jsonl").write_text(
        "\ufeff" + format_json_lines(make_train_event(0, 1e308), make_train_event(1, -1e308), test_event),
        encoding="utf-8",
    )
    log_path = str(tmp_path / "m.jsonl")
    assert main(["plot", log_path, f"--out={tmp_path}/m.svg", "--names=$^$"]) == 0
    assert "m.svg" in {path.name for path in tmp_path.iterdir()}


def test_too_many_panels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test_event = {"event": "test", "iteration": 0, "outputs": {f"o{i}": i for i in range(3000)}}
    (tmp_path / "m.jsonl").write_text(format_json_lines(test_event))
    assert main(["plot", f"{tmp_path}/m.jsonl", f"--out={tmp_path}/m.png"]) == 1
    assert "there are 3000 panels to draw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["x/lenet.metrics.jsonl"], ["lenet"]),
        (["a/train.log", "b/train.log", "c.txt"], ["a/train", "b/train", "c"]),
        (["snapshots"], ["snapshots"]),
    ],
)
def test_runs_are_named_after_their_files(paths: list[str], names: list[str]) -> None:
    assert name_runs(paths) == names


def test_all_files_that_are_not_logs_are_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(bytes(range(256)) * 999)
    Path("empty").touch()
    Path("huge").write_text("Iteration " * 4_000_000)
    Path("truncated.jsonl").write_text('{"event": "train", "iteration": 5, "lo')
    Path("good.log").write_text(CURRENT_LOG)
    invalid_files = ["binary", "empty", "huge", "truncated.jsonl", "absent", "."]
    output = run_with_error(capsys, "plot", "good.log", *invalid_files, "--out=p.png").splitlines()
    assert [re.sub(r"caffejax: (.*?): .*", r"\1", line) for line in output] == invalid_files
    assert not Path("p.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out=p.xyz"], r"p\.xyz: .*is not a picture format"),
        (["--out=none/p.png"], "create the folder first"),
        (["--out=."], r"\.: .*"),
        (["--names=a,b"], "names 2 runs, but there are 1"),
        (["a.log"], "named twice"),
    ],
)
def test_figures_that_cannot_be_written_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(CURRENT_LOG)
    assert re.search(message, run_with_error(capsys, "plot", "a.log", *arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
