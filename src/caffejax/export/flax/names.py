"""Names in source, made of names in prototxts, which may be anything: only letters, digits and _ ever come through."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

from flax import nnx

from .helpers import HELPERS

# what modules have, and what written sources import
_OF_MODULES = {name for name in dir(nnx.Module) if not name.startswith("_")}
_IMPORTED = {"jax", "jnp", "nnx", "np", "rngs", "self", "Path", "WEIGHTS", "load", "load_file", "ocp"}
TAKEN = frozenset({*_OF_MODULES, *_IMPORTED, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
# what no variable may be called besides: it would hide a function that a line calls, or be lost in a loop over blocks
USED_IN_LINES = frozenset({*TAKEN, *HELPERS, "x", "block"})


def words(name: str) -> list[str]:
    """Return the runs of ASCII letters and digits in a name."""
    return re.findall(r"[A-Za-z0-9]+", name)


def identifier(name: str, kind: str = "layer") -> str:
    """Return a name for an attribute or a variable: lower case with underscores, never a keyword or a builtin.

    Args:
        name: any text.
        kind: what to begin with where the text begins with a digit, and what to say where nothing is left of it.
    """
    found = "_".join(words(name)).lower()[:60].strip("_")
    if not found or found[0].isdigit():
        found = f"{kind}_{found}".strip("_")
    return f"{found}_" if found in TAKEN else found


def class_name(name: str, otherwise: str) -> str:
    """Return a name for a class: the words of a name, each with a capital first."""
    found = "".join(word[0].upper() + word[1:] for word in words(name))[:60]
    if not found or found[0].isdigit():
        found = otherwise + found
    return f"{found}Net" if found in TAKEN else found


def unique(name: str, taken: Collection[str], between: str = "_") -> str:
    """Return the name, with a number behind it if it is taken."""
    found, n = name, 2
    while found in taken:
        found, n = f"{name}{between}{n}", n + 1
    return found


def comment(text: str) -> str:
    """Return text for a docstring: what can be printed in ASCII, without quotes and backslashes, in one short line."""
    kept = re.sub(r"[^ -~]|[\"'\\]", " ", text)
    return " ".join(kept.split())[:70].strip()


def shared_start(names: Sequence[str]) -> str:
    """Return the letters that all names begin with."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def common(names: Sequence[str]) -> list[str]:
    """Return the words that all names have at the same places; none if they have different numbers of words."""
    split = [words(name) for name in names]
    if len({len(ws) for ws in split}) != 1:
        return []
    return [ws[0] for ws in zip(*split, strict=True) if len(set(ws)) == 1]


def common_prefix(names: Iterable[str]) -> list[str]:
    """Return the words that all names begin with."""
    found: list[str] = []
    for ws in zip(*map(words, names), strict=False):
        if len(set(ws)) > 1:
            break
        found.append(ws[0])
    return found
