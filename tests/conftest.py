"""Where test data lies, and what makes the tests fast."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from caffejax.kernels.kept import Programs
from caffejax.process import keep_compiled

if "CAFFEJAX_CACHE" not in os.environ:  # the first of the processes: what one of them compiled, the others load
    _compiled = tempfile.TemporaryDirectory()
    os.environ["CAFFEJAX_CACHE"] = _compiled.name
keep_compiled()
Programs.folder = None  # tests change what is computed where no name of a program says so

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have programs in the background ignore it
hypothesis.settings.register_profile("any", deadline=None)  # the first example compiles, and machines are busy
hypothesis.settings.load_profile("any")

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"
GOLDEN = Path(__file__).parent / "golden"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the quick subset: of each test the cases that say so, else its first one; never what is slow or long."""
    asked: dict[tuple[Path, object], list[pytest.Item]] = {}
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("slow", "long")):
            asked.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for cases in asked.values():
        if not any(case.get_closest_marker("quick") for case in cases):
            cases[0].add_marker("quick")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Third-party files that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference files in {SHARED}, which are absent")
    return SHARED


@pytest.fixture
def little_optimized() -> Iterator[None]:
    """Compile in two thirds of the time: for tests whose time is compiling, and that ask what is computed, not how."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU; what was traced with it, or is here without, is forgotten."""
    import jax

    from caffejax.kernels import onednn

    monkeypatch.setattr(onednn, "available", lambda: False)
    jax.clear_caches()
    yield
    jax.clear_caches()
