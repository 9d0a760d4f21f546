"""The device on which the tests of this folder run."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HDF5Output may write."""
    monkeypatch.chdir(tmp_path)
