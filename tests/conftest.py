"""What tests share: the folder of reference data beside the repository."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `../shared`; tests that need it are skipped where it is missing."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the reference data in ../shared beside the repository")
    return folder
