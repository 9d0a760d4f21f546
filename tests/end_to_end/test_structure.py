"""The rooms of src/caffejax import only what they may; their READMEs and architecture.md say where things are."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import caffejax
from caffejax import Net
from caffejax.core.layers import convolution

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import code_walks
import structure
from code_walks import WALKS, Walk, count_files, find_broken_links
from structure import (
    CORE_ORDER,
    PACKAGE,
    ROOMS,
    Import,
    find_breaches,
    find_import_cycle,
    find_imports,
    find_misplaced_modules,
    find_passed_budgets,
    measure_room,
)

INSTALLED_PACKAGE = Path(caffejax.__file__).parent  # without READMEs if it is from a wheel


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return find_imports(PACKAGE)


def test_each_module_is_in_a_room() -> None:
    assert find_misplaced_modules() == []


def test_rooms_import_only_what_they_may(imports: list[Import]) -> None:
    assert "\n".join(find_breaches(imports)) == ""


def test_imports_have_no_cycle(imports: list[Import]) -> None:
    assert find_import_cycle(imports) == ""


def test_dynamic_imports_are_found(imports: list[Import]) -> None:
    pairs = {i[:2] for i in imports}
    assert ("caffejax", "caffejax.core.program.net") in pairs
    assert ("caffejax.core.layers.registry", "caffejax.core.layers.convolution") in pairs


def test_measures_are_within_their_limits() -> None:
    assert {name: value for name, value in structure.measure().items() if value > structure.LIMITS[name]} == {}


def test_the_page_on_the_architecture_is_up_to_date() -> None:
    assert structure.make_page() == structure.PAGE.read_text()


@pytest.mark.parametrize("name", ROOMS)
def test_a_readme_says_what_is_in_a_room_and_who_imports_it(name: str) -> None:
    fields, room = structure.read_readme(PACKAGE / name), measure_room(PACKAGE / name)
    assert fields["name"] == name
    assert (PACKAGE / name / room.beginning).is_file()
    assert fields["imports"] == (", ".join(ROOMS[name]) or "nothing")
    importers = ", ".join(other for other, imported in ROOMS.items() if name in imported)
    assert fields["importers"] == (importers or "nothing")
    assert len((PACKAGE / name / "README.md").read_text().splitlines()) <= 12


def test_each_room_is_within_its_budget() -> None:
    assert "\n".join(find_passed_budgets(structure.measure_rooms())) == ""


README = """# {name}: one room

Text.

- Begin with: `errors.py`
- May import: nothing
- Imported by: nothing
- Budget: {budget}
"""


def test_a_passed_budget_is_reported(tmp_path: Path) -> None:
    for name, text in {
        "README.md": README.format(name=tmp_path.name, budget="1,002 lines, and 1 lines of C++"),
        "errors.py": "\n" * 1000,
        "more.py": "\n" * 3,
        "message_pb2.py": "\n" * 1000,  # generated
        "kernel.cc": "\n",
        "kernel.h": "\n",
    }.items():
        (tmp_path / name).write_text(text)
    messages = find_passed_budgets([measure_room(tmp_path)])
    assert [message.partition(": ")[2] for message in messages] == [
        "the budget is 1,002 lines of Python, but there are 1,003",
        "the budget is 1 lines of C++, but there are 2",
    ]


@pytest.mark.parametrize("budget", ["", "many lines", "1,002", "1,002 lines of code"])
def test_a_budget_that_cannot_be_read_is_an_error(tmp_path: Path, budget: str) -> None:
    (tmp_path / "README.md").write_text(README.format(name=tmp_path.name, budget=budget))
    with pytest.raises(ValueError, match="must have"):
        measure_room(tmp_path)


SMALL_PACKAGE = {
    "__init__.py": "from importlib import import_module\nfrom ._version import __version__\nfrom .cpu import kernels",
    "__main__.py": "from .cli import Net",
    "_version.py": "__version__ = '1'",
    "cli/__init__.py": "from ..pycaffe import Net",
    "pycaffe/__init__.py": "from ..cpu import kernels\nfrom ..core.layers import lrn",
    "cpu/__init__.py": "",
    "cpu/kernels.py": "from ..core.layers import lrn\nfrom .._version import __version__",
    "forks/__init__.py": "from ..core.layers import lrn",
    "core/__init__.py": "",
    "core/graph/__init__.py": "from .model import Graph",
    "core/graph/model.py": "from ..layers import lrn\nimport caffejax.base.errors",
    "core/layers/__init__.py": "",
    "core/layers/lrn.py": 'from ...base.errors import CaffejaxError\nlog = logging.getLogger("caffejax.cpu")',
    "base/__init__.py": "",
    "base/errors.py": '"""Raised by caffejax.core, and others."""',
}


def find_imports_of_small_package(folder: Path, replaced_files: dict[str, str]) -> list[Import]:
    """Return the imports of a small package with some of its files replaced."""
    for name, text in {**SMALL_PACKAGE, **replaced_files}.items():
        path = folder / "src" / "caffejax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return find_imports(folder / "src" / "caffejax")


def test_a_valid_package_has_no_errors(tmp_path: Path) -> None:
    imports = find_imports_of_small_package(tmp_path, {})
    assert {i[:2] for i in imports} >= {
        ("caffejax.cli", "caffejax.pycaffe"),
        ("caffejax.pycaffe", "caffejax.cpu.kernels"),
        ("caffejax.cpu.kernels", "caffejax._version"),
        ("caffejax.core.graph", "caffejax.core.graph.model"),
        ("caffejax.core.graph.model", "caffejax.core.layers.lrn"),
        ("caffejax.core.graph.model", "caffejax.base.errors"),
        ("caffejax.core.layers.lrn", "caffejax.base.errors"),
    }
    assert find_breaches(imports) == []
    assert find_import_cycle(imports) == ""
    assert find_misplaced_modules(tmp_path / "src" / "caffejax") == []


@pytest.mark.parametrize(
    "line",
    [
        "from ...cpu import kernels",
        "from ...cpu.kernels import convolve",
        "import caffejax.cpu.kernels as other",
        "def f():\n    from ...cpu import kernels",
        "if TYPE_CHECKING:\n    from ...cpu import kernels",
        'import_module("...cpu.kernels", __package__)',
        'importlib.import_module("caffejax.cpu.kernels")',
        'lazily("caffejax.cpu.kernels")',
        'PLACES = {"convolve": "caffejax.cpu.kernels"}',
        'import_module(f"caffejax.cpu.kernels.{name}")',
    ],
)
def test_a_forbidden_import_is_reported(tmp_path: Path, line: str) -> None:
    (message,) = find_breaches(find_imports_of_small_package(tmp_path, {"core/graph/model.py": line}))
    number = line.count("\n") + 1
    assert message == f"src/caffejax/core/graph/model.py:{number}: core/graph imports caffejax.cpu.kernels"


@pytest.mark.parametrize(
    "line", ['find_spec("caffejax.cpu")', 'entry_points(group="caffejax.cpu")', 'GROUP = "caffejax.layers"']
)
def test_a_name_that_is_only_looked_for_is_no_import(tmp_path: Path, line: str) -> None:
    assert find_breaches(find_imports_of_small_package(tmp_path, {"core/graph/model.py": line})) == []


@pytest.mark.parametrize(
    ("file", "line", "breach"),
    [
        ("base/errors.py", "from ..core.layers import lrn", "base imports caffejax.core.layers.lrn"),
        ("core/layers/lrn.py", "from ..graph import model", "core/layers imports caffejax.core.graph.model"),
        ("core/ops/lrn.py", "from ..schema import text", "core/ops imports caffejax.core.schema"),
        ("core/schema/text.py", "from ..ops import lrn", "core/schema imports caffejax.core.ops"),
        ("forks/__init__.py", "from ..cpu import kernels", "forks imports caffejax.cpu.kernels"),
        ("cpu/kernels.py", "from .. import forks", "cpu imports caffejax.forks"),
        ("forks/__init__.py", "from .. import tools", "forks imports caffejax.tools"),
        ("pycaffe/__init__.py", "from .. import cli", "pycaffe imports caffejax.cli"),
        ("dnn/__init__.py", "from .. import pycaffe", "dnn imports caffejax.pycaffe"),
        ("forks/__init__.py", "from .. import Net", "forks imports caffejax"),
        ("cli/__init__.py", "import caffejax", "cli imports caffejax"),
        ("room/__init__.py", "from ..base import errors", "room imports caffejax.base.errors"),
    ],
)
def test_each_room_has_its_rule(tmp_path: Path, file: str, line: str, breach: str) -> None:
    names = ("core/ops", "core/schema", "dnn", "tools")
    files = {f"{name}/__init__.py": "" for name in names} | {"core/ops/lrn.py": "", "core/schema/text.py": ""}
    (message,) = find_breaches(find_imports_of_small_package(tmp_path, files | {file: line}))
    assert message.startswith(f"src/caffejax/{file}:1: {breach}")


@pytest.mark.parametrize("file", ["errors.py", "room/__init__.py", "core/errors.py", "core/room/__init__.py"])
def test_a_module_outside_of_the_rooms_is_reported(tmp_path: Path, file: str) -> None:
    find_imports_of_small_package(tmp_path, {file: ""})
    (message,) = find_misplaced_modules(tmp_path / "src" / "caffejax")
    assert message.startswith(f"src/caffejax/{file} is in no room")


def test_a_forbidden_import_of_a_stub_is_reported(tmp_path: Path) -> None:
    replaced_files = {
        "core/graph/__init__.py": "attach_stub(__name__, __file__)",
        "core/graph/__init__.pyi": "from ...cpu import kernels",
    }
    (message,) = find_breaches(find_imports_of_small_package(tmp_path, replaced_files))
    assert message.startswith("src/caffejax/core/graph/__init__.pyi:1: core/graph imports caffejax.cpu")


def test_a_walk_over_packages_is_an_import(tmp_path: Path) -> None:
    replaced_files = {"core/graph/model.py": "", "core/graph/registry.py": "walk_packages(paths)"}
    pairs = {i[:2] for i in find_imports_of_small_package(tmp_path, replaced_files)}
    assert ("caffejax.core.graph.registry", "caffejax.core.graph.model") in pairs


@pytest.mark.parametrize(
    "replaced_files",
    [
        {"core/graph/model.py": "from .build import x", "core/graph/build.py": "def f():\n    from .model import y"},
        {"core/graph/model.py": "from . import Graph"},
        {"core/graph/model.py": "from .build import x", "core/graph/build.py": 'import_module(".model", __package__)'},
        {
            "core/graph/model.py": "from .parts.one import x",
            "core/graph/parts/__init__.py": "from ..model import y",
            "core/graph/parts/one.py": "",
        },
    ],
    ids=["two files", "a package's own __init__", "a string", "an __init__ on the way"],
)
def test_a_cycle_is_reported(tmp_path: Path, replaced_files: dict[str, str]) -> None:
    imports = find_imports_of_small_package(tmp_path, replaced_files)
    assert find_breaches(imports) == []
    message = find_import_cycle(imports)
    assert "src/caffejax/core/graph/model.py:1: caffejax.core.graph.model imports caffejax.core.graph" in message


def test_the_picture_shows_rooms_above_those_that_they_import() -> None:
    lines = structure.draw_rooms().splitlines()
    assert len({len(line) for line in lines}) == 1
    rows = {room: next(i for i, line in enumerate(lines) if f" {room} " in line) for room in ROOMS}
    for room, imported in ROOMS.items():
        assert set(imported) == {other for other in ROOMS if rows[other] > rows[room]}
    assert " < ".join(", ".join(names) for names in CORE_ORDER) in structure.draw_rooms()


# -- walks


@pytest.mark.parametrize("title", WALKS)
def test_consecutive_files_of_a_walk_are_connected(title: str) -> None:
    assert find_broken_links(WALKS[title], PACKAGE) == []


@pytest.mark.parametrize("title", list(WALKS)[:3])
def test_a_walk_is_short(title: str) -> None:
    assert count_files(WALKS[title]) <= WALKS[title].goal


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.py": "def f():\n    return g()", "b.py": "def g(): pass"}, ""),
        ({"a.py": "def f(): pass", "b.py": "def g(x):\n    return x.f()"}, ""),
        ({"a.py": "from .b import h\ndef f(): pass", "b.py": "def g(): pass"}, ""),
        ({"a.py": "class f: pass", "b.py": "def g(): pass\nregister(f(g))"}, ""),
        ({"a.py": "def f(): pass", "b.py": "def g(): pass"}, "a.py (f) and b.py (g) are not connected"),
        (
            {"a.py": "def f(): pass\ndef other(): g()", "b.py": "def g(): pass"},
            "a.py (f) and b.py (g) are not connected",
        ),
        ({"a.py": "def f(): pass", "b.py": "def h(): pass"}, "b.py has no 'g'"),
        ({"a.py": "def f(): pass"}, "b.py has no 'g'"),
    ],
)
def test_a_gap_in_a_walk_is_reported(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert find_broken_links(Walk(2, (("a.py", "f"), ("b.py", "g"))), tmp_path) == ([message] if message else [])


def test_an_eager_pass_enters_the_functions_of_its_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    make_convolution_op, stacks = convolution.make_convolution_op, []

    def record_stack(*arguments: Any, **options: Any) -> Any:
        stacks.append([frame for frame, _ in traceback.walk_stack(sys._getframe(1))])
        return make_convolution_op(*arguments, **options)

    net = Net(
        """
        layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 dim: 7 dim: 5 } } }
        layer { name: "conv" type: "Convolution" bottom: "x" top: "y"
                convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
        """
    )
    params, state = net.init(caffejax.core.layers.bucketed_random.make_key(0))
    monkeypatch.setattr(convolution, "make_convolution_op", record_stack)
    net.apply(params, state, {"x": jnp.zeros((1, 2, 7, 5))})
    (stack,) = (stack for stack in stacks if any(frame.f_code.co_name == "convolution" for frame in stack))
    functions = [
        (
            Path(frame.f_code.co_filename).relative_to(INSTALLED_PACKAGE).as_posix(),
            frame.f_code.co_qualname.replace(".<locals>", ""),
        )
        for frame in reversed(stack)
        if Path(frame.f_code.co_filename).is_relative_to(INSTALLED_PACKAGE)
    ]
    walk = WALKS["From an eager Net.apply to a layer's function"]
    steps = [(file, name) for file, *names in walk.stays for name in names if name != "Traced"]
    assert functions == steps


def test_the_spine_counts_functions_of_base_and_core() -> None:
    spine = code_walks.run_spine()
    assert {file.partition("/")[0] for file in spine.functions} == {"base", "core"}
    assert "CompiledUpdater.update" in spine.functions["core/solver/compiled_updater.py"]
    assert "Lmdb.read_range" in spine.functions["base/databases/lmdb.py"]  # in a thread
    assert any("save" in name.lower() for name in spine.functions["core/checkpoints/orbax.py"])
    assert 1000 < spine.num_lines < 20_000
    assert f"{spine.num_lines:,} lines in {len(spine.functions)} files" in code_walks.format_spine(spine)
