"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("caffejax", deadline=None)  # machines are busy
settings.load_profile("caffejax")

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def golden() -> Path:
    """The recorded files that are part of the project."""
    return GOLDEN


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material that is too large, or not ours, to be part of the project."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the material in {SHARED}, which is not there")
    return SHARED
