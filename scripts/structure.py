"""Measure the structure of src/caffejax, and keep the table of packages in docs/development/architecture.md.

python scripts/structure.py           prints the measures beside their limits, and the three walks through the code
python scripts/structure.py --check   fails if a measure is above its limit, or if the page is out of date
python scripts/structure.py --write   writes the table of packages into the page
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "caffejax"
PAGE = ROOT / "docs" / "development" / "architecture.md"

# From the top down. A package or module may import from lower levels; those of one level do not import each other.
LEVELS: tuple[dict[str, str], ...] = (
    {"caffejax": "the public names, imported when they are first used", "__main__": "`python -m caffejax`"},
    {"cli": "one file per command; flags, log lines, exit codes"},
    {"shim": "a package `caffe` that is pycaffe: for the path of scripts, and to be installed"},
    {
        "pycaffe": "Caffe's Python interface: blobs to read and write, ranges of layers, callbacks, NetSpec",
        "dnn": "OpenCV's interface to nets, `cv2.dnn`: nets from files and buffers, models with preprocessing",
        "planning": "compiles a net for accelerators that may be absent, and reports what the program does",
        "checking": "checks model files: phases, missing files, whether the weights fit, many files in parallel",
        "metrics": "callbacks that record training: JSON lines, TensorBoard",
    },
    {
        "training": "configuration, trainer, train step, update rules, learning-rate schedules, test nets, snapshots",
        "gradcheck": "compares autodiff, the hand-written Backward and finite differences",
        "logs": "parses training logs of Caffe, caffejax and JSON lines into tables, and plots them",
        "export": "a pruned net as StableHLO, ONNX or flax source",
        "prediction": "classes, boxes or labels of pixels of pictures, with the preprocessing of published nets",
    },
    {
        "debugging": "memory, timing, intermediates, features, the layer where NaN arose; dumps of all values",
        "process_settings": "settings of the whole process, each off until its function is called",
        "view": "nets as drawings: layers without shapes, repeated blocks, the HTML page, its server, SVG",
    },
    {"interop": "a net as a flax module"},
    {"net": "`init`, `apply`, `loss`: pure functions over pytrees"},
    {"inference": "frozen nets: constant folding, partition, oneDNN programs, one cache by shapes, when they are used"},
    {
        "execution": "compiler passes over a graph, and the interpreter that runs layers",
        "checkpoints": "weights and training states on disk: Caffe's formats, orbax, .npz, .safetensors",
    },
    {"summary": "a net in numbers: shapes, parameters, multiply-adds, receptive fields, families"},
    {"parallel": "the mesh of devices, shardings, data parallelism, agreement of several processes"},
    {"data": "data layers, image transforms, the loader, readers and writers of databases"},
    {"graph": "wiring, shapes, shared params, splits, Caffe's rules about nets, which layers need a backward pass"},
    {"layers": "layer types, one family per file or folder: settings, shapes, forward, params and Backward together"},
    {"kernels": "operations with an implementation per platform, chosen when they are lowered"},
    {"schema": "Caffe's messages, their text and binary forms, upgrades of old files"},
    {"untrusted_hdf5": "limits for HDF5 files from unknown sources"},
    {
        "import_alias": "a package imported under another name",
        "atomic_write": "files that are written completely or not at all",
        "config": "the options of computing, reading data and parallel training",
        "variables": "the types of params, state and outputs",
    },
    {"fork_guard": "errors in processes that were forked too late", "paths": "search for files that a prototxt names"},
    {
        "errors": "exceptions, and suggestions of similar names",
        "glog": "log lines in Caffe's form",
        "host_memory": "the memory of the machine or its control group",
        "text_table": "tables for a terminal",
        "_version": "the version, which setuptools-scm writes",
    },
    {"human_readable": "sizes and counts as people write them"},
)
LEVEL_OF = {name: level_number for level_number, level in enumerate(LEVELS) for name in level}

# Calls whose string arguments look like module names but are not.
NON_MODULE_CALLS = ("getLogger", "entry_points")

LIMITS = {
    "Python files": 430,
    "files per 1,000 lines": 7,
    "lines": 56_000,
    "modules with one importer": 60,
    "modules with one importer and at most 60 lines": 0,
    "base names of more than one file": 20,
}
WALK_LIMITS = {
    "From the command line to the optimizer's update": 20,
    "From a prototxt field to the kernel": 25,
    "From an image in LMDB to the device": 12,
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


def find_imports(package: Path, *, dynamic: bool = True) -> list[Import]:
    """Return all imports within a package, those inside functions and for the type checker included.

    Args:
        package: the package's folder.
        dynamic: whether to add `import_module`, module names in strings, the stubs (`.pyi`) of lazily imported names,
            and `walk_packages` over the package package.
    """
    modules = find_modules(package)
    imports = []
    for importer, path in sorted(modules.items()):
        importing_package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        text = path.read_text()
        file_location = str(path.relative_to(package.parent))
        if dynamic and re.search(r"(?:iter_modules|walk_packages)\(", text):
            imports += [
                Import(importer, name, file_location) for name in modules if name.startswith(f"{importing_package}.")
            ]
        for source in (path, path.with_suffix(".pyi")):
            if source != path and not (dynamic and "attach_stub" in text and source.exists()):
                continue
            for name, line in _find_imported_names(ast.parse(source.read_text()), importing_package, dynamic):
                imported = name if name in modules else name.rpartition(".")[0]  # a module, or something in it
                if imported in modules:
                    imports.append(Import(importer, imported, f"{source.relative_to(package.parent)}:{line}"))
    return imports


def _find_imported_names(tree: ast.AST, importing_package: str, dynamic: bool) -> Iterator[tuple[str, int]]:
    """Yield full name and line of each import in a file of a package, and of strings if `dynamic`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from ((alias.name, node.lineno) for alias in aliases)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                start = _resolve_relative_name("." * level + (module or ""), importing_package)
                yield from ((f"{start}.{alias.name}", node.lineno) for alias in aliases)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _get_function_name(node) == "import_module":
                if dynamic:
                    yield _resolve_relative_name(name, importing_package), node.lineno
    if dynamic:
        yield from _find_module_strings(tree, importing_package.partition(".")[0])


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


def get_package(module: str) -> str:
    """Return the top-level package or module of caffejax that a module belongs to."""
    package, _, inner = module.partition(".")
    return inner.partition(".")[0] or package


def find_upward_imports(imports: Sequence[Import]) -> list[str]:
    """Return a message for each import that does not lead to a lower level."""
    return [
        f"{location}: {package} imports {imported}, but its level ({', '.join(LEVELS[LEVEL_OF[package]])}) is not "
        f"above ({', '.join(LEVELS[LEVEL_OF[imported_package]])})"
        for importer, imported, location in imports
        if (package := get_package(importer)) != (imported_package := get_package(imported))
        and LEVEL_OF[package] >= LEVEL_OF[imported_package]
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


def measure(package: Path = PACKAGE) -> dict[str, float]:
    """Return the measures of `LIMITS`; generated files (`*_pb2.py`, `_version.py`) are left out."""
    modules = {
        name: path
        for name, path in find_modules(package).items()
        if not path.stem.endswith("_pb2") and path.stem != "_version"
    }
    lines = {name: len(path.read_text().splitlines()) for name, path in modules.items()}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for importer, imported, _ in (i for i in find_imports(package, dynamic=False) if i.importer in modules):
        if importer != imported and modules[importer].stem != "__init__":  # which only passes names on
            importers[imported].add(importer)
    ordinary_modules = [name for name, path in modules.items() if path.stem not in ("__init__", "__main__")]
    single_importer_modules = [name for name in ordinary_modules if len(importers[name]) == 1]
    stems = Counter(modules[name].stem for name in ordinary_modules)
    return {
        "Python files": len(modules),
        "files per 1,000 lines": round(1000 * len(modules) / sum(lines.values()), 1),
        "lines": sum(lines.values()),
        "modules with one importer": len(single_importer_modules),
        "modules with one importer and at most 60 lines": sum(lines[name] <= 60 for name in single_importer_modules),
        "base names of more than one file": sum(count > 1 for count in stems.values()),
    }


def read_walks(page: Path = PAGE) -> dict[str, list[str]]:
    """Return the files of each walk through the code, as the page lists them under a heading of `WALK_LIMITS`."""
    walks: dict[str, list[str]] = {}
    for section in re.split(r"^### ", page.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if title in WALK_LIMITS:
            walks[title] = list(dict.fromkeys(re.findall(r"`([\w/]+\.(?:py|cc|h))`", text.partition("\n## ")[0])))
    return walks


def make_package_table() -> str:
    """Return the levels as a Markdown table."""
    rows = [
        f"| {level_number} | `{name}` | {text} |"
        for level_number, level in enumerate(LEVELS)
        for name, text in level.items()
    ]
    return "\n".join(["| level | package or module | holds |", "|---|---|---|", *rows])


BEGIN, END = "<!-- packages: written by scripts/structure.py -->", "<!-- end of packages -->"


def make_page(page: Path = PAGE) -> str:
    """Return the text of the page with the current table of packages."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{make_package_table()}\n{END}{tail}"


def find_problems() -> list[str]:
    """Return a message for each measure above its limit, each missing walk or file, and a page that is out of date."""
    walks = read_walks()
    measures = measure() | {title: len(walks.get(title, ())) for title in WALK_LIMITS}
    limits = LIMITS | WALK_LIMITS
    missing = [f"{title}: {name}" for title, names in walks.items() for name in names if not (PACKAGE / name).exists()]
    lines = [f"{name}: {value:g}, limit {limits[name]}" for name, value in measures.items() if value > limits[name]]
    lines += [f"architecture.md has no walk '{title}'" for title in WALK_LIMITS if title not in walks]
    lines += [f"{text} does not exist" for text in missing]
    if make_page() != PAGE.read_text():
        lines.append("architecture.md is out of date: run python scripts/structure.py --write")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a measure is above its limit")
    parser.add_argument("--write", action="store_true", help="write the table of packages into the page")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(make_page())
    for name, value in measure().items():
        print(f"{name:50} {value:8g}   limit {LIMITS[name]}")
    for title, files in read_walks().items():
        print(f"{title:50} {len(files):8} files   limit {WALK_LIMITS[title]}")
    if options.check and (lines := find_problems()):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
