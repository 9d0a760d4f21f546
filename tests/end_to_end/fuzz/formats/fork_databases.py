"""Databases under data layers of forks, and the label map and the preselection beside them."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np

from caffejax.base.databases import write_lmdb
from caffejax.core.schema.caffe_pb2 import Datum
from caffejax.forks.detection.data.annotated_datum import serialize_annotated_datum

from ..harness import Files, Harness, read_files
from ..mutators.byte_mutations import damage
from ..mutators.tokens import change_tokens
from ..mutators.wire import change_fields
from ._sources import read_batches

_RESIZE = "resize_param { height: 12 width: 10 }"
_SETTINGS = {  # of the layer, and of data_param
    "BoxData": ("top: 'a' top: 'b' transform_param { mean_value: 100 }", "side: 3"),
    "CustomData": (
        "top: 'a' top: 'b' top: 'c' top: 'l'",
        "slice_point: 3 slice_point: 5 encoding: UINT8 encoding: UINT16FLOW encoding: BOOL1 subtract: 9 "
        "preselection_file: 'split.txt' preselection_label: 1 rand_permute: true rand_permute_seed: 7",
    ),
    "AnnotatedData": (
        "top: 'a' top: 'b' top: 'c' annotated_data_param { seg_scales: 2 label_map_file: 'map.txt' single_class: false "
        f"yolo_data_type: 1 yolo_data_jitter: 0.3 }} transform_param {{ mirror: true {_RESIZE} }}",
        "shuffle: true",
    ),
    "LaneData": (
        "top: 'a' top: 'b' top: 'c' annotated_data_param { seg_scales: 2 single_class: true "
        f"yolo_data_type: 1 yolo_data_jitter: 0.3 }} transform_param {{ mirror: true {_RESIZE} }}",
        "",
    ),
    "Data": (
        "top: 'a' top: 'b' transform_param { crop_size: 6 mirror: true noise_param { prob: 1 hist_eq: true } "
        f"{_RESIZE} }}",
        "shuffle: true",
    ),
    "CPMData": (
        "top: 'a' top: 'b' cpm_transform_param { num_parts: 14 np_in_lmdb: 16 stride: 8 crop_size_x: 32 "
        "crop_size_y: 24 transform_body_joint: true }",
        "",
    ),
}
_TEXTS = {
    "CustomData": {"split.txt": b"1 0\n1\n"},
    "AnnotatedData": {
        "map.txt": b'item { name: "sky" label: 0 label_id: 0 } item { name: "car" label: 1 label_id: 2 }'
    },
}


def _make_record(layer_type: str, rng: np.random.Generator) -> bytes:
    pixels, labels = rng.integers(0, 256, (20, 16, 3), np.uint8), rng.integers(0, 2, (10, 8), np.uint8)
    datum = Datum(channels=3, height=20, width=16, data=cv2.imencode(".png", pixels)[1].tobytes(), encoded=True)
    if layer_type == "BoxData":
        datum.float_data.extend([1, 0, 0.1, 0.2, 0.2, 0.3, 2, 1, 0.5, 0.9, 0.1, 0.1])
    elif layer_type == "CustomData":
        datum = Datum(channels=6, height=3, width=7, label=4, data=rng.bytes(3 * 21 + 2 * 42 + 3))
    elif layer_type == "CPMData":
        channels = rng.integers(0, 256, (4, 40, 72), np.uint8)
        channels[3, 2, 1] = 1  # another person
        for row in (1, 3, 4, 5, 6, 7, 10, 11, 12):
            values = struct.pack("<16f", *rng.uniform(0.5, 40, 16))
            channels[3, row, : len(values)] = np.frombuffer(values, np.uint8)
        datum = Datum(channels=4, height=40, width=72, data=channels.tobytes())
    elif layer_type == "AnnotatedData":
        datum.seg_label = cv2.imencode(".png", labels)[1].tobytes()
        return serialize_annotated_datum(datum, np.array([[1, 0, 0.1, 0.2, 0.7, 0.9, 0]], np.float32))
    elif layer_type == "LaneData":
        return serialize_annotated_datum(datum, [np.array([[0.1, 0.2], [0.5, 0.6], [0.4, 0.9]], np.float32)])
    return datum.SerializeToString()


def _make_intact_sets() -> list[Files]:
    return [
        {
            "net.prototxt": f"""layer {{ name: "d" type: "{layer_type}" {text} data_param {{ source: "db"
              backend: LMDB batch_size: 2 {data_text} }} }}""".encode(),
            **{f"records/{i}": _make_record(layer_type, np.random.default_rng(i)) for i in range(3)},
            **_TEXTS.get(layer_type, {}),
        }
        for layer_type, (text, data_text) in _SETTINGS.items()
    ]


def _mutate(rng: Random, files: Files) -> Files:
    name = rng.choice(sorted(name for name in files if name != "net.prototxt"))
    if name.endswith(".txt"):
        return {**files, name: change_tokens(rng, files[name], ["item", "label", "label_id", "1", "7"])}
    if b"CPMData" not in files["net.prototxt"] or rng.random() < 0.3:
        return {**files, name: change_fields(rng, files[name])}
    datum = Datum.FromString(files[name])
    begin = 3 * 40 * 72 + 72  # of the rows that describe the people
    datum.data = datum.data[:begin] + damage(rng, datum.data[begin:])[: len(datum.data) - begin].ljust(39 * 72, b"\x7f")
    return {**files, name: datum.SerializeToString()}


def _read(folder: Path) -> Any:
    values = read_files(folder / "records")
    write_lmdb(folder / "db", [(name.encode(), value) for name, value in sorted(values.items())])
    read_batches(folder / "net.prototxt", 3, "TRAIN")
    return read_batches(folder / "net.prototxt", 3)


HARNESS = Harness(_make_intact_sets, _mutate, _read)
