"""One staircase: imports point down the floors of the house and never run in a circle, however they are written."""

import ast
import re
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import caffejax

# From the roof to the ground; what stands here is a folder or a file of the package. A floor may import from those
# below it, and what stands side by side knows nothing of each other.
FLOORS = (
    "caffejax __main__",  # caffejax/__init__.py
    "cli",
    "shim",
    "pycaffe planning checking metrics",
    "training gradcheck logs export",
    "debugging process view",
    "interop",
    "net",
    "inference",
    "execution summary checkpoints",
    "parallel",
    "data",
    "graph",
    "layers",
    "kernels",
    "schema",
    "hdf5",
    "aliases atomic options variables",
    "forks paths",
    "errors glog machine sizes tables _version",
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}

# calls whose strings look like modules' names and are none
NO_MODULES = ("getLogger", "entry_points")


class Import(NamedTuple):
    """A file that names a module of its package; both by their full names."""

    importer: str
    imported: str
    place: str  # file:line


def modules_of(package: Path) -> dict[str, Path]:
    """Every file of a package by its module's name; a folder's name stands for its `__init__`."""
    files = {path: path.relative_to(package.parent).with_suffix("").parts for path in package.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in files.items()}


def imports_of(package: Path) -> list[Import]:
    """All imports within a package: of modules, in functions, for the type checker, and names in strings."""
    modules = modules_of(package)
    found = []
    for importer, path in sorted(modules.items()):
        home = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        text = path.read_text()
        if "iter_modules(__path__)" in text:  # it imports all beside it
            beside = [name for name in modules if name.rpartition(".")[0] == importer]
            found += [Import(importer, name, f"{path.relative_to(package.parent)}") for name in beside]
        for name, line in names_in(ast.parse(text), home):
            imported = name if name in modules else name.rpartition(".")[0]  # a module, or something in it
            if imported in modules:
                found.append(Import(importer, imported, f"{path.relative_to(package.parent)}:{line}"))
    return found


def names_in(tree: ast.AST, home: str) -> Iterator[tuple[str, int]]:
    """The full names of what a file of the package `home` imports, and of what its strings may name, with the lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from ((alias.name, node.lineno) for alias in aliases)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                start = absolute("." * level + (module or ""), home)
                yield from ((f"{start}.{alias.name}", node.lineno) for alias in aliases)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) == "import_module":
                yield absolute(name, home), node.lineno
    yield from strings_in(tree, home.partition(".")[0])


def strings_in(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """The strings in a file, parts of f-strings among them, that a module of the package may be named by."""
    match tree:
        case ast.Call() if called(tree) in NO_MODULES:
            return
        case ast.Constant(value=str(text)) if re.fullmatch(rf"{package}(\.\w+)+\.?", text):
            yield text.rstrip("."), tree.lineno
    for child in ast.iter_child_nodes(tree):
        yield from strings_in(child, package)


def called(call: ast.Call) -> str:
    """The name of the function that is called, without the module's; "" if it has none."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def absolute(name: str, home: str) -> str:
    """A module's full name, given as in an import statement of a file of the package `home`."""
    relative = name.lstrip(".")
    if relative == name:
        return name
    start = home.split(".")[: 1 + home.count(".") - (len(name) - len(relative) - 1)]
    return ".".join([*start, relative]).rstrip(".")


def room_of(module: str) -> str:
    """The folder or file at the top of the package that a module belongs to."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package


def upward(imports: Sequence[Import]) -> list[str]:
    """What is wrong with each import that does not point down."""
    return [
        f"{place}: {here} imports {imported}, but its floor ({FLOORS[FLOOR_OF[here]]}) does not lie above "
        f"({FLOORS[FLOOR_OF[there]]})"
        for importer, imported, place in imports
        if (here := room_of(importer)) != (there := room_of(imported)) and FLOOR_OF[here] >= FLOOR_OF[there]
    ]


def entered(step: Import) -> list[str]:
    """The folders that the importer is not in and the imported module is: their `__init__` is run first."""
    parts = step.imported.split(".")
    folders = [".".join(parts[:n]) for n in range(2, len(parts))]
    return [folder for folder in folders if not f"{step.importer}.".startswith(f"{folder}.")]


def circle(imports: Sequence[Import]) -> str:
    """A circle of files, each of which imports the next; "" if there is none."""
    places = {(i.importer, module): i.place for i in imports for module in (*entered(i), i.imported)}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for importer, imported in places:
        sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        files = error.args[1][::-1]
        return "; ".join(f"{places[step]}: {step[0]} imports {step[1]}" for step in pairwise(files))
    return ""


PACKAGE = Path(caffejax.__file__).parent


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return imports_of(PACKAGE)


def test_everything_stands_on_a_floor() -> None:
    assert {room_of(module) for module in modules_of(PACKAGE)} == FLOOR_OF.keys()


def test_imports_point_down(imports: list[Import]) -> None:
    assert "\n".join(upward(imports)) == ""


def test_no_imports_run_in_a_circle(imports: list[Import]) -> None:
    assert circle(imports) == ""


HOUSE = {
    "__init__.py": "from importlib import import_module",
    "net/__init__.py": "from .net import Net",
    "net/net.py": "from ..graph import model, Graph\nimport caffejax.errors",
    "graph/__init__.py": "from .model import Graph",
    "graph/model.py": 'from ..errors import CaffejaxError\nimport jax\nlog = logging.getLogger("caffejax.net")',
    "errors.py": '"""Told by caffejax.net, and others."""',
}


def house(folder: Path, changed: dict[str, str]) -> list[Import]:
    """The imports of a small package with some of its files replaced."""
    for name, text in {**HOUSE, **changed}.items():
        path = folder / "caffejax" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports_of(folder / "caffejax")


def test_a_sound_house_is_found_sound(tmp_path: Path) -> None:
    found = house(tmp_path, {})
    assert {i[:2] for i in found} == {
        ("caffejax.net", "caffejax.net.net"),
        ("caffejax.net.net", "caffejax.graph"),
        ("caffejax.net.net", "caffejax.graph.model"),
        ("caffejax.net.net", "caffejax.errors"),
        ("caffejax.graph", "caffejax.graph.model"),
        ("caffejax.graph.model", "caffejax.errors"),
    }
    assert upward(found) == []
    assert circle(found) == ""


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
def test_an_upward_import_is_noticed(tmp_path: Path, line: str) -> None:
    (message,) = set(upward(house(tmp_path, {"graph/model.py": line})))
    number = line.count("\n") + 1
    assert message.startswith(f"caffejax/graph/model.py:{number}: graph imports caffejax.net")
    assert message.endswith("but its floor (graph) does not lie above (net)")


def test_neighbours_are_noticed(tmp_path: Path) -> None:
    found = house(tmp_path, {"training/__init__.py": "", "gradcheck/__init__.py": "from .. import training"})
    (message,) = upward(found)
    assert "caffejax/gradcheck/__init__.py:1: gradcheck imports caffejax.training" in message


@pytest.mark.parametrize(
    "changed",
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
def test_a_circle_is_noticed(tmp_path: Path, changed: dict[str, str]) -> None:
    found = house(tmp_path, changed)
    assert upward(found) == []
    assert "caffejax/graph/model.py:1: caffejax.graph.model imports caffejax.graph" in circle(found)
