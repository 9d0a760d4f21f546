"""HDF5 files under an HDF5Data layer, and the list of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from ..harness import Files, Harness
from ..mutators.hdf5 import change_hdf5
from ..mutators.tokens import change_tokens
from ._sources import GOLDEN, read_net_batches

_NET = """layer { name: "d" type: "HDF5Data" top: "extra" top: "data"
  hdf5_data_param { source: "list.txt" batch_size: 4 %s } }"""


def _make_intact_sets() -> list[Files]:
    parts = {name: (GOLDEN / name).read_bytes() for name in ("part0.h5", "part1.h5")}
    return [{**parts, "list.txt": b"part0.h5\npart1.h5\n"}]


def _mutate(rng: Random, files: Files) -> Files:
    if rng.random() < 0.1:
        return {**files, "list.txt": change_tokens(rng, files["list.txt"], ["part0.h5", "list.txt", ".", "/dev/null"])}
    name = rng.choice(("part0.h5", "part1.h5"))
    return {**files, name: change_hdf5(rng, files[name])}


def _read(folder: Path) -> Any:
    read_net_batches(_NET % "shuffle: true", folder, 4)
    return read_net_batches(_NET % "", folder, 4)


HARNESS = Harness(_make_intact_sets, _mutate, _read)
