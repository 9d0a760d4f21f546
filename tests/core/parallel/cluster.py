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

FOLDER = Path(__file__).parent


class Cluster:
    """A process for each command, with its output in a file; all processes are killed at the end.

    Args:
        folder: the folder of the outputs.
        commands: one for each process; `{address}` in them is replaced by host and port of process 0.
        environments: additional environment variables of each process.
    """

    def __init__(
        self, folder: Path, commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]] = ()
    ) -> None:
        with socket.socket() as free_socket:
            free_socket.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free_socket.getsockname()[1]}"
        # as many threads as there are cores would wait for each other; what is compiled runs shortly
        environment = dict(os.environ, JAX_PLATFORMS="cpu")
        self._log_paths = [folder / f"process{i}.log" for i in range(len(commands))]
        self.processes = []
        for i, (command, path) in enumerate(zip(commands, self._log_paths, strict=True)):
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

    def read_output(self, process_index: int) -> str:
        """Return the output of a process so far."""
        return self._log_paths[process_index].read_text()

    def wait_for(self, process_index: int, text: str, seconds: float = 120) -> None:
        """Wait until the output of a process contains a text."""
        end = time.monotonic() + seconds
        while text not in self.read_output(process_index):
            assert time.monotonic() < end, f"no '{text}' in {self.read_output(process_index)}"
            assert self.processes[process_index].poll() is None, self.read_output(process_index)
            time.sleep(0.05)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Wait until a condition holds, while all processes run."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.read_output(0)
            assert all(process.poll() is None for process in self.processes), self.read_output(0)
            time.sleep(0.05)

    def wait(self, seconds: float = 120) -> list[int]:
        """Wait for all processes to end; return their exit codes."""
        end = time.monotonic() + seconds
        codes = []
        for process_index, process in enumerate(self.processes):
            try:
                codes.append(process.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"process {process_index} goes on: {self.read_output(process_index)}") from None
        return codes

    def kill(self, process_index: int, signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process."""
        self.processes[process_index].send_signal(signal)


TRAIN = (sys.executable, "-m", "caffejax", "train")


def make_train_commands(num_processes: int, *flags: str) -> list[list[str]]:
    """Return the commands of `caffejax train` in several processes."""
    command = [*TRAIN, "--coordinator={address}", f"--processes={num_processes}", *flags]
    return [[*command, f"--process_id={i}"] for i in range(num_processes)]


def make_worker_commands(num_processes: int, num_devices: int, out: Path, jobs: Sequence[str]) -> list[list[str]]:
    """Return the commands that run `process_worker.py` in several processes."""
    prefix = [sys.executable, str(FOLDER / "process_worker.py"), "{address}", str(num_processes)]
    return [[*prefix, str(i), str(num_devices), str(out), *jobs] for i in range(num_processes)]
