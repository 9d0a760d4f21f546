"""Where test data lies, and what makes the tests fast."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from caffejax.process import keep_compiled

if "CAFFEJAX_CACHE" not in os.environ:  # the first of the processes: what one of them compiled, the others load
    _compiled = tempfile.TemporaryDirectory()
    os.environ["CAFFEJAX_CACHE"] = _compiled.name
keep_compiled()

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Third-party files that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference files in {SHARED}, which are absent")
    return SHARED


@pytest.fixture
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU; what was traced with it, or is here without, is forgotten."""
    import jax

    from caffejax.kernels import onednn

    monkeypatch.setattr(onednn, "available", lambda: False)
    jax.clear_caches()
    yield
    jax.clear_caches()
