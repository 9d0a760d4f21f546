"""Check that the nine rooms of src/caffejax import only what they may, and show where things are.

python scripts/structure.py           prints the rooms with their lines, budgets and purposes, and the walks
python scripts/structure.py --check   fails on a forbidden import, a passed budget or limit, or an out-of-date page
python scripts/structure.py --write   writes the picture and the table of the rooms into architecture.md
python scripts/structure.py --spine   trains LeNet on the digits, and prints the functions of base and core that ran

A room's README.md names its purpose, its budget of lines and the file to begin with.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from code_walks import WALKS, count_files, find_broken_links, format_spine, format_walk, run_spine

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "caffejax"
PAGE = ROOT / "docs" / "development" / "architecture.md"

# The rooms and what they may import.
ROOMS: dict[str, tuple[str, ...]] = {
    "base": (),
    "core": ("base",),
    "forks": ("base", "core"),
    "cpu": ("base", "core"),
    "tools": ("base", "core"),
    "pycaffe": ("base", "core", "forks", "cpu", "tools"),
    "dnn": ("base", "core", "forks", "cpu", "tools"),
    "export": ("base", "core", "forks", "cpu", "tools"),
    "cli": ("base", "core", "forks", "cpu", "tools", "pycaffe", "dnn", "export"),
}
# The parts of core. Each may import those before it, but not those beside it.
CORE_ORDER: tuple[tuple[str, ...], ...] = (
    ("schema", "ops"),
    ("parallel",),
    ("layers",),
    ("graph",),
    ("data", "checkpoints"),
    ("program",),
    ("solver", "gradcheck"),
)
FACE = ("", "__main__", "_version")  # in no room; the rooms may import `_version` only

# Calls whose string arguments look like names of modules that are imported, but are not.
NON_MODULE_CALLS = ("getLogger", "entry_points", "find_spec")

PICTURE_WIDTH = 107  # in columns, without the border

LIMITS = {
    "files per 1,000 lines": 7,
    "base names of more than one file": 20,
}


class Import(NamedTuple):
    """An import of one module of the package by another; both by their full names."""

    importer: str
    imported: str
    location: str  # file:line


def find_modules(package: Path) -> dict[str, Path]:
    """Return all files of a package by module name; a folder's name stands for its `__init__.py`."""
    files = {path: path.relative_to(package.parent).with_suffix("").parts for path in package.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in files.items()}


def find_imports(package: Path) -> list[Import]:
    """Return all imports within a package.

    They include imports inside functions and for the type checker, `import_module`, module names in strings, the stubs
    (`.pyi`) of lazily imported names, and `walk_packages` over a module's package.
    """
    modules = find_modules(package)
    imports = []
    for importer, path in sorted(modules.items()):
        importing_package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        text = path.read_text()
        file_location = str(path.relative_to(package.parents[1]))
        if re.search(r"(?:iter_modules|walk_packages)\(", text):
            imports += [
                Import(importer, name, file_location) for name in modules if name.startswith(f"{importing_package}.")
            ]
        for source in (path, path.with_suffix(".pyi")):
            if source != path and not ("attach_stub" in text and source.exists()):
                continue
            tree = ast.parse(source.read_text())
            names = [
                (name if name in modules else name.rpartition(".")[0], line)  # a module, or something in it
                for name, line in _find_imported_names(tree, importing_package)
            ]
            names += _find_module_strings(tree, package.name)
            imports += [
                Import(importer, imported, f"{source.relative_to(package.parents[1])}:{line}")
                for imported, line in names
                if imported in modules
            ]
    return imports


def _find_imported_names(tree: ast.AST, importing_package: str) -> Iterator[tuple[str, int]]:
    """Yield full name and line of each import in a file of a package, `import_module` included."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from ((alias.name, node.lineno) for alias in aliases)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                start = _resolve_relative_name("." * level + (module or ""), importing_package)
                yield from ((f"{start}.{alias.name}", node.lineno) for alias in aliases)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _get_function_name(node) == "import_module":
                yield _resolve_relative_name(name, importing_package), node.lineno


def _find_module_strings(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yield the strings of a file, parts of f-strings included, that may be names of the package's modules."""
    match tree:
        case ast.Call() if _get_function_name(tree) in NON_MODULE_CALLS:
            return
        case ast.Constant(value=str(text)) if re.fullmatch(rf"{package}(\.\w+)+\.?", text):
            yield text.rstrip("."), tree.lineno
    for child in ast.iter_child_nodes(tree):
        yield from _find_module_strings(child, package)


def _get_function_name(call: ast.Call) -> str:
    """Return the name of a called function without its module, or "" if it has none."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _resolve_relative_name(name: str, importing_package: str) -> str:
    """Return the full name of a module that a file of the package `importing_package` imports as `name`."""
    relative = name.lstrip(".")
    if relative == name:
        return name
    start = importing_package.split(".")[: 1 + importing_package.count(".") - (len(name) - len(relative) - 1)]
    return ".".join([*start, relative]).rstrip(".")


def get_place(module: str) -> tuple[str, ...]:
    """Return the room of a module, in core with its part, such as ("core", "layers"). The package is ("",)."""
    room, *inner = module.split(".")[1:] or [""]
    return (room, inner[0]) if room == "core" and inner else (room,)


@cache
def list_allowed_places(place: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the places that the modules of a place may import, besides their own."""
    room, *part = place
    allowed = {*ROOMS, *FACE} if room in FACE else {*ROOMS[room], "_version"} if room in ROOMS else set()
    levels = CORE_ORDER if "core" in allowed else ()
    if part:
        levels = CORE_ORDER[: next((i for i, names in enumerate(CORE_ORDER) if part[0] in names), 0)]
    return {(name,) for name in allowed} | {("core", name) for names in levels for name in names}


def find_breaches(imports: Sequence[Import]) -> list[str]:
    """Return a message for each import that the rooms, or the order inside core, do not allow."""
    messages = (
        f"{location}: {'/'.join(place)} imports {imported}"
        for importer, imported, location in imports
        if (place := get_place(importer)) != (imported_place := get_place(imported))
        and imported_place not in list_allowed_places(place)
    )
    return list(dict.fromkeys(messages))


def find_misplaced_modules(package: Path = PACKAGE) -> list[str]:
    """Return a message for each module outside of the rooms, or in core outside of its parts."""
    places = {*((name,) for name in (*ROOMS, *FACE)), *(("core", name) for names in CORE_ORDER for name in names)}
    return [
        f"{path.relative_to(package.parents[1])} is in no room, or in no part of core"
        for module, path in sorted(find_modules(package).items())
        if get_place(module) not in places
    ]


def _list_entered_packages(step: Import) -> list[str]:
    """Return the packages of the imported module that the importer is not in: their `__init__` runs first."""
    parts = step.imported.split(".")
    packages = [".".join(parts[:n]) for n in range(2, len(parts))]
    return [package for package in packages if not f"{step.importer}.".startswith(f"{package}.")]


def find_import_cycle(imports: Sequence[Import]) -> str:
    """Return a cycle of files, each of which imports the next, or "" if there is none.

    A registry that imports the files of its package when a name is first looked up makes no cycle.
    """
    locations = {
        (i.importer, module): i.location for i in imports for module in (*_list_entered_packages(i), i.imported)
    }
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for (importer, imported), location in locations.items():
        if importer != imported and ":" in location:
            sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        files = error.args[1][::-1]
        return "; ".join(f"{locations[step]}: {step[0]} imports {step[1]}" for step in pairwise(files))
    return ""


class Room(NamedTuple):
    """A room, as its README.md and its files describe it.

    Attributes:
        name: the folder.
        purpose: the heading of the README.
        beginning: the file to begin with, relative to the folder.
        budget, cpp_budget: the largest numbers of lines of Python and C++ that CI allows.
        lines, cpp_lines: the numbers of lines, without files that protoc wrote.
    """

    name: str
    purpose: str
    beginning: str
    budget: int
    cpp_budget: int
    lines: int
    cpp_lines: int


README_PATTERN = re.compile(
    r"# (?P<name>\w+): (?P<purpose>.+)\n(?s:.+)\n- Begin with: `(?P<beginning>[\w/.]+)`\n"
    r"- May import: (?P<imports>.+)\n- Imported by: (?P<importers>.+)\n"
    r"- Budget: (?P<budget>[\d,]+) lines(?:, and (?P<cpp_budget>[\d,]+) lines of C\+\+)?(?: \(.+\))?\n"
)


def read_readme(folder: Path) -> dict[str, str]:
    """Return the fields of a room's README.md.

    Raises:
        ValueError: if the README does not have the form of the other rooms' READMEs.
    """
    path = folder / "README.md"
    match = README_PATTERN.fullmatch(path.read_text())
    if match is None:
        raise ValueError(f"{path} must have a heading, a text and four lines, like the READMEs of the other rooms")
    return match.groupdict(default="0")


def measure_room(folder: Path) -> Room:
    """Return what the README of a room says, and the lines that the room has."""
    fields = read_readme(folder)
    python_files = [path for path in folder.rglob("*.py") if not is_generated(path)]
    return Room(
        folder.name,
        fields["purpose"],
        fields["beginning"],
        *(int(fields[name].replace(",", "")) for name in ("budget", "cpp_budget")),
        lines=count_lines(python_files),
        cpp_lines=count_lines([*folder.rglob("*.cc"), *folder.rglob("*.h")]),
    )


def is_generated(path: Path) -> bool:
    """Return whether protoc or setuptools-scm wrote a file."""
    return path.stem.endswith("_pb2") or path.stem == "_version"


def count_lines(paths: Sequence[Path]) -> int:
    """Return the number of lines in all files together."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def find_passed_budgets(rooms: Sequence[Room]) -> list[str]:
    """Return a message for each room with more lines than its budget."""
    return [
        f"src/caffejax/{room.name}/README.md: the budget is {budget:,} lines of {language}, but there are {lines:,}"
        for room in rooms
        for language, lines, budget in (
            ("Python", room.lines, room.budget),
            ("C++", room.cpp_lines, room.cpp_budget),
        )
        if lines > budget
    ]


def measure(package: Path = PACKAGE) -> dict[str, float]:
    """Return the measures of `LIMITS`; generated files (`*_pb2.py`, `_version.py`) are left out."""
    modules = {name: path for name, path in find_modules(package).items() if not is_generated(path)}
    lines = count_lines(list(modules.values()))
    stems = Counter(path.stem for path in modules.values() if path.stem not in ("__init__", "__main__"))
    return {
        "files per 1,000 lines": round(1000 * len(modules) / lines, 1),
        "base names of more than one file": sum(count > 1 for count in stems.values()),
    }


def draw_rooms() -> str:
    """Return a picture of the rooms in rows; a room may import those of the rows below."""
    heights: dict[str, int] = {}
    for name, imported in ROOMS.items():  # each after the rooms that it imports
        heights[name] = 1 + max((heights[room] for room in imported), default=-1)
    border, lines = f"+{'-' * PICTURE_WIDTH}+", []
    for height in range(max(heights.values()), -1, -1):
        row = [name for name in ROOMS if heights[name] == height]
        cells = (f"{name:^{(PICTURE_WIDTH + 1) // len(row) - 1}}" for name in row)
        lines += [border, f"|{'|'.join(cells):{PICTURE_WIDTH}}|"]
        if row == ["core"]:
            order = " < ".join(", ".join(names) for names in CORE_ORDER)
            lines.append(f"|{order:^{PICTURE_WIDTH}}|")
    return "\n".join([*lines, border])


def make_room_table(rooms: Sequence[Room]) -> str:
    """Return a Markdown table of the rooms, from the top down."""
    rows = [
        f"| `{room.name}` | {room.purpose} | `{room.name}/{room.beginning}` | "
        f"{', '.join(ROOMS[room.name]) or 'nothing'} |"
        for room in reversed(rooms)
    ]
    return "\n".join(["| room | holds | begin with | may import |", "|---|---|---|---|", *rows])


BEGIN, END = "<!-- rooms: written by scripts/structure.py -->", "<!-- end of rooms -->"


def make_page(page: Path = PAGE) -> str:
    """Return the text of the page with the current picture and table of the rooms."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n```text\n{draw_rooms()}\n```\n\n{make_room_table(measure_rooms())}\n{END}{tail}"


def measure_rooms(package: Path = PACKAGE) -> list[Room]:
    """Return all rooms, from the bottom up."""
    return [measure_room(package / name) for name in ROOMS]


def find_problems(imports: Sequence[Import]) -> list[str]:
    """Return a message for each breach of the rule, passed budget, passed limit, and page that is out of date."""
    lines = [*find_breaches(imports), *find_misplaced_modules(), *find_passed_budgets(measure_rooms())]
    if cycle := find_import_cycle(imports):
        lines.append(f"a cycle of imports: {cycle}")
    lines += [f"{name}: {value:g}, limit {LIMITS[name]}" for name, value in measure().items() if value > LIMITS[name]]
    lines += [f"{title}: {link}" for title, walk in WALKS.items() for link in find_broken_links(walk, PACKAGE)]
    if make_page() != PAGE.read_text():
        lines.append("architecture.md is out of date: run python scripts/structure.py --write")
    return lines


def print_rooms_and_walks() -> None:
    """Print the rooms with their lines, the measures with their limits, and the walks."""
    for room in reversed(measure_rooms()):
        print(f"{room.name:8} {room.lines:7,} lines of {room.budget:7,}   {room.purpose}")
        if room.cpp_budget:
            print(f"{'':8} {room.cpp_lines:7,} lines of {room.cpp_budget:7,}   in C++")
    print()
    for name, value in measure().items():
        print(f"{name:34} {value:4g}   limit {LIMITS[name]}")
    for title, walk in WALKS.items():
        num_functions = len({(file, name) for file, *names in walk.stays for name in names})
        print(f"\n{title}: {num_functions} functions in {count_files(walk)} files, goal {walk.goal}")
        print(format_walk(walk, PACKAGE).replace("`", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the structure has a problem")
    parser.add_argument("--write", action="store_true", help="write the rooms into the page")
    parser.add_argument("--spine", action="store_true", help="train LeNet, and print the functions that ran")
    options = parser.parse_args()
    if options.spine:
        print(format_spine(run_spine()))
        return
    if options.write:
        PAGE.write_text(make_page())
    print_rooms_and_walks()
    if options.check and (lines := find_problems(find_imports(PACKAGE))):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
