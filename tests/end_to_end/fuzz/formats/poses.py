"""Databases of images with the joints of people, under a CPMData layer."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from caffejax.base.databases import write_lmdb
from caffejax.core.schema.caffe_pb2 import Datum

from ..harness import Files, Harness, read_files
from ..mutators.byte_mutations import damage
from ..mutators.numbers import draw_edge
from ..mutators.wire import change_fields
from ._sources import read_net_batches

_NET = """layer { name: "d" type: "CPMData" top: "data" top: "label"
  data_param { source: "db" backend: LMDB batch_size: 2 }
  cpm_transform_param { num_parts: 43 np_in_lmdb: 16 stride: 8 crop_size_x: 32 crop_size_y: 24 } }"""
_SHAPE = (6, 40, 72)
_PEOPLE_OFFSET = 3 * 40 * 72  # where the channel that describes the people begins


def _make_intact_sets() -> list[Files]:
    rng = np.random.default_rng(0)
    files = {}
    for num_other_people in range(3):
        channels = rng.integers(0, 256, _SHAPE, np.uint8)
        rows = channels[3]
        rows[2, 1] = num_other_people
        joints = rng.uniform(1, 40, (5 + 4 * (1 + num_other_people), 16)).astype("<f4")
        values_by_row = {1: (40, 72), 3: (36, 20), 4: (0.5,)}
        for row in (*range(5, 8), *range(9, 9 + 4 * num_other_people)):
            values_by_row[row] = tuple(joints[row % len(joints)])
        for row, values in values_by_row.items():
            data = struct.pack(f"<{len(values)}f", *values)
            rows[row, : len(data)] = np.frombuffer(data, np.uint8)
        datum = Datum(channels=6, height=_SHAPE[1], width=_SHAPE[2], data=channels.tobytes())
        files[f"records/{num_other_people}"] = datum.SerializeToString()
    return [files]


def _mutate(rng: Random, files: Files) -> Files:
    name = rng.choice(sorted(files))
    if rng.random() < 0.3:
        return {**files, name: rng.choice((damage, change_fields))(rng, files[name])}
    datum = Datum.FromString(files[name])
    data = bytearray(datum.data)
    for _ in range(rng.choice((1, 2, 8))):
        offset = _PEOPLE_OFFSET + 72 * rng.randrange(25) + 4 * rng.randrange(16)
        number = rng.choice((float("nan"), float("inf"), -1e30, 0.0, 1e7))
        data[offset : offset + 4] = (
            struct.pack("<f", number) if rng.random() < 0.5 else draw_edge(rng, 32).to_bytes(4, "big")
        )
    datum.data = bytes(data)
    return {**files, name: datum.SerializeToString()}


def _read(folder: Path) -> Any:
    values = read_files(folder / "records")
    write_lmdb(folder / "db", [(name.encode(), value) for name, value in sorted(values.items())])
    read_net_batches(_NET, folder, 3, "TRAIN")
    return read_net_batches(_NET, folder, 3)


HARNESS = Harness(_make_intact_sets, _mutate, _read)
