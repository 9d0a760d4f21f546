"""JAX's private names stand in one file, and everything works in a JAX that lacks them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import caffejax
from caffejax.core.ops import jax_private

TESTS = Path(__file__).parents[2]
PACKAGE = Path(caffejax.__file__).parent
HIDE = """
from caffejax.core.ops import jax_private
jax_private._NAMES = dict.fromkeys(jax_private._NAMES, ("jax._src.gone", "missing"))
"""


def test_private_names_of_jax_stand_in_one_file() -> None:
    pattern = re.compile(r"jax\._src|import _src|xla_client|xla_bridge|\bjax\.lib\b|jaxlib\.\w|from jaxlib")
    assert [path.name for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text())] == ["jax_private.py"]


def test_this_jax_has_the_names_but_for_the_store_of_processes_that_are_not_connected() -> None:
    found = {subject for subject in jax_private._NAMES if jax_private.find_private(subject) is not None}
    assert found == {"trace settings", "transfer to CPUs"}


@pytest.mark.parametrize("name", [("jax._src.gone", "name"), ("jax._src.config", "gone"), ("jax", "config.gone.name")])
def test_missing_names_are_none(name: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jax_private._NAMES, "trace settings", name)
    assert jax_private.find_private("trace settings") is None


@pytest.mark.parametrize(
    "tests",
    [
        ["core/ops/test_compilation.py", "core/ops/test_program_cache.py"],
        pytest.param(
            ["core/parallel/test_process_failures.py::test_a_checkpoint_that_one_process_cannot_write_ends_all"],
            marks=pytest.mark.skipif(find_spec("caffejax.cpu") is None, reason="core alone has no commands"),
        ),
    ],
    ids=["programs", "processes"],
)
def test_the_tests_of_each_subject_pass_without_the_names(tests: list[str], tmp_path: Path) -> None:
    """In the processes that these tests start, too: every one imports the module `sitecustomize`."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent), str(TESTS)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *tests]
    run = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
