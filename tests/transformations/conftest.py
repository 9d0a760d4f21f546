"""The processes that tests of this folder share."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import processes
import pytest


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HDF5Output may write."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def eight_devices() -> Iterator[ProcessPoolExecutor]:
    with processes.fresh(8) as process:
        yield process


@pytest.fixture(scope="session")
def fresh_process() -> Iterator[ProcessPoolExecutor]:
    with processes.fresh() as process:
        yield process
