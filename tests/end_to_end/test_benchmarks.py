"""Imports of benchmarks and scripts exist. Most of them are not run, because they need other packages."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("scripts/*.py")])


def find_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Each (module, name) that a file imports by name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def find_names(file: Path) -> set[str]:
    """Names that a file defines or imports."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names | {node.id for node in nodes if isinstance(node, ast.Name)} | {name for _, name in find_imports(file)}


def has_name(file: Path, module: str, name: str) -> bool:
    sibling = file.with_name(f"{module}.py")
    if sibling.exists():
        return name in find_names(sibling)
    if module.split(".")[0] != "caffejax":
        return True
    result = importlib.import_module(module)
    return hasattr(result, name) or (
        hasattr(result, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_imported_names_exist(file: Path) -> None:
    assert not [f"{module}.{name}" for module, name in find_imports(file) if not has_name(file, module, name)]


@pytest.mark.parametrize("form", [(), ("--scan",)])
def test_benchmark_of_gpus_compares_caffejax_with_flax(form: tuple[str, ...]) -> None:
    """The benchmark of GPUs runs on a CPU and without PyTorch too, so its mistakes are found where there is no GPU."""
    flags = "--nets lenet --batches 2 --precision float32 --rounds 1 --iterations 2 --no-torch"
    command = [sys.executable, "gpu.py", *flags.split(), *form]
    output = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True).stdout
    lines = [line.split(" | ") for line in output.splitlines() if "|" in line and "---" not in line]
    _, (*_, to_torch, to_flax, rate, _, _, _, no_rate, _, _, _, flax_rate, _, _, _), _, lenet = lines
    assert (to_torch, no_rate) == ("-", "-")
    assert "-" not in (to_flax, rate, flax_rate, *lenet[2:4]), output  # "-" where one did not run
