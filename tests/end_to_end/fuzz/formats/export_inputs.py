"""The inputs of `caffejax export --check`, an .npz or an .npy file."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from caffejax.export.proof import read_inputs

from ..harness import Files, Harness
from ..mutators.zips import change_archive, change_npy

_ARRAYS = {"data": np.arange(6, dtype=np.float32).reshape(1, 2, 3), "info": np.ones((1, 3), np.float32)}


def _make_intact_sets() -> list[Files]:
    archive, array = io.BytesIO(), io.BytesIO()
    np.savez(archive, **_ARRAYS)  # type: ignore[arg-type]
    np.save(array, _ARRAYS["data"])
    return [{"inputs.npz": archive.getvalue()}, {"inputs.npy": array.getvalue()}]


def _mutate(rng: Random, files: Files) -> Files:
    [(name, content)] = files.items()
    name = rng.choice(["inputs.npz", "inputs.npy"]) if rng.random() < 0.1 else name
    return {name: (change_npy if content.startswith(b"\x93NUMPY") else change_archive)(rng, content)}


def _read(folder: Path) -> Any:
    [path] = folder.iterdir()
    return read_inputs(str(path), _ARRAYS if path.suffix == ".npz" else {"data": _ARRAYS["data"]})


HARNESS = Harness(_make_intact_sets, _mutate, _read)
