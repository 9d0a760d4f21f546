"""JSON lines of training metrics: complete and valid, even if the file cannot be written."""

import json
import logging
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_run import NET, SETTINGS, EventRecorder, make_small_solver, train

from caffejax.base.errors import CaffejaxError, SolverError
from caffejax.base.glog import GlogFormatter
from caffejax.tools.logs import read_log
from caffejax.tools.metrics import JsonLines, json_lines


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, each parsed as strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_with_its_numbers(tmp_path: Path) -> None:
    event_recorder, json_lines = EventRecorder(), JsonLines(tmp_path / "new" / "m.jsonl")
    solver = make_small_solver(tmp_path)
    train(solver, event_recorder, json_lines)
    lines = read_lines(json_lines.path)
    expected = [event for event in event_recorder.events if event[0] != "step"]
    assert [(line["event"], line["iteration"]) for line in lines] == [event[:2] for event in expected]
    assert {line["event"] for line in lines} == {"start", "train", "test", "snapshot", "end"}
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    for line, (event, _, details) in zip(lines, expected, strict=True):
        if event == "train":
            assert np.float32(line["loss"]) == np.float32(details.loss)
            assert np.float32(line["lr"]) == np.float32(details.rate)
            assert line["outputs"].keys() == details.outputs.keys()
            for name, values in details.outputs.items():
                np.testing.assert_array_equal(np.float32(line["outputs"][name]), values, err_msg=name)
            if details.pace is not None:
                for name in ("iterations_per_second", "images_per_second", "waiting"):
                    assert line[name] == pytest.approx(getattr(details.pace, name))
        elif event == "test":
            (scores,) = details
            assert {name: np.float32(v) for name, v in line["outputs"].items()} == scores.outputs
            assert line["net"] == 0
        elif event == "snapshot":
            assert line["checkpoint"] == details
    start = lines[0]
    assert (start["net"], start["batch_size"], start["seed"], start["processes"]) == ("small", 8, 1, 1)
    assert start["solver"]["max_iter"] == 6
    assert len(start["devices"]) == 1
    assert lines[-1]["reason"] == "finished"


def test_the_lines_have_the_values_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    json_lines = JsonLines(tmp_path / "m.jsonl")
    with caplog.at_level(logging.INFO, logger="caffejax"):
        train(make_small_solver(tmp_path), json_lines)
    (tmp_path / "run.log").write_text("\n".join(map(GlogFormatter().format, caplog.records)))
    json_log, text_log = read_log(json_lines.path), read_log(tmp_path / "run.log")
    assert len(json_log.train) == 3
    assert len(json_log.test) == 3
    assert math.isnan(json_log.train[0]["worst"])  # JSON has no word for it
    for name in ("train", "test", "loss"):
        for a, b in zip(getattr(json_log, name), getattr(text_log, name), strict=True):
            assert a.keys() == b.keys()
            compared_columns = [
                key for key in a if key not in ("Seconds", "LearningRate")
            ]  # of a test the log knows the last rate
            assert [a[key] for key in compared_columns] == pytest.approx(
                [b[key] for key in compared_columns], rel=1e-4, nan_ok=True
            )
    assert [r["LearningRate"] for r in json_log.rate][:-1] == pytest.approx([r["LearningRate"] for r in text_log.rate])


@pytest.mark.parametrize(
    ("settings", "events"),
    [
        ("max_iter: 3 snapshot_after_train: false", ["start", "end"]),
        ("max_iter: 3 snapshot: 2", ["start", "snapshot", "snapshot", "end"]),
        ("max_iter: 2 test_interval: 2 test_iter: 1 snapshot_after_train: false", ["start", "test", "test", "end"]),
    ],
)
def test_without_display_there_are_tests_and_snapshots(tmp_path: Path, settings: str, events: list[str]) -> None:
    train(make_small_solver(tmp_path, settings), JsonLines(tmp_path / "m.jsonl"))
    assert [line["event"] for line in read_lines(tmp_path / "m.jsonl")] == events


def test_calls_of_step_are_recorded_too(tmp_path: Path) -> None:
    solver, json_lines = make_small_solver(tmp_path), JsonLines(tmp_path / "m.jsonl")
    solver.callbacks.append(json_lines)
    solver.step(1)
    solver.step(2)
    solver.close()
    json_lines.close()
    lines = read_lines(json_lines.path)
    assert [(line["event"], line["iteration"]) for line in lines] == [
        ("start", 0), ("test", 0), ("train", 0), ("train", 2)
    ]  # fmt: skip


def test_the_reason_for_an_early_end_is_recorded(tmp_path: Path) -> None:
    stopped_solver = make_small_solver(tmp_path)
    stopped_solver.callbacks.append(lambda s: s.request("stop") if s.iteration == 2 else None)
    train(stopped_solver, JsonLines(tmp_path / "stopped.jsonl"))
    end = read_lines(tmp_path / "stopped.jsonl")[-1]
    assert (end["event"], end["iteration"], end["reason"]) == ("end", 2, "stopped")
    diverging_solver = make_small_solver(
        tmp_path, "max_iter: 50 display: 1", NET.replace('"gaussian"', '"gaussian" std: 1e30')
    )
    with pytest.raises(SolverError, match="finite"):
        train(diverging_solver, JsonLines(tmp_path / "failed.jsonl"))
    lines = read_lines(tmp_path / "failed.jsonl")
    assert lines[-1]["reason"] == "failed"
    assert "finite" in lines[-1]["error"]


def test_a_resumed_run_continues_after_a_truncated_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    train(make_small_solver(tmp_path), JsonLines(path))
    complete_log, size = read_log(path), path.stat().st_size
    lines = path.read_text().splitlines(keepends=True)
    truncated_index = next(i for i, line in enumerate(lines) if '"train", "iteration": 4' in line)
    os.truncate(path, len("".join(lines[:truncated_index])) + 30)
    assert [row["NumIters"] for row in read_log(path).train] == [0, 2]
    train(make_small_solver(tmp_path), JsonLines(path), resume=tmp_path / "small.orbax" / "4")
    resumed_log = read_log(path)
    assert path.stat().st_size > size - 200
    assert path.read_text().count('"start"') == 2
    for name in ("train", "test", "loss"):
        for a, b in zip(getattr(resumed_log, name), getattr(complete_log, name), strict=True):
            assert a | {"Seconds": 0.0} == pytest.approx(b | {"Seconds": 0.0}, rel=1e-5, nan_ok=True)
    seconds = [row["Seconds"] for row in resumed_log.loss]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("num_bytes", [5, 40])
def test_a_run_continues_after_a_truncated_first_line(num_bytes: int, tmp_path: Path) -> None:
    json_lines = JsonLines(tmp_path / "m.jsonl")
    train(make_small_solver(tmp_path), json_lines)
    os.truncate(json_lines.path, num_bytes)
    for num_runs in (1, 2):
        train(make_small_solver(tmp_path), JsonLines(json_lines.path))
        assert json_lines.path.read_text().count('"versions"') == num_runs
    assert [row["NumIters"] for row in read_log(json_lines.path).loss] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", r"\.: cannot be written: Is a directory; name a file, not a folder; .*--metrics=off"),
        ("there.txt/m.jsonl", r"there\.txt/m\.jsonl: cannot be written: .*folder"),
        ("there.txt", r"there\.txt: exists and is not a file of metrics.*--metrics=FILE"),
        ("/proc/none/m.jsonl", r"/proc/none/m\.jsonl: cannot be written"),
    ],
)
def test_files_that_cannot_be_opened_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.txt").write_text("net: 1\n")
    solver = make_small_solver(tmp_path)
    with pytest.raises(CaffejaxError, match=message):
        train(solver, JsonLines(path))
    assert solver.iteration == 0
    assert Path("there.txt").read_text() == "net: 1\n"


def test_training_continues_when_the_disk_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here, which is always full")
    solver = make_small_solver(tmp_path)
    train(solver, JsonLines("/dev/full"))
    assert solver.iteration == 6
    assert len([r for r in caplog.records if "/dev/full: metrics cannot be written (No space left" in r.message]) == 1


def test_writing_continues_once_the_disk_has_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, sizes = os.write, iter([None, 10, 0, None, None])
    monkeypatch.setattr(json_lines.os, "write", lambda fd, data: write(fd, data[: next(sizes, None)]))
    path = tmp_path / "m.jsonl"
    train(make_small_solver(tmp_path, "max_iter: 4 display: 1"), JsonLines(path))
    result = [line for line in path.read_text().splitlines() if line]
    assert len(result) == 7
    complete_lines = [line for line in result if re.fullmatch(r"\{.*\}", line)]
    assert len(complete_lines) == 6
    assert [row["NumIters"] for row in read_log(path).loss] == [2, 3, 4]


def test_only_the_first_of_several_processes_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "is_first", lambda: False)
    train(make_small_solver(tmp_path, SETTINGS), JsonLines(tmp_path / "m.jsonl"))
    assert not (tmp_path / "m.jsonl").exists()
