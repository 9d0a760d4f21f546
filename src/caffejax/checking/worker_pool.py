"""Checks of many files in worker processes. A crash or hang of one worker does not affect the others."""

from __future__ import annotations

import importlib
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from ..errors import Problem
from ..options import Reading
from .check_report import Report, findings_of

_START = 120  # seconds for a process to start
_LENGTH = 8  # bytes of the length that precedes each reply


class _Worker:
    """One worker process. It starts on first use, and restarts after a crash or a hang."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, path: Path, weights: Sequence[str], reading: Reading, timeout: float) -> Report:
        """Return the report on a file. If the process crashes or exceeds `timeout` seconds, the report says so."""
        try:
            process = self._start()
            assert process.stdin is not None
            pickle.dump((os.fspath(path), list(weights), reading), process.stdin)
            process.stdin.flush()
            report = self._reply(timeout)
        except TimeoutError:
            self.end(hangs=True)
            return _crash_report(path, f"is still being checked after {timeout:g} s; raise --timeout to wait longer")
        except (EOFError, OSError, pickle.UnpicklingError):
            code = self.end()
            return _crash_report(path, f"the process that checked it ended with code {code}")
        assert isinstance(report, Report)
        return report

    def end(self, hangs: bool = False) -> int | None:
        """End the process and return its exit code; kill it if `hangs` is True."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()  # the process ends when its input is closed
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0 if hangs else 2)
        process.kill()
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            places = [p for p in (_package_folder(), os.environ.get("PYTHONPATH")) if p]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(places)}
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve_stdin; serve_stdin()", *self._imports],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self._reply(_START)
        return self._process

    def _reply(self, timeout: float) -> Any:
        end = time.monotonic() + timeout
        return pickle.loads(self._read(int.from_bytes(self._read(_LENGTH, end)), end))

    def _read(self, size: int, end: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe, content = self._process.stdout.fileno(), bytearray()
        while len(content) < size:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            piece = os.read(pipe, size - len(content))
            if not piece:
                raise EOFError
            content += piece
        return bytes(content)


def check_files(
    paths: Sequence[str | os.PathLike[str]],
    weights: Sequence[str | os.PathLike[str]] = (),
    *,
    jobs: int | None = None,
    timeout: float = 120,
    reading: Reading = Reading(),
    imports: Sequence[str] = (),
) -> Iterator[Report]:
    """Check many files in parallel; yield the reports in the order of the files, as they become available.

    Args:
        paths: the files.
        weights: as for `check_file`.
        jobs: number of processes; default: the number of cores.
        timeout: seconds for each file.
        reading: how existing data is read.
        imports: modules that each process imports first, such as those that register layer types.
    """
    files, names = [Path(path) for path in paths], [os.fspath(w) for w in weights]
    n = max(1, min(jobs or os.cpu_count() or 1, len(files)))
    idle: SimpleQueue[_Worker] = SimpleQueue()
    workers = [_Worker(imports) for _ in range(n)]
    for worker in workers:
        idle.put(worker)

    def check(path: Path) -> Report:
        worker = idle.get()
        try:
            return worker.check(path, names, reading, timeout)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(n) as threads:
        try:
            yield from threads.map(check, files)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.end()


def _crash_report(path: Path, message: str) -> Report:
    return Report(os.fspath(path), "net", findings_of([Problem(message)], "crash"))


def _package_folder() -> str:
    return str(Path(__file__).parents[2])


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer each request, `(path, weights, reading)`, with a report, until the input ends."""
    from .check import check_file

    _send("ready", replies)
    while True:
        try:
            path, weights, reading = pickle.load(requests)
        except EOFError:
            return
        try:
            report = check_file(path, weights, reading)
        except Exception as error:  # users' modules may raise any exception
            message = f"checking it raised {type(error).__name__}: {error}"
            report = Report(path, "net", findings_of([Problem(message)], "crash"))
        _send(report, replies)


def _send(reply: object, replies: BinaryIO) -> None:
    content = pickle.dumps(reply)
    replies.write(len(content).to_bytes(_LENGTH) + content)
    replies.flush()


def serve_stdin() -> None:
    """Import the modules named on the command line, and answer requests on standard input until it is closed."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of users' modules must not reach the replies
    for module in sys.argv[1:]:
        importlib.import_module(module)
    serve(sys.stdin.buffer, replies)
