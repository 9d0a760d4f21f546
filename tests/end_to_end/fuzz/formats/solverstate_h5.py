"""Training states in .solverstate.h5 files, with the record of state that Caffe does not store."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from ..harness import Files, Harness
from ..mutators.hdf5 import change_hdf5
from ..mutators.json_trees import change_json
from ._solvers import restore, write_snapshot


def _make_intact_sets() -> list[Files]:
    return [write_snapshot(".solverstate", ".caffemodel", hdf5=True)]


def _mutate(rng: Random, files: Files) -> Files:
    name = next(name for name in files if name.endswith(".solverstate.h5"))
    change = _change_record if rng.random() < 0.4 else change_hdf5
    return {**files, name: change(rng, files[name])}


def _change_record(rng: Random, content: bytes) -> bytes:
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        text = change_json(rng, bytes(file["caffejax"][()]))
        del file["caffejax"]
        file["caffejax"] = np.bytes_(text.replace(b"\0", b" ") or b" ")
    return buffer.getvalue()


def _read(folder: Path) -> Any:
    return restore(next(folder.glob("*.solverstate.h5")))


HARNESS = Harness(_make_intact_sets, _mutate, _read)
