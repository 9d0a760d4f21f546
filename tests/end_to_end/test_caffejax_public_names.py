"""The names that `caffejax` and its doors offer, and that pages, examples and users' docstrings use no others."""

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import caffejax

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from list_public_names import LIST, PUBLIC_MODULES, format_names

REPOSITORY = Path(__file__).parents[2]
DOORS = [name.removeprefix("caffejax.") for name in PUBLIC_MODULES[1:]]
NOT_NAMES = {"caffejax.layers": "the entry point of packages with layers"}


@pytest.mark.parametrize("module_name", PUBLIC_MODULES)
def test_all_public_names_exist(module_name: str) -> None:
    module = importlib.import_module(module_name)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        caffejax.nonsense  # noqa: B018


def test_import_does_not_import_jax() -> None:
    code = "import sys, caffejax; sys.exit(bool({'jax', 'numpy', 'google.protobuf'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_and_signatures_are_the_recorded_ones() -> None:
    """Where a change is meant, `python scripts/list_public_names.py` records it; CHANGELOG.md tells users."""
    assert format_names() == LIST.read_text()


def find_pages() -> list[Path]:
    docs = [path for path in (REPOSITORY / "docs").rglob("*.md") if "development" not in path.parts]
    folders = [REPOSITORY / name for name in ("examples", "configs")]
    used_files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py", ".ipynb")]
    return [REPOSITORY / "README.md", *docs, *used_files]


def is_public(module_name: str, name: str) -> bool:
    module = importlib.import_module(module_name)
    return name in module.__all__ or (module_name == "caffejax" and name in DOORS)


def find_private_names(text: str) -> Iterator[str]:
    """Yield the imports from caffejax and the dotted names in a text that are neither public names nor parts of one."""
    for module, names in re.findall(r"from (caffejax[\w.]*) import (\([^)]*\)|[\w, ]+)", text):
        if module in PUBLIC_MODULES:
            imported = re.findall(r"(\w+)(?: as \w+)?", names)
            yield from (f"from {module} import {name}" for name in imported if not is_public(module, name))
        else:
            yield f"from {module} import"
    for full_name in re.findall(r"(?<!from )(?<![\w./-])caffejax(?:\.[A-Za-z_]\w*)+", text):
        module, _, name = full_name.partition(".")
        if name.partition(".")[0] in DOORS:
            door, _, name = name.partition(".")
            module = f"caffejax.{door}"
        if name and full_name not in NOT_NAMES and not is_public(module, name.partition(".")[0]):
            yield full_name


def test_pages_and_examples_use_public_names_only() -> None:
    pages = find_pages()
    assert len(pages) > 50
    used = [
        f"{page.relative_to(REPOSITORY)}: {name}" for page in pages for name in find_private_names(page.read_text())
    ]
    assert used == []


def test_docstrings_of_public_names_use_public_names_only() -> None:
    private_names = []
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            members = vars(value).values() if inspect.isclass(value) else ()
            for text in map(inspect.getdoc, (module, value, *members)):
                private_names += [f"{module_name}.{name}: {x}" for x in find_private_names(text or "")]
    assert private_names == []


@pytest.mark.parametrize(
    ("text", "private_names"),
    [
        ("from caffejax.base.databases import Lmdb", ["from caffejax.base.databases import"]),
        ("from caffejax.export.onnx import write_onnx", ["from caffejax.export.onnx import"]),
        ("from caffejax import Net, nonsense", ["from caffejax import nonsense"]),
        ("import caffejax.core.data\nx = 1", ["caffejax.core.data"]),
        ("calls `caffejax.tools.plan()` and caffejax.Net.", ["caffejax.tools.plan"]),
        ("`caffejax.export.flax_module.CaffeModule`", ["caffejax.export.flax_module.CaffeModule"]),
        ("caffejax.dnn.Net().forward, caffejax.export.CaffeModule, import caffejax.pycaffe as caffe", []),
        ("from caffejax import Net, export", []),
    ],
)
def test_private_names_in_a_text_are_found(text: str, private_names: list[str]) -> None:
    assert list(find_private_names(text)) == private_names
