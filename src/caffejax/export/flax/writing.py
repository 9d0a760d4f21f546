"""A subject as a folder with flax source and weights."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...checkpoints.safetensors import write_safetensors
from ...errors import CaffejaxError, Problem
from ..subject import Subject
from .blocks import with_blocks
from .readme import readme
from .runs import with_lists
from .source import net_class, settled, source
from .translate import translate

Weights = Literal["safetensors", "orbax"]


def write_flax(subject: Subject, folder: str | os.PathLike[str], *, weights: Weights = "safetensors") -> None:
    """Write a net as flax source that runs and trains without caffejax.

    The folder then holds `model.py` with the net's class and `load`, its weights, and `README.md` on how to use them.

    Args:
        subject: the net.
        folder: where to; made if it does not exist, else it must be empty.
        weights: the form of the weights: "safetensors", a file, or "orbax", a folder.

    Raises:
        CaffejaxError: naming every layer that cannot be written; or if the folder is not empty, or cannot be written.
        WeightsError: if the package for the weights is missing.
    """
    if weights not in _WRITERS:
        raise CaffejaxError(f'weights must be "safetensors" or "orbax", not {weights!r}')
    target = Path(folder)
    check_folder(target)
    program = settled(with_lists(with_blocks(translate(subject))))
    name = net_class(program, subject.net.graph.name)
    files = {"model.py": source(program, name, weights), "README.md": readme(program, name, weights)}
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=_parent(target)) as made:
            whole = Path(made) / "whole"
            whole.mkdir()
            for file, text in files.items():
                (whole / file).write_text(text, encoding="ascii")
            _WRITERS[weights](whole, program.weights)
            os.replace(whole, target)
    except OSError as error:
        raise CaffejaxError(Problem(f"cannot be written: {error.strerror or error}", str(target))) from error


def _parent(target: Path) -> Path:
    return target.resolve().parent


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise `CaffejaxError` unless the folder is free to write to."""
    target = Path(folder)
    if os.path.isdir(target):
        if any(target.iterdir()):
            raise CaffejaxError(Problem("is a folder with files in it, name another or empty it", str(target)))
    elif os.path.lexists(target):
        raise CaffejaxError(Problem("is no folder; name another", str(target)))
    elif not os.path.isdir(_parent(target)):
        raise CaffejaxError(Problem(f"cannot be made: there is no folder '{_parent(target)}'", str(target)))


def _write_file(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_safetensors(folder / "model.safetensors", arrays)


def _write_orbax(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import orbax.checkpoint as ocp

    tree: dict[Any, Any] = {}
    for path, array in arrays.items():
        *above, last = (int(word) if word.isdigit() else word for word in path.split("."))
        inside = tree
        for word in above:
            inside = inside.setdefault(word, {})
        inside[last] = array
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save((folder / "weights").absolute(), tree)


_WRITERS: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {
    "safetensors": _write_file,
    "orbax": _write_orbax,
}
