"""Reading processes that are killed, or whose program is killed: messages, and what is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from subprocesses import Program

SHARED_MEMORY = Path("/dev/shm")
TIMEOUT = 30  # seconds

# each batch has the marker, and the process that read it
PROGRAM = """
import os, signal, sys
import numpy as np
from caffejax.core.data import Batch, Pipeline
from caffejax.base.errors import DataError

class MarkedBatches:
    tops, batch_size, num_threads, num_examples = (), 1, 1, None

    def __init__(self, marker):
        self.marker = np.frombuffer(marker, np.uint8)

    def read(self, start):
        return Batch((np.tile(self.marker, 1 << 16), np.array(os.getpid())))

    def close(self):
        pass

if __name__ == "__main__":
    marker = bytes.fromhex(sys.argv[1])
    source = Pipeline(MarkedBatches(marker), 4, workers=1)
    os.kill(int(next(source)[1]), signal.SIGKILL)
    try:
        while True:
            next(source)
    except DataError as error:
        print(error, flush=True)
    source.close()
    source = Pipeline(MarkedBatches(marker), 4, workers=1)
    print(int(next(source)[1]), flush=True)
    while True:
        next(source)
"""


def find_memory(marker: bytes) -> list[Path]:
    """Return the files of shared memory that begin with a marker."""
    found = []
    for path in SHARED_MEMORY.iterdir():
        try:
            with open(path, "rb") as file:
                found += [path] * (file.read(len(marker)) == marker)
        except OSError:  # of another user, or already removed
            pass
    return found


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="needs /dev/shm, where Linux shows shared memory")
def test_workers_and_shared_memory_end_with_a_killed_program(tmp_path: Path) -> None:
    """A killed worker ends reading with one message; a killed program leaves neither workers nor memory."""
    program, marker = tmp_path / "program.py", os.urandom(16)
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), marker.hex()]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert "a process that reads the data has ended" in process.stdout.readline()
        worker = int(process.stdout.readline())
        assert is_running(worker)
        assert find_memory(marker)
        process.kill()
        try:  # the last process with this pipe is Python's resource tracker, which removes the memory
            _, errors = process.communicate(timeout=TIMEOUT)
        finally:
            was_running = is_running(worker)
            if was_running:
                os.kill(worker, signal.SIGKILL)
    assert errors == ""
    assert not was_running
    assert not find_memory(marker)
