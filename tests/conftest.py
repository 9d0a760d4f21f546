"""Test data, and settings that make the tests fast."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

import hypothesis
import pytest

from compile_flags import make_xla_flags
from fresh_processes import spawn_jax_process

pytest.register_assert_rewrite("layer_suite", "layer_nets")
os.environ["XLA_FLAGS"] = make_xla_flags()  # of the processes that tests start as well
if "CAFFEJAX_CACHE" not in os.environ:  # the first of the processes: what one of them compiled, the others load
    _cache_folder = tempfile.TemporaryDirectory()
    os.environ["CAFFEJAX_CACHE"] = _cache_folder.name
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
if find_spec("caffejax.cpu"):  # else core is tested alone
    from caffejax.cpu.kernels.executable_cache import ProgramCacheConfig
    from caffejax.cpu.process_settings import enable_compilation_cache

    enable_compilation_cache()
    ProgramCacheConfig.folder = None  # tests change what is computed where no name of a program says so

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have programs in the background ignore it
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    # under nohup; what ignores a signal has its children ignore it too, and what handles it does not
    signal.signal(signal.SIGHUP, lambda *_: None)
hypothesis.settings.register_profile("random", deadline=None)  # the first example compiles, and machines are busy
hypothesis.settings.register_profile("same", hypothesis.settings.get_profile("random"), derandomize=True)
hypothesis.settings.load_profile("same")  # each run asks the same; --hypothesis-profile=random asks something new

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"
GOLDEN = Path(__file__).parent / "golden"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have `-k LRN` select the tests that name this type in their code, too."""
    from caffejax.core.layers import layer_types

    types = layer_types().keys()
    for item in items:
        if isinstance(item, pytest.Function):
            item.extra_keyword_matches.update(types & set(find_strings(item.function.__code__)))


def find_strings(code: CodeType) -> Iterator[str]:
    """Yield the strings in the code of a function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from find_strings(constant)
        else:
            yield from (c for c in (constant if isinstance(constant, tuple) else (constant,)) if isinstance(c, str))


def pytest_collection_finish() -> None:
    """Exclude objects that live for the whole session from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tracing makes many objects, and few cycles


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Third-party files that are not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the reference files in {SHARED}, which are absent")
    return SHARED


@pytest.fixture(scope="session")
def eight_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    """Return a process whose JAX has eight devices, shared by all tests.

    It takes seconds to start, and caches programs. Its working directory is temporary; layers such as HDF5Output may
    write there.
    """
    with spawn_jax_process(8) as pool:
        pool.submit(os.chdir, tmp_path_factory.mktemp("eight_devices")).result()
        yield pool


@pytest.fixture(scope="session")
def fresh_process() -> Iterator[ProcessPoolExecutor]:
    """A process that does not load caffejax, the same for all tests."""
    with spawn_jax_process() as pool:
        yield pool


@pytest.fixture(scope="session")
def recording_process() -> Iterator[ProcessPoolExecutor]:
    """A process in which reads of messages' fields can be recorded: `layer_suite.field_reads`."""
    with spawn_jax_process(PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python") as pool:
        yield pool


@pytest.fixture
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU; what was traced with it, or is here without, is forgotten."""
    import jax

    from caffejax.cpu.kernels import onednn

    monkeypatch.setattr(onednn, "is_available", lambda: False)
    jax.clear_caches()
    yield
    jax.clear_caches()
