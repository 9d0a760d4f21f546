"""Run the tests of this folder in a temporary working directory."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a temporary directory, because HDF5Output layers write files."""
    monkeypatch.chdir(tmp_path)
