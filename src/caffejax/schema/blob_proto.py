"""Conversion of arrays to and from BlobProto, the message in which Caffe stores blobs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import CaffejaxError, Problem, WeightsError
from ..human_readable import format_count
from ..paths import read_bytes
from . import wire
from .caffe_pb2 import BlobShape

Array = NDArray[np.float32]

_MAX_AXES = 32  # as in Caffe

# the field numbers of BlobProto, where 1 to 4 are the legacy shape
_DATA, _DIFF, _SHAPE, _DOUBLE_DATA = 5, 6, 7, 8
_WIRE_TYPES = {_DATA: (wire.DELIMITED, wire.FIXED32), _DOUBLE_DATA: (wire.DELIMITED, wire.FIXED64)}


class Legacy4D(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
    """An array from a file that states the shape as num x channels x height x width, as files before 2015 did.

    Leading axes of size 1 may be removed from such an array: a net that needs the shape (5, 80) accepts (1, 1, 5, 80).
    It does not accept (1, 1, 5, 80) from a current file.
    """


def decode_blob(data: memoryview) -> Array:
    """Decode a serialized BlobProto to a read-only float32 array, which is a view of `data` if possible.

    Raises:
        ValueError: if the bytes are not a BlobProto, or the shape does not match the data.
    """
    legacy_dims: dict[int, int] = {}
    dims: list[int] = []
    chunks: dict[int, list[memoryview]] = {_DATA: [], _DOUBLE_DATA: []}
    for number, wire_type, value in wire.read_fields(data):
        if number <= 4 and isinstance(value, int):
            legacy_dims[number] = value
        elif number == _SHAPE and isinstance(value, memoryview):
            dims += _read_dims(value)
        elif number in chunks and wire_type in _WIRE_TYPES[number] and isinstance(value, memoryview):
            chunks[number].append(value)
    shape = tuple(legacy_dims.get(i, 0) for i in range(1, 5)) if legacy_dims else tuple(dims)
    return _make_array(chunks, shape, bool(legacy_dims))


def encode_blob(blob: ArrayLike, diff: ArrayLike | None = None) -> list[bytes | memoryview]:
    """Serialize an array as a float32 BlobProto.

    The shape of a `Legacy4D` is written in the old form.

    Args:
        blob: the values.
        diff: the gradients, or None.

    Returns:
        The pieces of the message, in order. Some are views of the arrays.
    """
    values = np.asarray(blob, "<f4")
    pieces = wire.encode_delimited(_DATA, _as_bytes(values))
    if diff is not None:
        pieces += wire.encode_delimited(_DIFF, _as_bytes(np.asarray(diff, "<f4")))
    if isinstance(blob, Legacy4D):
        return [wire.encode_varint(i << 3) + wire.encode_varint(n) for i, n in enumerate(values.shape, 1)] + pieces
    return pieces + wire.encode_delimited(_SHAPE, BlobShape(dim=values.shape).SerializeToString())


def measure_blob(shape: Sequence[int], has_diff: bool = False) -> int:
    """Return the bytes of `encode_blob`'s message for an array of a shape."""
    values = wire.measure_delimited(_DATA, 4 * math.prod(shape))
    return values * (1 + has_diff) + wire.measure_delimited(_SHAPE, BlobShape(dim=shape).ByteSize())


def read_blob_proto(path: str | os.PathLike[str], error: type[CaffejaxError] = WeightsError) -> Array:
    """Read one array from a .binaryproto file, such as a mean image.

    Returns:
        The array, float32 and read-only, in the stored shape, which is 4-D in old files.

    Raises:
        CaffejaxError: if the file cannot be read or is not a .binaryproto. The class of the exception is `error`.
    """
    data = read_bytes(path, error)
    try:
        if not data:
            raise ValueError("the file is empty")
        return decode_blob(memoryview(data))
    except ValueError as cause:
        raise error(Problem(f"is not a .binaryproto file, or is damaged or truncated: {cause}", str(path))) from cause


def _as_bytes(values: Array) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _read_dims(shape: memoryview) -> list[int]:
    dims: list[int] = []
    for number, _, value in wire.read_fields(shape):
        if number == 1:
            dims += [value] if isinstance(value, int) else wire.read_varints(value)
    return dims


def _make_array(chunks: dict[int, list[memoryview]], shape: tuple[int, ...], legacy: bool) -> Array:
    number, dtype = (_DOUBLE_DATA, "<f8") if chunks[_DOUBLE_DATA] else (_DATA, "<f4")
    content = chunks[number][0] if len(chunks[number]) == 1 else b"".join(chunks[number])
    values = np.frombuffer(content, dtype)
    if len(shape) > _MAX_AXES:
        raise ValueError(f"a blob has {len(shape)} axes, but at most {_MAX_AXES} are allowed")
    if math.prod(shape) != values.size:
        expected_count = format_count(math.prod(shape), "value")
        raise ValueError(f"a blob of shape {format_shape(shape)} must have {expected_count}, but has {values.size}")
    with np.errstate(over="ignore", invalid="ignore"):  # out-of-range values become infinity, as in Caffe
        array = values.astype(np.float32, copy=False).reshape(shape)
    array.flags.writeable = False
    return array.view(Legacy4D) if legacy else array


def format_shape(shape: Sequence[int]) -> str:
    """Format a shape for messages: "2 x 3"."""
    return " x ".join(map(str, shape)) or "a single number"
