"""Run fuzz cases in a worker process, and report its crashes, hangs and excessive memory as outcomes."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .outcomes import MAX_MEMORY, MAX_SECONDS, Outcome

_TESTS = Path(__file__).parents[1]
_PREPARATION_SECONDS = 600  # seconds
_BUSY_FACTOR = 8  # times as long may a case take on a machine that has no time for it
_POLL_SECONDS = 0.05  # seconds between looks at the memory


class Worker:
    """A process that reads cases, started again when a case has ended it. Close it when done."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared_formats: set[str] = set()
        self._folder = Path()
        self._base_memory = 0  # bytes of memory before the first case of a format

    def run_seed(self, format: str, seed: int) -> Outcome:
        """Read the case of a seed."""
        return self._run(format, {"kind": "seed", "seed": seed})

    def run_folder(self, format: str, folder: Path, intact_index: int | None = None) -> Outcome:
        """Read the files in a folder, as a case made from an intact set if the set is known."""
        return self._run(format, {"kind": "folder", "folder": str(folder.resolve()), "set": intact_index})

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._process, self._prepared_formats = None, set()

    def _run(self, format: str, request: dict[str, Any]) -> Outcome:
        if self._process is None:
            self._start()
        if format not in self._prepared_formats:
            self._base_memory = 0
            preparation = self._send_request({"kind": "prepare", "format": format}, _PREPARATION_SECONDS)
            if preparation.kind != "read":
                self.close()
                raise RuntimeError(f"{format}: what is intact cannot be read: {preparation.text}")
            self._prepared_formats.add(format)
        self._base_memory = self._base_memory or self._resident_memory()
        outcome = self._send_request({**request, "format": format}, MAX_SECONDS)
        if outcome.kind in ("crash", "hang", "memory", "output"):
            self.close()
        return outcome

    def _start(self) -> None:
        self._folder = Path(
            tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        )
        paths = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        with open(self._folder / "stderr", "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fuzz.worker", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )

    def _send_request(self, request: dict[str, Any], seconds: float) -> Outcome:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps(request).encode() + b"\n"
        start, cpu_seconds_before, response = time.monotonic(), self._cpu_seconds(), b""
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._make_crash_outcome()
        while not response.endswith(b"\n"):
            if select.select([self._process.stdout], [], [], _POLL_SECONDS)[0]:
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
                if not piece:
                    return self._make_crash_outcome()
                response += piece
            elif (elapsed := time.monotonic() - start) > seconds and (
                self._cpu_seconds() - cpu_seconds_before > seconds / 2 or elapsed > _BUSY_FACTOR * seconds
            ):
                return Outcome("hang", self._find_hang_location(), self._read_stderr(), seconds)
            elif self._base_memory and self._resident_memory() - self._base_memory > 4 * MAX_MEMORY:
                return Outcome(
                    "memory",
                    "killed",
                    f"{(self._resident_memory() - self._base_memory) >> 20} MiB taken, and more to come",
                )
        return Outcome(**json.loads(response))

    def _make_crash_outcome(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return Outcome("crash", name, self._read_stderr())

    def _read_stderr(self) -> str:
        return (self._folder / "stderr").read_bytes()[-6000:].decode(errors="replace")

    def _find_hang_location(self) -> str:
        """Where it hangs, by the traceback that faulthandler has printed."""
        lines = [line.strip() for line in self._read_stderr().split("Timeout")[-1].splitlines() if "caffejax" in line]
        return lines[0].rsplit("/", 1)[-1] if lines else ""

    def _cpu_seconds(self) -> float:
        """Seconds that the process has computed."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _resident_memory(self) -> int:
        assert self._process is not None
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0
