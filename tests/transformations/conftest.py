"""The processes that tests of this folder share."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import processes
import pytest


@pytest.fixture(scope="session")
def eight_devices() -> Iterator[ProcessPoolExecutor]:
    with processes.fresh(8) as process:
        yield process


@pytest.fixture(scope="session")
def fresh_process() -> Iterator[ProcessPoolExecutor]:
    with processes.fresh() as process:
        yield process
