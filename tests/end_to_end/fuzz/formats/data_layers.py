"""Settings of data layers over intact files: batches of both phases."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from caffejax.core.schema import caffe_pb2

from ..harness import Files, Harness, get_intact_sets
from ..mutators.proto_text import change_message
from ..mutators.tokens import change_tokens
from ._schema import list_schema_words
from ._sources import GOLDEN, read_batches

_NETS = {
    "lmdb": """type: "Data" data_param { source: "db" batch_size: 3 backend: LMDB }
      transform_param { crop_size: 3 mirror: true scale: 0.5 mean_value: 7 }""",
    "hdf5_data": 'type: "HDF5Data" hdf5_data_param { source: "list.txt" batch_size: 3 shuffle: true }',
    "windows": """type: "WindowData" transform_param { crop_size: 12 }
      window_data_param { source: "windows.txt" batch_size: 4 fg_threshold: 0.6 context_pad: 1 crop_mode: "warp" }""",
    "lists": """type: "ImageData" transform_param { crop_size: 3 mean_value: 1 }
      image_data_param { source: "list.txt" batch_size: 2 new_height: 5 new_width: 6 }""",
}
_TOPS = {"hdf5_data": 'top: "extra" top: "data"'}


def _make_intact_sets() -> list[Files]:
    mean = (GOLDEN / "mean.binaryproto").read_bytes()
    return [
        {**get_intact_sets(format)[0], "mean.binaryproto": mean, "net.prototxt": _net_text(format, text).encode()}
        for format, text in _NETS.items()
    ]


def _net_text(format: str, text: str) -> str:
    tops = _TOPS.get(format, 'top: "data" top: "label"')
    return f'layer {{ name: "d" {tops} {text} }}'


def _mutate(rng: Random, files: Files) -> Files:
    text = files["net.prototxt"]
    if rng.random() < 0.2:
        return {**files, "net.prototxt": change_tokens(rng, text, list_schema_words())}
    strings = [*sorted(files), "square", "\0", "a/" * 3000, "~", "Data", "ImageData", "db"]
    changed_text = change_message(rng, text, caffe_pb2.NetParameter, strings)
    # what is large and not too large is slow
    return {**files, "net.prototxt": changed_text.replace(b"20000000", b"200000")}


def _read(folder: Path) -> Any:
    read_batches(folder / "net.prototxt", 2, "TRAIN")
    return read_batches(folder / "net.prototxt", 2)


HARNESS = Harness(_make_intact_sets, _mutate, _read, is_text=True)
