"""Start competitors in separate processes, and run them in turn.

Other load on the machine so falls on all alike, and none meets another's threads or memory.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import select
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
TURN_MILLISECONDS = 300  # about


class Competitor:
    """A process that runs a net on request; see `competitor_server.serve`."""

    def __init__(
        self, command: list[str], threads: int, cache: Path | None = None, patience: float | None = None
    ) -> None:
        """Start the process, and wait for its first run at most `patience` seconds (default: for ever).

        Raises:
            RuntimeError: the process ended, or was not ready in time.
        """
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        if cache is not None:
            environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache)}
        pipe, text = subprocess.PIPE, True
        self.process = subprocess.Popen(command, cwd=FOLDER, stdin=pipe, stdout=pipe, text=text, env=environment)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        if not ready:
            self.process.kill()
        answer = self._answer()
        self.first, self.result = answer["first"], np.array(answer["result"])

    def run(self, num_runs: int) -> float:
        """Return the median of `num_runs` runs, in milliseconds."""
        return statistics.median(self._ask(f"run {num_runs}"))

    def end(self) -> dict[str, float]:
        answer = self._ask("end")
        self.process.wait()
        return answer

    def _ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self.process.args))} ended")  # type: ignore[arg-type]
        return json.loads(line)


def start_with_filled_cache(command: list[str], threads: int, cache: Path) -> tuple[float, Competitor]:
    """Start a caffejax competitor twice; return the first one's seconds, and the second, whose cache is filled."""
    first_competitor = Competitor(command, threads, cache)
    first_competitor.end()
    return first_competitor.first, Competitor(command, threads, cache)


def time_in_turns(competitors: Mapping[str, Competitor], rounds: int, min_runs: int = 3) -> dict[str, list[float]]:
    """Return the milliseconds of each competitor in each round; all run once in a round, in turn."""
    num_runs = {name: _choose_runs(competitor.run(2), min_runs) for name, competitor in competitors.items()}
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(rounds):
        for name, competitor in competitors.items():
            times[name].append(competitor.run(num_runs[name]))
    return times


def _choose_runs(milliseconds: float, min_runs: int) -> int:
    """Return the number of runs in a turn: many for fast nets, one if a run takes more than a second."""
    return 1 if milliseconds > 1000 else max(min_runs, min(500, int(TURN_MILLISECONDS / milliseconds)))


def median_ratio(slow: Iterable[float], fast: Iterable[float]) -> float:
    """Return the median over rounds of the ratio of times, slow / fast."""
    return statistics.median(b / a for a, b in zip(fast, slow, strict=True))


def describe_run(options: Any, versions: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the conditions that affect the reliability of measurements, as JSON values; call it first."""
    cpu = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    return {
        "date": str(datetime.date.today()),
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "threads": options.threads,
        "load": round(os.getloadavg()[0], 2),
        "rounds": options.rounds,
        "versions": {name: version for name, version in versions.items() if version},
    }


def format_headline(run: Mapping[str, Any]) -> str:
    """Return the description of a run as a sentence."""
    versions = "".join(f", {name} {version}" for name, version in run["versions"].items())
    return (
        f"{run['date']}, {run['processor']}, {run['threads']} threads, load {run['load']} before it, "
        f"medians of {run['rounds']} rounds{versions}"
    )


def format_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def format_head(columns: Iterable[str]) -> str:
    names = list(columns)
    return f"{format_row(names)}\n|{'---|' * len(names)}"
