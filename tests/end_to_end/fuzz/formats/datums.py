"""Records of databases: Datums of every kind, mutated field by field, read by a Data layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from caffejax.base.databases import write_lmdb
from caffejax.core.schema.caffe_pb2 import Datum

from ..harness import Files, Harness, choose_mutator, mutate_one_file, read_files
from ..mutators.byte_mutations import damage
from ..mutators.wire import change_fields
from ._sources import read_net_batches

_NET = """layer { name: "d" type: "Data" top: "data" top: "label" transform_param { %s }
  data_param { source: "db" backend: LMDB batch_size: 3 } }"""


def _make_intact_sets() -> list[Files]:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 6, 8), np.uint8)
    shape = {"channels": 3, "height": 6, "width": 8, "label": 5}
    raw_datum = Datum(**shape, data=pixels.tobytes())
    float_datum = Datum(**shape, float_data=(pixels / 7).reshape(-1).tolist())
    encoded_datum = Datum(**shape, data=cv2.imencode(".png", pixels.transpose(1, 2, 0))[1].tobytes(), encoded=True)
    return [
        {f"records/{i}": datum.SerializeToString() for i in range(3)}
        for datum in (raw_datum, float_datum, encoded_datum)
    ]


def _read(folder: Path) -> Any:
    values = read_files(folder / "records")
    write_lmdb(folder / "db", [(name.encode(), value) for name, value in sorted(values.items())])
    read_net_batches(_NET % "crop_size: 4 mirror: true", folder, 2, "TRAIN")
    return read_net_batches(_NET % "scale: 0.5", folder, 2)


HARNESS = Harness(_make_intact_sets, mutate_one_file(choose_mutator(change_fields, damage)), _read)
