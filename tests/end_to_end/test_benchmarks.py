"""Imports of benchmarks and scripts exist. Most of them are not run, because they need other packages."""

import ast
import functools
import importlib
import importlib.util
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
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
def test_benchmark_of_gpus_compares_caffejax_with_flax(tmp_path: Path, form: tuple[str, ...]) -> None:
    """The benchmark of GPUs runs on a CPU and without PyTorch too, so its mistakes are found where there is no GPU."""
    run = {"precision": "float32", "batch": 2, "kernels": "fast", "steps_per_call": 1, "rounds": 1}
    run |= {"date": "2026-01-31", "processor": jax.devices("cpu")[0].device_kind, "versions": {"jax": jax.__version__}}
    earlier_row = {"net": "caffenet", "images_per_second": {"caffejax": 1.5}, "ratio": {}, "first": {}, "GiB": {}}
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps({"run": run, "rows": [earlier_row]}))
    flags = f"--nets lenet --batches 2 --rounds 1 --iterations 2 --no-torch --json {file} --precision"
    command = [sys.executable, "gpu.py", *form, *flags.split()]
    run_benchmark = functools.partial(subprocess.run, cwd=ROOT / "benchmarks", capture_output=True, text=True)
    output = run_benchmark([*command, "float32"], check=True).stdout
    lines = [line.split(" | ") for line in output.splitlines() if "|" in line and "---" not in line]
    _, (*_, to_torch, to_flax, rate, _, _, _, no_rate, _, _, _, flax_rate, _, _, _), _, lenet = lines
    assert (to_torch, no_rate) == ("-", "-")
    assert "-" not in (to_flax, rate, flax_rate, *lenet[2:4]), output  # "-" where one did not run

    result = json.loads(file.read_text())
    kept_row, row = result["rows"]
    assert kept_row == earlier_row
    assert (row["net"], f"{row['ratio']['flax']:.2f}") == ("lenet", to_flax)
    assert [f"{n:.0f}" for n in row["images_per_second"].values()] == [rate, flax_rate]
    (comparison,) = runpy.run_path(str(ROOT / "scripts" / "benchmark_means.py"))["compare_on_gpu"](result)
    assert (comparison.name, comparison.mean) == ("gpu-flax-small", to_flax)
    assert comparison.date == result["run"]["date"] > run["date"]
    refused = run_benchmark([*command, "bfloat16"])
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        1,
        f"{file} has the rows of a run with other precision; choose another file",
    )
