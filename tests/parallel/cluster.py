"""Processes on the loopback interface that train together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent


class Cluster:
    """One process for each command, with its output in a file. All are killed at the end.

    Args:
        folder: the folder of the outputs.
        commands: one for each process; `{address}` in them becomes host and port of process 0.
        environments: additional environment variables of each process.
    """

    def __init__(
        self, folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]] = ()
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        # as many threads as there are cores would wait for each other; what is compiled runs shortly
        environment = dict(os.environ, JAX_PLATFORMS="cpu")
        self._files = [folder / f"process{i}.log" for i in range(len(commands))]
        self.processes = []
        for i, (command, path) in enumerate(zip(commands, self._files, strict=True)):
            variables = environment | dict(environments[i] if environments else {})
            words = [word.replace("{address}", address) for word in command]
            with path.open("w") as out:
                self.processes.append(subprocess.Popen(words, stdout=out, stderr=out, env=variables, cwd=folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def read_output(self, number: int) -> str:
        """Return the output of a process so far."""
        return self._files[number].read_text()

    def wait_for(self, number: int, text: str, seconds: float = 120) -> None:
        """Wait until a process has said something."""
        end = time.monotonic() + seconds
        while text not in self.read_output(number):
            assert time.monotonic() < end, f"no '{text}' in {self.read_output(number)}"
            assert self.processes[number].poll() is None, self.read_output(number)
            time.sleep(0.05)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Wait until a condition holds, while all processes run."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.read_output(0)
            assert all(process.poll() is None for process in self.processes), self.read_output(0)
            time.sleep(0.05)

    def wait(self, seconds: float = 120) -> list[int]:
        """Wait for the end of all; return their codes."""
        end = time.monotonic() + seconds
        codes = []
        for number, process in enumerate(self.processes):
            try:
                codes.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"process {number} goes on: {self.read_output(number)}") from None
        return codes

    def kill(self, number: int, signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a process a signal."""
        self.processes[number].send_signal(signal)


TRAIN = (sys.executable, "-m", "caffejax", "train")


def train_commands(processes: int, *flags: str) -> list[list[str]]:
    """The commands of `caffejax train` in several processes."""
    command = [*TRAIN, "--coordinator={address}", f"--processes={processes}", *flags]
    return [[*command, f"--process_id={i}"] for i in range(processes)]


def worker_commands(processes: int, devices: int, out: Path, jobs: Sequence[str]) -> list[list[str]]:
    """The commands of `process_worker.py`."""
    start = [sys.executable, str(HERE / "process_worker.py"), "{address}", str(processes)]
    return [[*start, str(i), str(devices), str(out), *jobs] for i in range(processes)]
