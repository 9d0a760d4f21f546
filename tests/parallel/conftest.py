"""The process that tests of this folder share."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from transformations.processes import fresh


@pytest.fixture(scope="module")
def eight() -> Iterator[ProcessPoolExecutor]:
    """A process with eight devices."""
    with fresh(8) as pool:
        yield pool
