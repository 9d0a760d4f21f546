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
Mutate = Callable[[Random, bytes], bytes]


def no_complaint(damaged: Files, intact: Files, expected: Any, actual: Any) -> None:
    """Complain of nothing."""


@dataclass(frozen=True)
class Harness:
    """The harness of one format.

    Attributes:
        intact: several sets of intact files; a case damages one.
        mutate: damages some of the files.
        read: the public function that reads the files in a folder; returns their content.
        complaint: describes a wrong content of damaged files, or returns None; its arguments are the damaged and the
            intact files, and the contents of the intact and of the damaged ones.
        text: whether the files are text, which is shrunk by tokens.
        location_text: the place in errors other than a file in the folder or a layer.
    """

    intact: Callable[[], list[Files]]
    mutate: Callable[[Random, Files], Files]
    read: Callable[[Path], Any]
    complaint: Callable[[Files, Files, Any, Any], str | None] = no_complaint
    text: bool = False
    location_text: str = "layer '"


@functools.cache
def harness(format: str) -> Harness:
    """Return the harness of a format, by its name: the module in `formats`."""
    result: Harness = import_module(f"{formats.__name__}.{format}").HARNESS
    return result


def format_names() -> list[str]:
    """List the formats."""
    return sorted(module.name for module in iter_modules(formats.__path__) if not module.name.startswith("_"))


@functools.cache
def intact_files(format: str) -> list[Files]:
    """Return the sets of intact files of a format; they are made only once."""
    return harness(format).intact()


def case_files(format: str, seed: int) -> tuple[int, Files]:
    """Return the index of the set of intact files that the case damages, and the damaged files."""
    rng = Random(f"{format} {seed}")
    sets = intact_files(format)
    set_number = rng.randrange(len(sets))
    with warnings.catch_warnings(action="ignore"):  # of what writes the damaged file
        return set_number, harness(format).mutate(rng, sets[set_number])


def write_files(folder: Path, files: Files) -> None:
    """Write files into a folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files in a folder and its subfolders, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def mutate_one_file(mutate: Mutate, *suffixes: str) -> Callable[[Random, Files], Files]:
    """Return a function that damages one file, chosen among those whose names end with one of the suffixes."""

    def damage(rng: Random, files: Files) -> Files:
        name = rng.choice(sorted(name for name in files if name.endswith(suffixes or "")))
        return {**files, name: mutate(rng, files[name])}

    return damage


def choose_mutator(*mutators: Mutate) -> Mutate:
    """Return a function that applies a random one of the mutators, or in one of four cases two in a row."""

    def damage(rng: Random, content: bytes) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2))):
            content = rng.choice(mutators)(rng, content)
        return content

    return damage
