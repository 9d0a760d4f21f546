"""`scripts/check_code_names.py` finds names of code that a page has and the sources lack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from check_code_names import Code, find_missing_names, main, read_code

SOURCES = {
    "src/caffejax/__init__.py": "from .core.solver.trainer import Trainer",
    "src/caffejax/core/solver/trainer.py": '''
import jax.numpy as jnp
import functools

class Base:
    size: int = 3

class Trainer(Base):
    """Trains, in contrast to old_words."""

    def __init__(self):
        self.updater = None

    def step(self, iterations):
        return getattr(self, "cached_part"), "--keep-last", "caffejax.plugins"

def make_trainer():
    pass  # a comment names other_old_words
''',
    "src/caffejax/cpu/kernels/winograd.h": "// no_words\nvoid Transform(float* tile);",
    "src/caffejax/core/schema/caffe.proto": "message NetParameter { optional int32 num_output = 1; }",
    "configs/lenet/solver.prototxt": "base_lr: 1",
    "scripts/make_page.py": "",
}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    folder = tmp_path_factory.mktemp("repository")
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_code(folder, list(SOURCES))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "core/solver/trainer.py",
            "solver/trainer.py",
            "kernels/winograd.h",
            "core/solver",
            "core/solver/",
            "core/*/*.py",
        ),
        *("core/<part>", "configs/lenet", "/dev/shm", "*.h"),
        *("trainer.make_trainer", "caffejax.core.solver.trainer", "caffejax.core.solver.trainer.make_trainer"),
        *("caffejax.Trainer", "caffejax.Trainer.step", "caffejax.plugins"),
        *("Trainer.step", "Trainer.updater", "Trainer.size", "Trainer.step(3)", "make_trainer()", "Trainer"),
        *("cached_part", "num_output", "NetParameter", "Transform", "trainer", "--keep-last", "iterations="),
        *("jnp.einsum", "functools.cache", "python scripts/make_page.py", "1 < 2", "layer { }"),
    ],
)
def test_a_name_in_the_sources_is_found(code: Code, name: str) -> None:
    assert list(find_missing_names(f"Text with `{name}`.", code)) == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            "solver/train.py",
            "kernels/winograd.cc",
            "winograd.h",
            "*.cc",
            "core/solvers",
            "configs/alexnet",
            "forks/<family>",
        ),
        *("options.make_trainer", "solver_old.make_trainer", "caffejax.solver.trainer", "caffejax.core.Trainer"),
        *("Trainer.stop", "Trainer.updater.old_words", "make_train()", "Train", "caffejax.Solver"),
        *("old_words", "other_old_words", "no_words", "num_outputs", "--keep-best", "solvers"),
    ],
)
def test_a_name_that_the_sources_lack_is_reported(code: Code, name: str) -> None:
    assert list(find_missing_names(f"Text.\n\nText with `{name}`, and `Trainer`.", code)) == [
        (3, name.removesuffix("()"))
    ]


def test_paths_and_flags_in_commands_are_names(code: Code) -> None:
    page = (
        "To repeat:\n\n    python scripts/make_page.py --keep-last 3 configs/alexnet.prototxt --other=3 'old_words'\n"
    )
    assert list(find_missing_names(page, code)) == [(3, "configs/alexnet.prototxt"), (3, "--other")]


def test_code_in_fences_is_not_checked(code: Code) -> None:
    assert list(find_missing_names("```python\n`old_words`\n```\n`old_words`", code)) == [(4, "old_words")]


def test_the_pages_for_developers_have_no_name_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["check_code_names.py"])
    main()
