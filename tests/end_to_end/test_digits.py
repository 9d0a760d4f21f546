"""LeNet trained on real digits from the command line reaches the accuracy of Caffe's own runs."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from documentation_pages import run_page

from caffejax import read_caffemodel
from compile_flags import make_optimized_environment
from subprocesses import Program

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs" / "digits"
REFERENCE = json.loads((Path(__file__).parents[1] / "golden" / "digits" / "caffe_reference.json").read_text())
COMMAND = [sys.executable, "-m", "caffejax"]


def run_caffejax(*arguments: object, folder: Path) -> str:
    """Runs the command; what it says on stderr."""
    command = [*COMMAND, *map(str, arguments)]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=make_optimized_environment()
    )
    assert result.returncode == 0, result.stderr
    return result.stderr


def find_scores(log: str, name: str) -> dict[int, float]:
    """A test score by iteration."""
    pattern = rf"Iteration (\d+), Testing net \(#0\)(?:(?!Testing).)*?Test net output #\d: {name} = (\S+)"
    return {int(i): float(v) for i, v in re.findall(pattern, log, re.DOTALL)}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("digits")
    return folder, run_caffejax("train", f"--solver={CONFIGS / 'lenet_solver.prototxt'}", folder=folder)


def test_training_is_as_accurate_as_caffes(training: tuple[Path, str]) -> None:
    assert_learns_as_caffe(training[1])


@pytest.mark.long
def test_training_on_eight_devices_is_as_accurate_as_caffes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated ones, which share each batch out."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for each device; more would be in each other's way
    flags = ("--devices=8", "--batch=global")
    assert_learns_as_caffe(
        run_caffejax("train", f"--solver={CONFIGS / 'lenet_solver.prototxt'}", *flags, folder=tmp_path)
    )


def assert_learns_as_caffe(log: str) -> None:
    """Inside the band of Caffe's own runs, and at the same accuracy."""
    accuracy, loss = find_scores(log, "accuracy"), find_scores(log, "loss")
    runs = REFERENCE["runs"]
    assert list(accuracy) == list(loss) == runs[0]["iterations"]
    assert accuracy[1000] >= 0.98
    curves = np.array([r["test_loss"] for r in runs])
    low, high = curves.min(axis=0), curves.max(axis=0)
    margin = (high - low) / 2
    values = np.array(list(loss.values()))
    is_inside = (low - margin < values) & (values < high + margin)
    assert is_inside.all(), f"test loss {values} outside the band {low - margin} to {high + margin}"


def test_the_log_has_glogs_format(training: tuple[Path, str]) -> None:
    _, log = training
    # of the solver and the nets the text follows, up to an empty line
    lines = re.sub(r"(?<=from parameters: \n).*?\n\n", "", log, flags=re.DOTALL).splitlines()
    assert len(lines) < len(log.splitlines())
    assert all(re.match(r"[IW]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.py:\d+\] ", line) for line in lines), lines
    assert any(
        re.search(r"\] Iteration 100 \([\d.]+ iter/s, [\d.]+s/100 iters\), loss = [\d.]+$", line) for line in lines
    )


def test_snapshots_can_be_scored(training: tuple[Path, str]) -> None:
    folder, log = training
    weights = folder / "snapshots" / "lenet_iter_1000.caffemodel"
    assert {p.name for p in (folder / "snapshots" / "lenet.orbax").iterdir()} == {"250", "500", "750", "1000"}
    test_log = run_caffejax(
        "test", "-model", CONFIGS / "lenet_train_test.prototxt", "-weights", weights, "-iterations=4", folder=folder
    )
    (accuracy,) = re.findall(r"\] accuracy = (\S+)", test_log)
    assert float(accuracy) == pytest.approx(find_scores(log, "accuracy")[1000], rel=1e-5)


def test_code_of_the_first_page_runs_after_this_training(
    training: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/index.md begins with this training, tests and resumes it."""
    shutil.copytree(training[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run_page("index.md", capsys, skipped_commands={"caffejax train --solver=configs/digits/lenet_solver.prototxt"})


@pytest.mark.long
def test_a_killed_and_resumed_run_ends_with_the_same_params(tmp_path: Path) -> None:
    """kill -9 at a random moment; then --snapshot resumes to the same parameters as an uninterrupted run."""
    settings = (CONFIGS / "lenet_solver.prototxt").read_text()
    settings = re.sub(r"test_iter.*|test_interval.*", "", settings)
    settings = re.sub(r"max_iter: \d+", "max_iter: 60", re.sub(r"snapshot: \d+", "snapshot: 10", settings))
    settings = settings.replace("lenet_train_test", f"{CONFIGS}/lenet_train_test")
    for name in ("uninterrupted", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "solver.prototxt").write_text(settings)
    run_caffejax("train", "--solver=solver.prototxt", folder=tmp_path / "uninterrupted")

    folder = tmp_path / "killed"
    snapshots_left = random.choice(range(2, 5))  # snapshots to let pass; the first is complete when the third begins
    command = [*COMMAND, "train", "--solver=solver.prototxt"]
    with Program(command, cwd=folder, stderr=subprocess.PIPE, env=make_optimized_environment()) as process:
        assert process.stderr is not None
        for line in process.stderr:
            snapshots_left -= "Snapshotting solver state to checkpoint" in line
            if snapshots_left < 0:  # while this one is being written
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stderr.read()
    assert process.returncode == -signal.SIGKILL
    log = run_caffejax("train", "--solver=solver.prototxt", "--snapshot=snapshots/lenet.orbax", folder=folder)
    assert re.search(r"Restored iteration [1-5]0 ", log)
    uninterrupted, resumed = (
        read_caffemodel(tmp_path / name / "snapshots" / "lenet_iter_60.caffemodel")
        for name in ("uninterrupted", "killed")
    )
    assert uninterrupted.keys() == resumed.keys()
    for layer in uninterrupted:
        for a, b in zip(uninterrupted[layer], resumed[layer], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=layer)
