"""Only one run uses a snapshot prefix, and removes the temporary files of killed runs."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from caffejax.base.errors import SolverError
from caffejax.core.solver.snapshots import lock_prefix

HOLDER_SCRIPT = """
import sys, time
from caffejax.core.solver.snapshots import lock_prefix
with lock_prefix(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER_SCRIPT, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_is_refused_and_a_killed_run_holds_no_lock(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    message = rf"x\.lock: another run .* locked by process {holder.pid} on \S+; wait, or choose a different prefix"
    with pytest.raises(SolverError, match=message), lock_prefix(str(tmp_path / "x")):
        pass
    with lock_prefix(str(tmp_path / "y")):
        pass
    holder.kill()
    holder.wait()
    with lock_prefix(str(tmp_path / "x")):
        assert re.fullmatch(rf"process {os.getpid()} on \S+\n", (tmp_path / "x.lock").read_text())
    assert list(tmp_path.iterdir()) == []


def test_only_unfinished_files_are_removed(tmp_path: Path) -> None:
    finished_files = [
        "x.orbax/10/arrays",
        ".y_iter_5.caffemodel.ab.tmp",
        "x_iter_10.caffemodel",
        ".x_iter_5.caffemodel",
    ]
    unfinished_files = ["x.orbax/20.orbax-checkpoint-tmp-7/arrays/0", ".x_iter_20.caffemodel.abcd1234.tmp"]
    for name in (*finished_files, *unfinished_files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    with lock_prefix(str(tmp_path / "x")):
        (tmp_path / "x.orbax/30.orbax-checkpoint-tmp").mkdir()  # by tensorstore, of a step that could not be saved
    assert not (tmp_path / "x.orbax/30.orbax-checkpoint-tmp").exists()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(finished_files)


def test_a_lock_file_without_a_lock_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text("\x1b[2J hostile")
    with lock_prefix(str(tmp_path / "x")):
        pass
    with pytest.raises(SolverError, match="cannot be written: No such file"), lock_prefix(str(tmp_path / "no" / "x")):
        pass


def test_a_lock_that_cannot_be_removed_at_first_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, failures = Path.unlink, [OSError(errno.EIO, "once")]

    def fail_once(path: Path, missing_ok: bool = False) -> None:
        if failures:
            raise failures.pop()
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail_once)
    with lock_prefix(str(tmp_path / "x")):
        pass
    assert list(tmp_path.iterdir()) == []
