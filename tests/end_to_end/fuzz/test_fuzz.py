"""Damaged files of every format are read or refused: a few cases by default, many in CI, and all earlier findings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import list_formats, make_case, read_files
from .outcomes import Outcome
from .run import fuzz
from .run_case import run_case
from .worker_process import Worker

CASES = Path(__file__).parent / "cases"
CASES_PER_FORMAT = 200  # a number instead of a time, so that each run reads the same cases
SLOW_FORMATS = {"checkpoints", "solver", "solverstate", "solverstate_h5"}  # to begin
STORED_CASES = [
    pytest.param(case, id=f"{format.name}-{case.name}")
    for format in sorted(CASES.iterdir())
    for case in sorted(format.iterdir())
]
QUICK_FORMATS = [name for name in list_formats() if name not in SLOW_FORMATS]


def describe_outcome(format: str, seed: object, outcome: Outcome) -> str:
    return f"{format}, {seed}: {outcome.signature}\n{outcome.text}"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all formats: it takes seconds to start."""
    result = Worker()
    yield result
    result.close()


@pytest.mark.parametrize("case", STORED_CASES)
def test_stored_cases_stay_fixed(case: Path, tmp_path: Path) -> None:
    format, intact_index = case.parent.name, int(case.name.partition("@")[2])
    outcome = run_case(format, intact_index, read_files(case), tmp_path / "case")
    assert not outcome.is_finding, describe_outcome(format, case.name, outcome)


@pytest.mark.parametrize("format", QUICK_FORMATS)
def test_some_damaged_files_are_read_or_refused(format: str, tmp_path: Path) -> None:
    for seed in range(1, 6):
        intact_index, files = make_case(format, seed)
        outcome = run_case(format, intact_index, files, tmp_path / str(seed))
        assert not outcome.is_finding, describe_outcome(format, seed, outcome)


@pytest.mark.long
@pytest.mark.parametrize("format", list_formats())
def test_damaged_files_are_read_or_refused(format: str, worker: Worker) -> None:
    """The cases of consecutive seeds: some can be read, others are refused."""
    tally = fuzz(format, 1, num_cases=CASES_PER_FORMAT, worker=worker)
    for seed, outcome in tally.findings.values():
        raise AssertionError(describe_outcome(format, seed, outcome))
    assert tally.counts_by_kind["refused"] > 5, tally
    assert tally.counts_by_kind["read"] > 0, tally
