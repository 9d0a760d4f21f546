"""Snapshots that cannot be written: training stops, or continues and tries again; no partial files remain."""

import contextlib
import errno
import logging
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffejax import Solver
from caffejax.base.errors import CaffejaxError, WeightsError
from caffejax.core.checkpoints.failed_saves import make_save_error, remove_failed_step
from caffejax.core.checkpoints.orbax import CheckpointFolder

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 6 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def make_solver(folder: Path, *, max_iter: int = 8, **options: Any) -> Solver:
    return Solver(
        f'net_param {{ {NET} }} base_lr: 0.01 lr_policy: "fixed" max_iter: {max_iter} snapshot: 2 '
        f'snapshot_prefix: "{folder / "runs" / "x"}"',
        **options,
    )


def block_checkpoint_folder(folder: Path) -> Path:
    """Create a file at the path of the checkpoint folder."""
    path = folder / "runs" / "x.orbax"
    path.write_text("in the way")
    return path


def block_parent_folder(folder: Path) -> Path:
    """Create a file at the path of the folder of all snapshots."""
    (folder / "runs").rmdir()
    (folder / "runs").write_text("in the way")
    return folder / "runs"


@pytest.fixture
def get_warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    monkeypatch.setattr(logging.getLogger("caffejax"), "propagate", True)
    return lambda: [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("obstacle", [block_checkpoint_folder, block_parent_folder])
def test_training_stops_if_a_snapshot_cannot_be_written(tmp_path: Path, obstacle: Callable[[Path], Path]) -> None:
    s = make_solver(tmp_path)
    obstacle(tmp_path)
    with pytest.raises(CaffejaxError, match=r"cannot (be written|write)"):
        s.solve()
    assert s.iteration < 8
    assert [p.name for p in tmp_path.rglob("*") if "tmp" in p.name] == []


@pytest.mark.parametrize("obstacle", [block_checkpoint_folder, block_parent_folder])
def test_training_continues_and_tries_again(
    tmp_path: Path, obstacle: Callable[[Path], Path], get_warnings: Callable[[], list[str]]
) -> None:
    s = make_solver(tmp_path, on_snapshot_error="continue")
    path = obstacle(tmp_path)
    s.step(5)
    with pytest.raises(CaffejaxError, match="cannot"):
        s.snapshots.wait()  # the newest
    logged_warnings = get_warnings()
    path.unlink()
    s.solve()
    s.close()
    assert logged_warnings
    pattern = r".*(cannot be written|cannot write).*\. Training continues; the next snapshot will be attempted"
    assert all(re.fullmatch(pattern, line) for line in logged_warnings), logged_warnings
    assert CheckpointFolder(tmp_path / "runs" / "x.orbax").steps() == [6, 8]


@pytest.mark.parametrize("max_iter", [8, 7])
@pytest.mark.parametrize("obstacle", [block_checkpoint_folder, block_parent_folder])
def test_the_last_snapshot_must_be_written(tmp_path: Path, obstacle: Callable[[Path], Path], max_iter: int) -> None:
    s = make_solver(tmp_path, on_snapshot_error="continue", max_iter=max_iter)
    s.callbacks.append(lambda s: obstacle(tmp_path) if s.iteration == 1 else None)
    with pytest.raises(CaffejaxError, match=r"cannot (be written|write)"):
        s.solve()
    assert s.iteration == max_iter


def test_a_failed_step_leaves_only_the_other_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = CheckpointFolder(tmp_path / "x.orbax")
    folder.save(1, {"params": {}}, {})
    with pytest.raises(WeightsError, match=r"x\.orbax/2: cannot be written"):
        folder.save(2, {"params": {"a": object()}}, {})
    assert [p.name for p in (tmp_path / "x.orbax").iterdir()] == ["1"]
    folder.save(3, {"params": {}}, {})
    assert folder.steps() == [1, 3]
    folder.close()
    assert capfd.readouterr().err == ""


def test_late_files_of_a_failed_step_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of tensorstore continue to write after it has reported a failure."""
    late_folder = tmp_path / "2.orbax-checkpoint-tmp" / "arrays"

    class Clock:
        now, file_times = 0.0, [0.1, 0.35]

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds
            if self.file_times and self.now > self.file_times[0]:
                self.file_times.pop(0)
                late_folder.mkdir(parents=True)

    monkeypatch.setattr("caffejax.core.checkpoints.failed_saves.time", clock := Clock())
    remove_failed_step(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []
    assert not clock.file_times
    assert clock.now < 1


def test_the_lock_is_held_until_the_last_snapshot_is_written(tmp_path: Path) -> None:
    s, lock_states = make_solver(tmp_path), []
    s.step(1)

    def write() -> None:
        time.sleep(0.1)
        lock_states.append((tmp_path / "runs" / "x.lock").exists())

    def fail() -> None:
        with s.snapshots.lock():
            s.snapshots._submit(write)
            raise ValueError("in training")

    with pytest.raises(ValueError, match="in training"):
        fail()
    assert lock_states == [True]
    s.close()


def _wrap_error(inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception as error:
            raise RuntimeError("of another library") from error
    except RuntimeError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "full"), f"{os.strerror(errno.ENOSPC)}; free space on the disk"),
        (_wrap_error(OSError(errno.ENOSPC, "full")), f"{os.strerror(errno.ENOSPC)}; free space on the disk"),
        (ValueError("UNKNOWN: long\nwords [os_error_code='5'] [x]"), os.strerror(errno.EIO)),
        (OSError(errno.ENOENT, "gone"), "its folder has been removed"),
        (ValueError("one line\nof many"), "one line"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_error_has_the_reason_of_the_file_system(error: Exception, words: str) -> None:
    assert str(make_save_error(Path("x.orbax"), 10, error)).endswith(f": {words}")
    assert str(make_save_error(Path("x.orbax"), 10, error)).startswith(
        "x.orbax/10: cannot be written: ".removesuffix(" ")
    )


FAILED_READS = """
import sys
from pathlib import Path

import numpy as np

from caffejax.base.errors import WeightsError
from caffejax.core.checkpoints.orbax import CheckpointFolder

folder = CheckpointFolder("x.orbax")
folder.save(1, {"params": {f"l{i}": {"weight": np.random.normal(size=(300, 50))} for i in range(12)}}, {})
num_refused = 0
for path in [p for p in Path("x.orbax").rglob("*") if p.is_file()] * 2:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    try:
        CheckpointFolder("x.orbax").restore()
    except WeightsError:
        num_refused += 1
    path.write_bytes(data)
assert num_refused > 8


class Faulty:
    def __del__(self):
        raise ValueError("of the user")


Faulty()
"""


def test_damaged_checkpoints_are_refused_in_silence(tmp_path: Path) -> None:
    """Reads that orbax abandoned end later, each with an error; those of others are still printed."""
    result = subprocess.run(
        [sys.executable, "-c", FAILED_READS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = result.stderr.splitlines()
    assert lines[0].startswith("Exception ignored in: <function Faulty.__del__"), result.stderr
    assert lines[-1] == "ValueError: of the user"
    assert len(lines) < 8


def test_a_checkpoint_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    def describe_process() -> list[Any]:
        filters = [list(logging.getLogger(name).filters) for name in ("absl", "asyncio")]
        return [sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning, filters]

    before = describe_process()
    with contextlib.closing(CheckpointFolder(tmp_path / "x.orbax")) as folder:
        folder.save(1, {"params": {"ip": {"weight": np.ones(3)}}}, {})
        folder.restore()
    assert describe_process() == before
