"""Mean files under a Data layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from caffejax.core.schema import caffe_pb2
from caffejax.core.schema.blob_proto import read_blob_proto

from ..harness import Files, Harness, choose_mutator, mutate_one_file, read_files
from ..mutators.byte_mutations import damage
from ..mutators.wire import change_fields
from ._sources import GOLDEN, read_net_batches
from ._weights import are_equal_arrays

_NET = """layer { name: "d" type: "Data" top: "data" top: "label"
  transform_param { mean_file: "mean.binaryproto" scale: 0.5 }
  data_param { source: "db" batch_size: 4 backend: LMDB } }"""


def _make_intact_sets() -> list[Files]:
    database = {f"db/{name}": content for name, content in read_files(GOLDEN / "lmdb_raw").items()}
    return [{**database, "mean.binaryproto": (GOLDEN / "mean.binaryproto").read_bytes()}]


def _read(folder: Path) -> Any:
    read_net_batches(_NET, folder, 1)
    return read_blob_proto(folder / "mean.binaryproto")


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    try:
        blob = caffe_pb2.BlobProto.FromString(damaged["mean.binaryproto"])
    except DecodeError:
        return None
    expected_values = np.array(blob.double_data or blob.data, np.float64).astype(np.float32)
    return (
        None if are_equal_arrays(expected_values, np.asarray(actual).reshape(-1)) else "other than protobuf: the mean"
    )


HARNESS = Harness(
    _make_intact_sets,
    mutate_one_file(choose_mutator(change_fields, damage), ".binaryproto"),
    _read,
    _describe_difference,
)
