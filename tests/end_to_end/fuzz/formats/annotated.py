"""Databases of annotated images, and label maps, under an AnnotatedData layer."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from caffejax.base.databases import Lmdb, write_lmdb
from caffejax.forks.detection.data.annotated_datum import write_annotated

from ..harness import Files, Harness, read_files
from ..mutators.tokens import change_tokens
from ..mutators.wire import change_fields
from ._schema import list_schema_words
from ._sources import read_net_batches

_NET = """layer { name: "d" type: "AnnotatedData" top: "data" top: "label"
  transform_param { mirror: true resize_param { height: 20 width: 20 } expand_param { prob: 0.5 max_expand_ratio: 2 } }
  data_param { source: "db" backend: LMDB batch_size: 3 }
  annotated_data_param { label_map_file: "labels.prototxt"
    batch_sampler { sampler { min_scale: 0.5 } sample_constraint { min_jaccard_overlap: 0.1 } max_sample: 1
      max_trials: 5 } } }"""
_MAP = b'item { name: "none" label: 0 display_name: "b" }\nitem { name: "a" label: 1 display_name: "a" }\n'


@functools.cache
def _records() -> list[tuple[bytes, bytes]]:
    boxes = np.array([[1, 0, 0.1, 0.1, 0.6, 0.7, 0], [1, 1, 0.2, 0.3, 0.9, 0.9, 1]], np.float32)
    pixels = [np.random.default_rng(i).integers(0, 256, (12 + i, 15, 3), np.uint8) for i in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        write_annotated(Path(folder) / "db", [(image, boxes) for image in pixels])
        return list(Lmdb(Path(folder) / "db"))


def _make_intact_sets() -> list[Files]:
    records = {f"records/{i}": value for i, (_, value) in enumerate(_records())}
    return [{**records, "labels.prototxt": _MAP}]


def _mutate(rng: Random, files: Files) -> Files:
    name = rng.choice(sorted(files))
    if name == "labels.prototxt":
        return {**files, name: change_tokens(rng, files[name], list_schema_words())}
    return {**files, name: change_fields(rng, files[name])}


def _read(folder: Path) -> Any:
    values = read_files(folder / "records")
    write_lmdb(folder / "db", [(name.encode(), value) for name, value in sorted(values.items())])
    read_net_batches(_NET, folder, 3, "TRAIN")
    return read_net_batches(_NET, folder, 3)


HARNESS = Harness(_make_intact_sets, _mutate, _read)
