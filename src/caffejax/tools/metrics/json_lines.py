"""Training metrics as JSON lines. The package `logs` reads them."""

from __future__ import annotations

import os
import platform
import stat
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..._version import __version__
from ...base.atomic_write import make_write_problem
from ...base.errors import Problem, SolverError
from ...core.parallel.mesh import is_first
from ...core.solver import Callback, Display, Scores, Solver
from ...core.solver.reporting import log
from ..logs.log_parser import format_event, parse_event


class JsonLines(Callback):
    """Callback that appends a line to a file at each display, test and snapshot, and at the start and end of training.

    Each line is one JSON object and is written by one system call, so that a killed run leaves complete lines. If a
    line cannot be written, one warning is logged, and training continues. If several processes train together, only the
    first process writes.

    Args:
        path: the file. The file and its folder are created when training starts.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd: int | None = None
        self._start_time = time.perf_counter()
        self._ends_mid_line = self._has_warned = False

    def on_start(self, solver: Solver) -> None:
        """Open the file, and write a line that describes the run.

        Raises:
            SolverError: if the file cannot be written, or contains something other than metrics.
        """
        if not is_first():
            return
        self.close()
        self._open()
        self._start_time = time.perf_counter()
        self._write(solver, "start", _describe_run(solver))

    def on_display(self, solver: Solver, display: Display) -> None:
        """Write the displayed values."""
        loss = _shortest_decimal(display.loss)
        fields = {"loss": loss, **_name_rate(display.rate), "outputs": convert_outputs(display.outputs)}
        if display.pace is not None:
            fields |= {
                name: _shortest_decimal(value) for name, value in display.pace._asdict().items() if name != "seconds"
            }
        self._write(solver, "train", fields, display.iteration)

    def on_test(self, solver: Solver, results: list[Scores]) -> None:
        """Write one line with the scores for each test net."""
        for net_index, scores in enumerate(results):
            fields = {"net": net_index, "loss": _shortest_decimal(scores.loss), **_name_rate(solver.rate)}
            self._write(solver, "test", {**fields, "outputs": convert_outputs(scores.outputs)})

    def on_snapshot(self, solver: Solver, checkpoint: str) -> None:
        """Write the path of the snapshot."""
        self._write(solver, "snapshot", {"checkpoint": checkpoint})

    def on_end(self, solver: Solver, error: BaseException | None) -> None:
        """Write the reason for the end of training, and close the file."""
        if self._fd is None:
            return
        reason = "stopped" if solver.iteration < solver.param.max_iter else "finished"
        failure = {"reason": "failed", "error": str(error) or type(error).__name__}
        self._write(solver, "end", {"reason": reason} if error is None else failure)
        self.close()

    def close(self) -> None:
        """Close the file. The next event of a solver opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                return
            with open(self.path, "rb") as file:
                first_line = file.readline(2**24)
                self._ends_mid_line = bool(first_line) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
        except OSError as error:
            self.close()
            problem = make_write_problem(self.path, error)
            raise SolverError(replace(problem, message=f"{problem.message}; {_REMEDY}")) from error
        is_event = parse_event(first_line.decode(errors="replace")) is not None
        if first_line and not is_event and not _is_truncated_start(first_line.strip()):
            self.close()
            raise SolverError(
                Problem(f"exists and is not a file of metrics, so no metrics are appended; {_REMEDY}", str(self.path))
            )

    def _write(self, solver: Solver, event: str, fields: Mapping[str, Any], iteration: int | None = None) -> None:
        if not is_first():
            return
        if self._fd is None:
            self.on_start(solver)
        assert self._fd is not None
        common_fields = {
            "event": event,
            "iteration": solver.iteration if iteration is None else iteration,
            "seconds": round(time.perf_counter() - self._start_time, 6),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        line = b"\n" * self._ends_mid_line + format_event({**common_fields, **fields})
        try:
            num_written = os.write(self._fd, line)
            reason = "" if num_written == len(line) else "the disk is full"
            self._ends_mid_line = self._ends_mid_line if not num_written else num_written < len(line)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason and not self._has_warned:
            self._has_warned = True
            log.warning("%s: metrics cannot be written (%s); training continues without them", self.path, reason)


def _is_truncated_start(line: bytes) -> bool:
    """Return whether a line is a truncated "start" line, which a killed run or a full disk can cause."""
    return line.startswith(_START_PREFIX) or (line != b"" and _START_PREFIX.startswith(line))


def _describe_run(solver: Solver) -> dict[str, Any]:
    """Return the fields of the "start" line: versions, solver, net, batch size, devices, processes and seed."""
    param = solver.param
    versions = {"caffejax": __version__, "jax": jax.__version__, "python": platform.python_version()}
    settings = {name: getattr(param, name) for name in ("type", "lr_policy", "max_iter")}
    settings["base_lr"] = _shortest_decimal(param.base_lr)
    return {
        "versions": versions,
        "solver": {"file": None if solver.file is None else str(solver.file), **settings},
        "net": solver.net.graph.name,
        "batch_size": solver.batch_size,
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in solver.devices],
        "processes": jax.process_count(),
        "seed": solver.seed,
    }


_START_PREFIX = b'{"event": "start"'
_REMEDY = "choose a different file for the metrics (--metrics=FILE), or turn them off (--metrics=off)"


def convert_outputs(outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return outputs with one value as numbers, and other outputs as flat lists."""
    lists = {name: [_shortest_decimal(value) for value in np.ravel(values)] for name, values in outputs.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def _name_rate(rate: float) -> dict[str, float]:
    """Return the field of the learning rate, or none for NaN, the rate of a solver with an optimizer of optax."""
    return {} if np.isnan(rate) else {"lr": _shortest_decimal(rate)}


def _shortest_decimal(value: float) -> float:
    """Return the shortest decimal number that equals `value` in float32, the dtype of training."""
    return float(str(np.float32(value)))
