"""The table of implementations: what rooms register is found by operation and platform, or the plain form runs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.core.ops import implementations
from caffejax.core.ops.implementations import (
    cpu_form,
    declare_provider,
    find_form,
    register_forms,
    registered_operations,
)
from caffejax.core.ops.matmul import matmul_rows


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    registered_operations()
    monkeypatch.setattr(implementations, "_FORMS", dict(implementations._FORMS))


def double(x: Any, *, factor: int = 2) -> Any:
    return factor * x


def test_every_registered_name_is_a_function() -> None:
    for operation, platform in registered_operations():
        assert callable(find_form(operation, platform)), operation


@pytest.mark.usefixtures("table")
def test_a_form_is_found_by_operation_and_platform() -> None:
    register_forms("cpu", {"double": f"{__name__}:double"})
    register_forms("host", {double: np.add})
    assert find_form("double") is double
    assert find_form(double, "host") is np.add
    assert find_form("double", "host") is find_form("halve") is None


@pytest.mark.usefixtures("table")
def test_the_plain_form_computes_what_no_form_supports() -> None:
    run = cpu_form("half of even", double, factor=3)
    assert run(5) == 15
    register_forms("cpu", {"half of even": lambda x, factor: x // 2 if x % 2 == 0 else None})
    assert (run(4), run(5)) == (2, 15)


@pytest.mark.usefixtures("table")
def test_a_provider_is_imported_when_the_table_is_read_and_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementations, "_PROVIDERS", [])
    declare_provider("caffejax.core.no_such_room")
    assert find_form("nothing") is None
    register_forms("cpu", {"absent": "caffejax.core.no_such_room:f"})
    with pytest.raises(ModuleNotFoundError):
        find_form("absent")


@pytest.mark.usefixtures("table")
def test_an_operation_of_a_layer_runs_without_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((4, 3))
    expected = matmul_rows(x, w)
    monkeypatch.setattr(implementations, "_FORMS", {})
    np.testing.assert_allclose(matmul_rows.__wrapped__(x, w), expected)


def test_importing_caffejax_imports_no_room() -> None:
    code = "import sys, caffejax; print([n for n in sys.modules if n.startswith(('caffejax.cpu', 'caffejax.forks'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


THREADS = """
import threading
import caffejax
from caffejax.core.ops.implementations import find_form
barrier, forms = threading.Barrier(8), []
def find():
    barrier.wait()
    forms.append(find_form("freeze"))
threads = [threading.Thread(target=find) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len({form is None for form in forms}), len(forms))
"""


def test_threads_that_read_the_table_first_find_the_same_forms() -> None:
    process = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert process.stdout == "1 8\n"


@pytest.mark.usefixtures("table")
def test_a_provider_whose_import_was_interrupted_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nif not os.path.exists('seen'):\n    open('seen', 'w').close()\n    raise KeyboardInterrupt\n"
    (tmp_path / "interrupted_room.py").write_text(
        f"{text}from caffejax.core.ops.implementations import register_forms\n"
        "register_forms('cpu', {'found late': len})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(implementations, "_PROVIDERS", [])
    declare_provider("interrupted_room")
    with pytest.raises(KeyboardInterrupt):
        find_form("found late")
    assert find_form("found late") is len
