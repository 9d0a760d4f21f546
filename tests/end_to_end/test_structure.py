"""Imports of src/caffejax point down its levels and never run in a cycle; architecture.md names files that exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import caffejax

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import structure
from structure import LEVEL_OF, Import, find_import_cycle, find_imports, find_modules, find_upward_imports, get_package

PACKAGE = Path(caffejax.__file__).parent


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return find_imports(PACKAGE)


def test_each_package_has_a_level() -> None:
    assert {get_package(module) for module in find_modules(PACKAGE)} == LEVEL_OF.keys()


def test_imports_point_down(imports: list[Import]) -> None:
    assert "\n".join(find_upward_imports(imports)) == ""


def test_imports_have_no_cycle(imports: list[Import]) -> None:
    assert find_import_cycle(imports) == ""


def test_dynamic_imports_are_found(imports: list[Import]) -> None:
    pairs = {i[:2] for i in imports}
    assert ("caffejax", "caffejax.net") in pairs
    assert ("caffejax.layers.registry", "caffejax.layers.convolution") in pairs


def test_the_page_on_the_architecture_is_up_to_date() -> None:
    assert structure.make_page() == structure.PAGE.read_text()
    walks = structure.read_walks()
    assert [name for names in walks.values() for name in names if not (structure.PACKAGE / name).exists()] == []


SMALL_PACKAGE = {
    "__init__.py": "from importlib import import_module",
    "net/__init__.py": "from .net import Net",
    "net/net.py": "from ..graph import model, Graph\nimport caffejax.errors",
    "graph/__init__.py": "from .model import Graph",
    "graph/model.py": 'from ..errors import CaffejaxError\nimport jax\nlog = logging.getLogger("caffejax.net")',
    "errors.py": '"""Raised by caffejax.net, and others."""',
}


def find_imports_of_small_package(folder: Path, replaced_files: dict[str, str]) -> list[Import]:
    """Return the imports of a small package with some of its files replaced."""
    for name, text in {**SMALL_PACKAGE, **replaced_files}.items():
        path = folder / "caffejax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return find_imports(folder / "caffejax")


def test_a_valid_package_has_no_errors(tmp_path: Path) -> None:
    imports = find_imports_of_small_package(tmp_path, {})
    assert {i[:2] for i in imports} == {
        ("caffejax.net", "caffejax.net.net"),
        ("caffejax.net.net", "caffejax.graph"),
        ("caffejax.net.net", "caffejax.graph.model"),
        ("caffejax.net.net", "caffejax.errors"),
        ("caffejax.graph", "caffejax.graph.model"),
        ("caffejax.graph.model", "caffejax.errors"),
    }
    assert find_upward_imports(imports) == []
    assert find_import_cycle(imports) == ""


@pytest.mark.parametrize(
    "line",
    [
        "from ..net import Net",
        "from ..net.net import Net",
        "from .. import net",
        "import caffejax.net.net as other",
        "def f():\n    from ..net import Net",
        "if TYPE_CHECKING:\n    from ..net import Net",
        'import_module("..net", __package__)',
        'importlib.import_module("caffejax.net")',
        'lazily("caffejax.net.net")',
        'PLACES = {"Net": "caffejax.net"}',
        'import_module(f"caffejax.net.{name}")',
    ],
)
def test_an_upward_import_is_reported(tmp_path: Path, line: str) -> None:
    (message,) = set(find_upward_imports(find_imports_of_small_package(tmp_path, {"graph/model.py": line})))
    number = line.count("\n") + 1
    assert message.startswith(f"caffejax/graph/model.py:{number}: graph imports caffejax.net")
    assert message.endswith("but its level (graph) is not above (net)")


def test_an_upward_import_of_a_stub_is_reported(tmp_path: Path) -> None:
    replaced_files = {
        "graph/__init__.py": "attach_stub(__name__, __file__)",
        "graph/__init__.pyi": "from ..net import Net",
    }
    (message,) = set(find_upward_imports(find_imports_of_small_package(tmp_path, replaced_files)))
    assert message.startswith("caffejax/graph/__init__.pyi:1: graph imports caffejax.net")


def test_a_walk_over_packages_is_an_import(tmp_path: Path) -> None:
    replaced_files = {"graph/model.py": "", "graph/registry.py": "walk_packages(paths)"}
    pairs = {i[:2] for i in find_imports_of_small_package(tmp_path, replaced_files)}
    assert ("caffejax.graph.registry", "caffejax.graph.model") in pairs


def test_an_import_on_the_same_level_is_reported(tmp_path: Path) -> None:
    replaced_files = {"training/__init__.py": "", "gradcheck/__init__.py": "from .. import training"}
    (message,) = find_upward_imports(find_imports_of_small_package(tmp_path, replaced_files))
    assert "caffejax/gradcheck/__init__.py:1: gradcheck imports caffejax.training" in message


@pytest.mark.parametrize(
    "replaced_files",
    [
        {"graph/model.py": "from .build import x", "graph/build.py": "def f():\n    from .model import y"},
        {"graph/model.py": "from . import Graph"},
        {"graph/model.py": "from .build import x", "graph/build.py": 'import_module(".model", __package__)'},
        {
            "graph/model.py": "from .parts.one import x",
            "graph/parts/__init__.py": "from ..model import y",
            "graph/parts/one.py": "",
        },
    ],
    ids=["two files", "a package's own __init__", "a string", "an __init__ on the way"],
)
def test_a_cycle_is_reported(tmp_path: Path, replaced_files: dict[str, str]) -> None:
    imports = find_imports_of_small_package(tmp_path, replaced_files)
    assert find_upward_imports(imports) == []
    assert "caffejax/graph/model.py:1: caffejax.graph.model imports caffejax.graph" in find_import_cycle(imports)
