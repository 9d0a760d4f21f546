"""Fuzzing of formats in turn for some time; findings are stored in a folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .harness import case_files, write_files
from .outcomes import Outcome
from .pool import Worker


@dataclass
class Tally:
    """The results of a format's cases.

    Attributes:
        kinds: the number of outcomes of each kind.
        findings: the first case of each finding, by its signature: seed and outcome.
        seconds: spent on cases.
        slowest: the time of the slowest case, in seconds.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[int, Outcome]] = field(default_factory=dict)
    seconds: float = 0.0
    slowest: float = 0.0

    @property
    def cases(self) -> int:
        """How many there were."""
        return sum(self.kinds.values())

    def add(self, seed: int, outcome: Outcome) -> bool:
        """Count an outcome; return whether it is a new finding."""
        self.kinds[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        is_new = outcome.is_finding and outcome.signature not in self.findings
        if is_new:
            self.findings[outcome.signature] = seed, outcome
        return is_new

    def __str__(self) -> str:
        rate = self.cases / self.seconds if self.seconds else 0.0
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return f"{self.cases} cases, {rate:.0f} a second, slowest {self.slowest:.1f} s: {kinds}"


def fuzz(
    format: str,
    first_seed: int,
    *,
    seconds: float | None = None,
    cases: int | None = None,
    findings: Path | None = None,
    worker: Worker | None = None,
    report: Callable[[str], object] = lambda line: None,
) -> Tally:
    """Read the cases of consecutive seeds, for a time or a number of cases.

    Args:
        format: its name.
        first: the first seed.
        seconds: the time limit.
        cases: the number of cases.
        findings: a folder for the first case of each finding.
        worker: the process to use; default: a new one, which is ended afterwards.
        report: called with a line about each finding.
    """
    tally, used_worker = Tally(), worker or Worker()
    try:
        seed, begin = first_seed, None
        while (cases is None or tally.cases < cases) and (
            seconds is None or begin is None or time.monotonic() - begin < seconds
        ):
            outcome = used_worker.ask_seed(format, seed)
            begin = time.monotonic() if begin is None else begin  # the first one starts the process
            if tally.add(seed, outcome):
                report(f"{format}, seed {seed}: {outcome.signature}")
                if findings is not None:
                    store_case(findings, format, seed, outcome)
            seed += 1
        tally.seconds = time.monotonic() - (begin or time.monotonic())
    finally:
        if worker is None:
            used_worker.close()
    return tally


def store_case(folder: Path, format: str, seed: int, outcome: Outcome) -> None:
    """Store a case: its files in `files@<set>`, the outcome beside it."""
    number, files = case_files(format, seed)
    case_folder = folder / format / str(seed)
    write_files(case_folder / f"files@{number}", files)
    (case_folder / "outcome.json").write_text(json.dumps(outcome.to_json(), indent=1))
    (case_folder / "said.txt").write_text(outcome.text)
