"""Weights in .caffemodel files of all three generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from caffejax import read_caffemodel
from caffejax.base.paths import decode_string
from caffejax.core.schema import caffe_pb2

from ..harness import Files, Harness, choose_mutator, mutate_one_file
from ..mutators.byte_mutations import damage
from ..mutators.wire import change_fields
from ._weights import BLOBS, NET, are_equal_arrays, load_blobs


def _serialize_current() -> bytes:
    from caffejax import read_net

    net = read_net(NET)
    for layer in net.layer:
        for blob in BLOBS.get(layer.name, ()):
            layer.blobs.add(data=blob.reshape(-1).tolist(), shape=caffe_pb2.BlobShape(dim=blob.shape))
    return net.SerializeToString()


def _serialize_v1() -> bytes:
    net = caffe_pb2.NetParameter(name="old")
    for name, blobs in BLOBS.items():
        layer = net.layers.add(name=name)
        for blob in blobs:
            axes = dict(zip(("num", "channels", "height", "width"), (1,) * (4 - blob.ndim) + blob.shape, strict=True))
            layer.blobs.add(data=blob.reshape(-1).tolist(), **axes)
    return net.SerializeToString()


def _serialize_v0() -> bytes:
    net = caffe_pb2.NetParameter.FromString(_serialize_v1())
    for layer in net.layers:
        layer.layer.name = layer.name
        layer.layer.blobs.MergeFrom(layer.blobs)
        layer.ClearField("blobs")
        layer.ClearField("name")
    return net.SerializeToString()


def _make_intact_sets() -> list[Files]:
    return [
        {"weights.caffemodel": content}
        for content in (_serialize_current(), _serialize_current(), _serialize_v1(), _serialize_v0())
    ]


def _read(folder: Path) -> Any:
    path = folder / "weights.caffemodel"
    result = read_caffemodel(path)
    load_blobs(path)
    return result


def _decode_name(layer: Any) -> str:
    """Return the name of a layer whose name is not UTF-8, which protobuf shows as bytes."""
    return layer.name if isinstance(layer.name, str) else decode_string(layer.name)


def _describe_difference(damaged: Files, intact: Files, expected: Any, actual: Any) -> str | None:
    """Return a message if protobuf reads other blobs from the file."""
    try:
        net = caffe_pb2.NetParameter.FromString(damaged["weights.caffemodel"])
    except DecodeError:
        return None
    if len(net.layers) == 0:
        for name, layer in {_decode_name(layer): layer for layer in net.layer}.items():  # the last of a name counts
            expected_blobs = [
                np.array(blob.data or blob.double_data, np.float64).astype(np.float32) for blob in layer.blobs
            ]
            actual_blobs = [np.asarray(blob).reshape(-1) for blob in actual.get(name, ())]
            if not (
                len(expected_blobs) == len(actual_blobs) and all(map(are_equal_arrays, expected_blobs, actual_blobs))
            ):
                return f"other than protobuf: layer '{name}'"
    return None


HARNESS = Harness(
    _make_intact_sets,
    mutate_one_file(choose_mutator(change_fields, change_fields, damage)),
    _read,
    _describe_difference,
)
