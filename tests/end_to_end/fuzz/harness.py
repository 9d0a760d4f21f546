"""The parts of a format's harness: intact files, mutators, readers, and the check of results."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from typing import Any

from . import formats

Files = Mapping[str, bytes]  # by their paths within the case's folder
Mutator = Callable[[Random, bytes], bytes]


def find_no_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> None:
    """Return None: the content of damaged files is not compared."""


@dataclass(frozen=True)
class Harness:
    """The harness of one format.

    Attributes:
        make_intact_sets: makes several sets of intact files; a case damages one.
        mutate: damages some of the files.
        read: the public function that reads the files in a folder; returns their content.
        describe_difference: describes a wrong content of damaged files, or returns None; its arguments are the damaged
            and the intact files, and the contents of the intact and of the damaged ones.
        is_text: whether the files are text, which is shrunk by tokens.
        location_text: the place in errors other than a file in the folder or a layer.
    """

    make_intact_sets: Callable[[], list[Files]]
    mutate: Callable[[Random, Files], Files]
    read: Callable[[Path], Any]
    describe_difference: Callable[[Files, Files, Any, Any], str | None] = find_no_difference
    is_text: bool = False
    location_text: str = "layer '"


@functools.cache
def load_harness(format: str) -> Harness:
    """Return the harness of a format, by its name: the module in `formats`."""
    result: Harness = import_module(f"{formats.__name__}.{format}").HARNESS
    return result


def list_formats() -> list[str]:
    """List the formats."""
    return sorted(module.name for module in iter_modules(formats.__path__) if not module.name.startswith("_"))


@functools.cache
def get_intact_sets(format: str) -> list[Files]:
    """Return the sets of intact files of a format; they are made only once."""
    return load_harness(format).make_intact_sets()


def make_case(format: str, seed: int) -> tuple[int, Files]:
    """Return the index of the set of intact files that the case damages, and the damaged files."""
    rng = Random(f"{format} {seed}")
    intact_sets = get_intact_sets(format)
    intact_index = rng.randrange(len(intact_sets))
    with warnings.catch_warnings(action="ignore"):  # of what writes the damaged file
        return intact_index, load_harness(format).mutate(rng, intact_sets[intact_index])


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files in a folder and its subfolders, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def mutate_one_file(mutate: Mutator, *suffixes: str) -> Callable[[Random, Files], Files]:
    """Return a function that damages one file, chosen among those whose names end with one of the suffixes."""

    def damage(rng: Random, files: Files) -> Files:
        name = rng.choice(sorted(name for name in files if name.endswith(suffixes or "")))
        return {**files, name: mutate(rng, files[name])}

    return damage


def choose_mutator(*mutators: Mutator) -> Mutator:
    """Return a function that applies a random one of the mutators, or in one of four cases two in a row."""

    def damage(rng: Random, content: bytes) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2))):
            content = rng.choice(mutators)(rng, content)
        return content

    return damage
