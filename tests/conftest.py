"""Where test data lies."""

import os
from pathlib import Path

import pytest

os.environ["CAFFEJAX_CACHE"] = "off"  # tests compile what they test, and leave nothing in the home folder

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Third-party files that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference files in {SHARED}, which are absent")
    return SHARED
