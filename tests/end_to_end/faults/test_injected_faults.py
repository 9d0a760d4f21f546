"""After any fault, resumed training gives equal weights, leaves no files behind, and prints one line on stderr."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from disturbances import KINDS
from disturbed_training import Job
from failing_file_system import IS_AVAILABLE, Fault, compile_shim

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="the failing file system needs Linux and a C compiler")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("faults"))


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(len(KINDS)), 83], ids=[*KINDS, "writes after an error"])
def test_random_faults_leave_consistent_files(job: Job, seed: int) -> None:
    assert job.find_problems(seed) == []


def test_a_kill_in_half_a_write_leaves_consistent_files(job: Job) -> None:
    seed = KINDS.index("kill in half a write") + 2 * len(KINDS)  # none of those above: they share the folder
    assert job.find_problems(seed) == []


def test_the_failing_file_system_fails_half_a_write(tmp_path: Path) -> None:
    """The shim itself, so that the tests above ask something: a disk that fills leaves half, and says so."""
    script = "import os; f = os.open('x', os.O_CREAT | os.O_WRONLY); print(os.write(f, b'abcd')); os.write(f, b'efgh')"
    fault = Fault(f"error={errno.ENOSPC}", operation_number=2, duration=0).make_variables(
        compile_shim(tmp_path), tmp_path
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, **fault}, capture_output=True, text=True
    )
    assert result.stdout == "2\n"
    assert "No space left on device" in result.stderr
    assert (tmp_path / "x").read_bytes() == b"ab"
