"""Fuzzing of formats in turn for some time; findings are stored in a folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .harness import make_case, write_files
from .outcomes import Outcome
from .worker_process import Worker


@dataclass
class Tally:
    """The results of a format's cases.

    Attributes:
        counts_by_kind: the number of outcomes of each kind.
        findings: the first case of each finding, by its signature: seed and outcome.
        seconds: spent on cases.
        max_seconds: the time of the slowest case, in seconds.
    """

    counts_by_kind: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[int, Outcome]] = field(default_factory=dict)
    seconds: float = 0.0
    max_seconds: float = 0.0

    @property
    def num_cases(self) -> int:
        """How many there were."""
        return sum(self.counts_by_kind.values())

    def add(self, seed: int, outcome: Outcome) -> bool:
        """Count an outcome; return whether it is a new finding."""
        self.counts_by_kind[outcome.kind] += 1
        self.max_seconds = max(self.max_seconds, outcome.seconds)
        is_new = outcome.is_finding and outcome.signature not in self.findings
        if is_new:
            self.findings[outcome.signature] = seed, outcome
        return is_new

    def __str__(self) -> str:
        rate = self.num_cases / self.seconds if self.seconds else 0.0
        counts = ", ".join(f"{count} {kind}" for kind, count in self.counts_by_kind.most_common())
        return f"{self.num_cases} cases, {rate:.0f} a second, slowest {self.max_seconds:.1f} s: {counts}"


def fuzz(
    format: str,
    first_seed: int,
    *,
    seconds: float | None = None,
    num_cases: int | None = None,
    findings_folder: Path | None = None,
    worker: Worker | None = None,
    report: Callable[[str], object] = lambda line: None,
) -> Tally:
    """Read the cases of consecutive seeds, for a time or a number of cases.

    Args:
        format: its name.
        first_seed: the first seed.
        seconds: the time limit.
        num_cases: the number of cases.
        findings_folder: a folder for the first case of each finding.
        worker: the process to use; default: a new one, which is ended afterwards.
        report: called with a line about each finding.
    """
    tally, active_worker = Tally(), worker or Worker()
    try:
        seed, start_time = first_seed, None
        while (num_cases is None or tally.num_cases < num_cases) and (
            seconds is None or start_time is None or time.monotonic() - start_time < seconds
        ):
            outcome = active_worker.run_seed(format, seed)
            start_time = time.monotonic() if start_time is None else start_time  # the first one starts the process
            if tally.add(seed, outcome):
                report(f"{format}, seed {seed}: {outcome.signature}")
                if findings_folder is not None:
                    store_case(findings_folder, format, seed, outcome)
            seed += 1
        tally.seconds = time.monotonic() - (start_time or time.monotonic())
    finally:
        if worker is None:
            active_worker.close()
    return tally


def store_case(folder: Path, format: str, seed: int, outcome: Outcome) -> None:
    """Store a case: its files in `files@<set>`, the outcome beside it."""
    intact_index, files = make_case(format, seed)
    case_folder = folder / format / str(seed)
    write_files(case_folder / f"files@{intact_index}", files)
    (case_folder / "outcome.json").write_text(json.dumps(outcome.to_json(), indent=1))
    (case_folder / "said.txt").write_text(outcome.text)
