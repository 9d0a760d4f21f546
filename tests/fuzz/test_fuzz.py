"""Damaged files of every format are read or refused: a few by default, many in CI, and those once found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import case_files, format_names, read_files
from .outcomes import Outcome
from .pool import Worker
from .run import fuzz
from .run_case import judge

CASES = Path(__file__).parent / "cases"
SECONDS = 4  # for each format, without what it takes to begin
SLOW = {"checkpoints", "solver", "solverstate", "solverstate_h5"}  # to begin
STORED_CASES = [
    pytest.param(case, id=f"{format.name}-{case.name}", marks=[pytest.mark.slow] if format.name in SLOW else [])
    for format in sorted(CASES.iterdir())
    for case in sorted(format.iterdir())
]
QUICK = [name for name in format_names() if name not in SLOW]


def explanation(format: str, seed: object, outcome: Outcome) -> str:
    return f"{format}, {seed}: {outcome.signature}\n{outcome.text}"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all formats: it takes seconds to start."""
    result = Worker()
    yield result
    result.close()


@pytest.mark.parametrize("case", STORED_CASES)
def test_kept_findings_stay_fixed(case: Path, tmp_path: Path) -> None:
    format, number = case.parent.name, int(case.name.partition("@")[2])
    outcome = judge(format, number, read_files(case), tmp_path / "case")
    assert not outcome.is_finding, explanation(format, case.name, outcome)


@pytest.mark.parametrize("format", QUICK)
def test_some_damaged_files_are_read_or_refused(format: str, tmp_path: Path) -> None:
    for seed in range(1, 6):
        number, files = case_files(format, seed)
        outcome = judge(format, number, files, tmp_path / str(seed))
        assert not outcome.is_finding, explanation(format, seed, outcome)


@pytest.mark.long
@pytest.mark.parametrize("format", format_names())
def test_damaged_files_are_read_or_refused(format: str, worker: Worker) -> None:
    """As many cases as there is time for, from a fixed seed on; some can be read, others are refused."""
    tally = fuzz(format, 1, seconds=SECONDS, worker=worker)
    for seed, outcome in tally.findings.values():
        raise AssertionError(explanation(format, seed, outcome))
    assert tally.kinds["refused"] > 5, tally
    assert tally.kinds["read"] > 0, tally
