"""Caffe's .caffemodel files, in the three versions of the layer message: V0, V1 and current.

Files are decoded without the protobuf schema. Only the names and blobs of layers are read, because their fields are the
same in every fork of Caffe. The arrays are views of the file's bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import ArrayLike

from ...base.atomic_write import replace_file
from ...base.errors import Problem, WeightsError, raise_if_any
from ...base.paths import decode_string, describe_content, encode_string, is_hdf5, read_bytes
from ..schema import wire
from ..schema.blob_proto import Array, BlobError, decode_blob, encode_blob, measure_blobs
from ..schema.caffe_pb2 import LayerParameter, NetParameter

# the field numbers of a net's layers, and of the name and blobs in each kind of layer
_NET_LAYER_FIELD, _NET_V1_LAYERS_FIELD = 100, 2
_CURRENT_FIELDS = (1, 7)  # name, blobs
_V1_FIELDS = (4, 6)
_V0_FIELDS, _V0_LAYER_FIELD = (1, 50), 1
MAX_MESSAGE_BYTES = 2**31 - 1  # of protobuf

Blobs = Mapping[str, Sequence[ArrayLike]] | Sequence[Sequence[ArrayLike]]


def read_caffemodel(path: str | os.PathLike[str]) -> dict[str, tuple[Array | None, ...]]:
    """Read the weights of a net from a .caffemodel or a .caffemodel.h5.

    Returns:
        The blobs by layer name, in the file's order. Layers without blobs are included. If several layers have the same
        name, the last is returned. Arrays are float32 and read-only, and have the stored shape. Arrays with the 4-D
        shape of old files are `Legacy4D`. A blob that an HDF5 file omits, because another layer stores it, is None.
        `match_by_name.reshape_to_net` converts the blobs to a net's shapes.

    Raises:
        WeightsError: if the file cannot be read, is not a .caffemodel, is damaged, or has no layers.
    """
    if is_hdf5(path):
        from .caffe_hdf5 import read_caffemodel_h5

        return read_caffemodel_h5(path)
    return decode_caffemodel(memoryview(read_bytes(path, WeightsError)), path)


def decode_caffemodel(data: memoryview, path: str | os.PathLike[str]) -> dict[str, tuple[Array | None, ...]]:
    """Decode the content of a .caffemodel to blobs by layer name. The arrays are views of `data`.

    Args:
        data: the content of the file.
        path: the file, for error messages.

    Raises:
        WeightsError: if the bytes are not a .caffemodel, are damaged, or have no layers.
    """
    try:
        layers = _decode_layers(data)
    except BlobError as error:  # the file is a .caffemodel
        raise WeightsError(Problem(str(error), str(path))) from error
    except ValueError as error:
        layers = {}
        reason = f"not a .caffemodel, or damaged or cut short: {error}"
    else:
        reason = "there are no layers in this file; is it a .caffemodel?" if data else "the file is empty"
    if any(layers.values()):
        return layers
    content_kind = describe_content(bytes(data[:1000]))
    if layers and content_kind is None:
        return layers
    if content_kind == "a text":
        content_kind += "; name the file with the weights, such as net.caffemodel"
    raise WeightsError(Problem(f"not a .caffemodel, but {content_kind}" if content_kind else reason, str(path)))


def write_caffemodel(path: str | os.PathLike[str], net: NetParameter, blobs: Blobs, diffs: Blobs | None = None) -> None:
    """Write a .caffemodel file as Caffe does: each layer's definition with its blobs.

    An existing file is replaced once the new file is complete.

    Args:
        path: the file.
        net: the net's definition in the current schema, as `read_net` returns it. Blobs in the definition are ignored.
        blobs: the blobs by layer name, or a list with the blobs of each layer of `net`. A mapping may omit layers
            without blobs.
        diffs: the gradients to store beside the blobs, in the same form, or None.

    Raises:
        WeightsError: if `blobs` or `diffs` has a layer that the net does not have, or the file cannot be written.
    """
    entries = list(zip(net.layer, _order_blobs(net, blobs), _order_blobs(net, diffs or {}), strict=True))
    shapes = [np.shape(blob) for _, layer_blobs, layer_diffs in entries for blob in (*layer_blobs, *layer_diffs)]
    remedy = "write a .caffemodel.h5 (snapshot_format: HDF5 in a solver, Net.save_hdf5 in pycaffe)"
    raise_if_any(WeightsError, check_size(net.ByteSize() + measure_blobs(shapes), "the .caffemodel", str(path), remedy))
    with replace_file(path, WeightsError) as file:
        if net.HasField("name"):
            file.writelines(wire.encode_delimited(1, encode_string(net.name)))
        for layer, layer_blobs, layer_diffs in entries:
            definition = deepcopy(layer)
            definition.ClearField("blobs")
            if net.state.HasField("phase") and not layer.HasField("phase"):
                definition.phase = net.state.phase
            pieces = _encode_definition(definition)
            for i, blob in enumerate(layer_blobs):
                pieces += wire.encode_delimited(7, *encode_blob(blob, layer_diffs[i] if i < len(layer_diffs) else None))
            file.writelines(wire.encode_delimited(_NET_LAYER_FIELD, *pieces))


def check_size(size: int, kind: str, file: str | None, remedy: str) -> Iterator[Problem]:
    """Yield a problem if a message of `size` bytes exceeds the limit of protobuf, beyond which Caffe cannot read it.

    Args:
        size: the number of bytes.
        kind: a noun phrase for the file in the message.
        file: the file that the problem is about, or None.
        remedy: what the user can do.
    """
    if size > MAX_MESSAGE_BYTES:
        message = (
            f"{kind} would have {size:,} bytes, but protobuf's messages have at most {MAX_MESSAGE_BYTES:,} (2 GiB), so "
            f"Caffe could not read it; {remedy}"
        )
        yield Problem(message, file)


def _encode_definition(layer: LayerParameter) -> list[bytes | memoryview]:
    """Return the bytes of a definition without blobs, with the bytes of strings as in the prototxt."""
    strings = [(1, layer.name), *((3, bottom) for bottom in layer.bottom), *((4, top) for top in layer.top)]
    if all(encode_string(text) == text.encode() for _, text in strings):
        return [layer.SerializeToString()]
    unnamed = deepcopy(layer)
    for field in ("name", "bottom", "top"):
        unnamed.ClearField(field)
    pieces = [piece for number, text in strings for piece in wire.encode_delimited(number, encode_string(text))]
    return [*pieces, unnamed.SerializeToString()]


def _order_blobs(net: NetParameter, blobs: Blobs) -> Sequence[Sequence[ArrayLike]]:
    if not isinstance(blobs, Mapping):
        return blobs
    unknown_layers = sorted(set(blobs) - {layer.name for layer in net.layer})
    problems = (f"the net has no layer '{name}', but there are blobs for it" for name in unknown_layers)
    raise_if_any(WeightsError, problems)
    return [blobs.get(layer.name, ()) for layer in net.layer]


def _decode_layers(data: memoryview) -> dict[str, tuple[Array | None, ...]]:
    layers: dict[str, tuple[Array | None, ...]] = {}
    for field, _, value in wire.read_fields(data):
        if field not in (_NET_LAYER_FIELD, _NET_V1_LAYERS_FIELD) or isinstance(value, int):
            continue
        name, blobs = _decode_layer(value) if field == _NET_LAYER_FIELD else _decode_v1_layer(value)
        layers[name] = blobs
    return layers


def _decode_layer(data: memoryview, fields: tuple[int, int] = _CURRENT_FIELDS) -> tuple[str, tuple[Array, ...]]:
    name, blobs = "", []
    for field, wire_type, value in wire.read_fields(data):
        if wire_type != wire.DELIMITED or isinstance(value, int):
            continue
        if field == fields[0]:
            name = decode_string(bytes(value))
        elif field == fields[1]:
            try:
                blobs.append(decode_blob(value))
            except ValueError as error:
                raise type(error)(f"layer '{name}', blob {len(blobs)}: {error}") from error
    return name, tuple(blobs)


def _decode_v1_layer(data: memoryview) -> tuple[str, tuple[Array, ...]]:
    """Return the name and blobs of a V1 layer message, or of the V0 layer message that it contains."""
    for field, wire_type, value in wire.read_fields(data):
        if field == _V0_LAYER_FIELD and wire_type == wire.DELIMITED and not isinstance(value, int):
            return _decode_layer(value, _V0_FIELDS)
    return _decode_layer(data, _V1_FIELDS)
