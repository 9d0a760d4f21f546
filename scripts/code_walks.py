"""Walks through the code, and the functions that a training run enters, for `scripts/structure.py`.

A walk names the functions that one thing passes through, in order. `find_broken_links` reports where the code has moved
on: consecutive files of a walk call each other, in either direction.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

DIGITS = Path(__file__).parents[1] / "configs" / "digits"
Definition = ast.FunctionDef | ast.ClassDef


class Walk(NamedTuple):
    """A walk through the code.

    Attributes:
        goal: the number of files that it should not exceed.
        stays: the files, relative to the package, each with the names of functions and classes in it. A file to which
            the walk returns is listed again.
    """

    goal: int
    stays: tuple[tuple[str, ...], ...]


WALKS: dict[str, Walk] = {
    "From the command line to the optimizer's update": Walk(
        15,
        (
            ("cli/__init__.py", "main"),
            ("cli/train.py", "run", "_train"),
            ("core/solver/solver.py", "Solver"),
            ("core/solver/build_trainer.py", "build_trainer"),
            ("core/solver/solver.py", "Solver"),
            ("core/solver/trainer.py", "Trainer.step", "Trainer._update"),
            ("core/solver/compiled_updater.py", "CompiledUpdater", "CompiledUpdater.update"),
            ("core/solver/train_step.py", "make_step", "make_passes"),
            ("core/program/net.py", "Net.loss"),
            ("core/solver/train_step.py", "make_passes", "make_update"),
            ("core/solver/caffe_optimizer.py", "CaffeOptimizer", "caffe_optimizer.run", "_make_blob_update"),
        ),
    ),
    "From a prototxt field to the operation": Walk(
        12,
        (
            ("core/schema/text.py", "parse_valid_fields"),
            ("core/schema/load.py", "read_valid_part", "_read"),
            ("core/program/net.py", "Net.__init__"),
            ("core/graph/build.py", "build_graph", "_Wiring._make_context"),
            ("core/layers/context.py", "Context.settings"),
            ("core/layers/convolution.py", "make_convolution_op", "read_window", "ConvolutionOp.__call__"),
            ("core/ops/convolution_op.py", "correlate"),
        ),
    ),
    "From an image in LMDB to the device": Walk(
        10,
        (
            ("base/databases/lmdb.py", "Lmdb.read_range"),
            ("core/data/database.py", "RecordDataset.read_records", "DatumDataset.read"),
            ("core/data/image_decoding.py", "DatumReader.read_same_layout"),
            ("core/data/database.py", "DatumDataset.read"),
            ("core/data/image_batches.py", "ImageBatches", "ImageBatches._read_examples"),
            ("core/data/transform.py", "Transform.__call__"),
            ("core/data/image_batches.py", "ImageBatches", "ImageBatches.read"),
            ("core/data/prefetch.py", "_ShardBatches.__getitem__", "Pipeline.take"),
            ("core/data/loader.py", "Loader._advance", "Loader.take"),
            ("core/solver/placement.py", "Placement.read_batches"),
            (
                "core/solver/compiled_updater.py",
                "CompiledUpdater.update",
                "CompiledUpdater._update",
            ),
            ("core/solver/placement.py", "Placement.put_batches"),
        ),
    ),
    "From an eager Net.apply to a layer's function": Walk(
        5,
        (
            ("core/program/net.py", "Net.apply", "Net._run"),
            ("core/program/interpreter.py", "run_schedule", "iterate_parts", "compute_part", "_compute_tops"),
            ("core/layers/dispatch.py", "cached_call", "call", "forward"),
            ("core/layers/context.py", "Context.call"),
            ("core/layers/convolution.py", "convolution"),
        ),
    ),
}


def count_files(walk: Walk) -> int:
    """Return the number of different files of a walk."""
    return len({file for file, *_ in walk.stays})


def format_walk(walk: Walk, package: Path) -> str:
    """Return a walk as a numbered list of files and functions, with the first sentence of a function's docstring."""
    lines, files = [], set()
    for number, (file, *names) in enumerate(walk.stays, 1):
        summaries = filter(None, (_summarize_docstring(package / file, name) for name in names))
        summary = "" if file in files else next(summaries, "")
        files.add(file)
        functions = ", ".join(f"`{name}`" for name in names)
        lines.append(f"{number}. `{file}`: {functions}{summary and f'. {summary}'}")
    return "\n".join(lines)


def _summarize_docstring(path: Path, name: str) -> str:
    definition = find_definition(path, name)
    docstring = (definition and ast.get_docstring(definition)) or ""
    return re.split(r"(?<=\.)\s|\n", docstring)[0]


def find_broken_links(walk: Walk, package: Path) -> list[str]:
    """Return a message for each function that does not exist, and for consecutive files without a connection."""
    # connected: a function of one file names a function of the other, or the file imports from it
    missing = [
        f"{file} has no '{name}'"
        for file, *names in walk.stays
        for name in names
        if find_definition(package / file, name) is None
    ]
    if missing:
        return missing
    return [
        f"{a[0]} ({', '.join(a[1:])}) and {b[0]} ({', '.join(b[1:])}) are not connected"
        for a, b in pairwise(walk.stays)
        if not any(_names_any(package, *pair) or _imports_from(package, *pair) for pair in ((a, b), (b, a)))
    ]


def _names_any(package: Path, caller: tuple[str, ...], called: tuple[str, ...]) -> bool:
    """Return whether a function of one stay names a function of another, or the class of a method."""
    callable_names = {part for name in called[1:] for part in name.split(".") if not part.startswith("__")}
    return any(callable_names & _list_used_names(package / caller[0], name) for name in caller[1:])


def _imports_from(package: Path, importer: tuple[str, ...], imported: tuple[str, ...]) -> bool:
    """Return whether the file of one stay imports something by name from the file of another."""
    modules = {
        node.module or "" for node in ast.walk(_parse(package / importer[0])) if isinstance(node, ast.ImportFrom)
    }
    return Path(imported[0]).stem in {module.rpartition(".")[2] for module in modules}


def _list_used_names(path: Path, name: str) -> set[str]:
    """Return the names that a definition uses, with those of statements of its module that name it, as registers do."""
    tree, definition = _parse(path), find_definition(path, name)
    assert definition is not None
    statements = [node for node in tree.body if isinstance(node, ast.Expr | ast.Assign)]
    registrations = [node for node in statements if name in _collect_names(node)]
    return _collect_names(definition).union(*map(_collect_names, registrations))


def _collect_names(tree: ast.AST) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def find_definition(path: Path, name: str) -> Definition | None:
    """Return the class, function or method with a name such as "Trainer.step", or None if the file lacks it."""
    node: ast.Module | Definition | None = _parse(path) if path.exists() else None
    for part in name.split("."):
        nodes = () if node is None else ast.walk(node) if isinstance(node, ast.FunctionDef) else node.body
        node = next((n for n in nodes if isinstance(n, Definition) and n.name == part), None)
    return node if isinstance(node, Definition) else None


class Spine(NamedTuple):
    """The functions of base and core that a training run entered.

    Attributes:
        functions: the names of the functions by file, relative to the package.
        num_lines: the number of lines of these functions; a function inside another is counted once.
    """

    functions: dict[str, list[str]]
    num_lines: int


def run_spine() -> Spine:
    """Train LeNet on the digits for 20 iterations with an orbax checkpoint, and return the functions that were entered.

    Imports are not counted, except for functions that they call. Functions in other threads of this process are.
    """
    codes: set[CodeType] = set()

    def record_call(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    import caffejax

    train = caffejax.Solver  # imported before calls are recorded

    with tempfile.TemporaryDirectory() as folder, _change_folder(folder):
        text = (DIGITS / "lenet_solver.prototxt").read_text()
        text = text.replace("lenet_train_test.prototxt", str(DIGITS / "lenet_train_test.prototxt"))
        Path("solver.prototxt").write_text(text.replace("max_iter: 1000", "max_iter: 20"))
        threading.setprofile(record_call)
        sys.setprofile(record_call)
        try:
            solver = train("solver.prototxt", checkpoint_only=True)
            solver.solve()
            solver.close()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        if not list(Path().rglob("*.orbax")):
            raise RuntimeError("training did not write a checkpoint")
    return _summarize(codes, Path(caffejax.__file__).parent)


@contextmanager
def _change_folder(folder: str) -> Iterator[None]:
    previous = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(previous)


def _summarize(codes: set[CodeType], package: Path) -> Spine:
    functions: defaultdict[str, list[str]] = defaultdict(list)
    lines: set[tuple[str, int]] = set()
    for code in codes:
        path = Path(code.co_filename)
        if not path.is_relative_to(package) or path.relative_to(package).parts[0] not in ("base", "core"):
            continue
        file = path.relative_to(package).as_posix()
        definition = _list_definitions(path).get((code.co_name, code.co_firstlineno))
        if definition is None:  # a module, a comprehension or a lambda
            continue
        functions[file].append(code.co_qualname.replace(".<locals>", ""))
        start = min(node.lineno for node in (definition, *definition.decorator_list))
        lines.update((file, line) for line in range(start, (definition.end_lineno or start) + 1))
    return Spine({file: sorted(names) for file, names in sorted(functions.items())}, len(lines))


@cache
def _list_definitions(path: Path) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a file by name and first line, that of their first decorator if they have any."""
    return {
        (node.name, min(n.lineno for n in (node, *node.decorator_list))): node
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.FunctionDef)
    }


def format_spine(spine: Spine) -> str:
    """Return the functions by file, and the totals, as text."""
    files = [f"{file}: {', '.join(names)}" for file, names in spine.functions.items()]
    num_functions = sum(map(len, spine.functions.values()))
    total = f"{num_functions:,} functions of base and core: {spine.num_lines:,} lines in {len(files)} files"
    return "\n".join([*files, f"{total} (goal: 6,500 lines in 75 files)"])
