"""Mean files under a Data layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from caffejax.schema import caffe_pb2
from caffejax.schema.blob_proto import read_blob_proto

from ..harness import Files, Harness, choose_mutator, mutate_one_file, read_files
from ..mutators.raw import damage
from ..mutators.wire import change_fields
from ._sources import GOLDEN, batches
from ._weights import same_array

_NET = """layer { name: "d" type: "Data" top: "data" top: "label"
  transform_param { mean_file: "mean.binaryproto" scale: 0.5 }
  data_param { source: "db" batch_size: 4 backend: LMDB } }"""


def _intact() -> list[Files]:
    database = {f"db/{name}": content for name, content in read_files(GOLDEN / "lmdb_raw").items()}
    return [{**database, "mean.binaryproto": (GOLDEN / "mean.binaryproto").read_bytes()}]


def _read(folder: Path) -> Any:
    batches(_NET, folder, 1)
    return read_blob_proto(folder / "mean.binaryproto")


def _complaint(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    try:
        stored = caffe_pb2.BlobProto.FromString(damaged["mean.binaryproto"])
    except DecodeError:
        return None
    numbers = np.array(stored.double_data or stored.data, np.float64).astype(np.float32)
    return None if same_array(numbers, np.asarray(actual).reshape(-1)) else "other than protobuf: the mean"


HARNESS = Harness(_intact, mutate_one_file(choose_mutator(change_fields, damage), ".binaryproto"), _read, _complaint)
