"""Conversion of arrays to and from BlobProto, the message in which Caffe stores blobs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import ArrayLike, NDArray

from ...base.errors import CaffejaxError, Problem, WeightsError
from ...base.human_readable import format_count
from ...base.paths import read_bytes
from ...base.varint import encode_varint
from . import wire
from .caffe_pb2 import BOOL, DOUBLE, FLOAT, FLOAT16, INT, UINT, BlobShape, Type

Array = NDArray[np.float32]

_MAX_AXES = 32  # as in Caffe

# the field numbers of BlobProto, where 1 to 4 are the legacy shape, and 10 to 13 are NVIDIA Caffe's
_DATA, _DIFF, _SHAPE, _DOUBLE_DATA, _RAW_DATA_TYPE, _RAW_DATA = 5, 6, 7, 8, 10, 12
_RAW_DTYPES: dict[int, str] = {DOUBLE: "<f8", FLOAT: "<f4", FLOAT16: "<f2", INT: "<i4", UINT: "<u4", BOOL: "?"}
_BLOBS = 7  # the field of blobs in a layer; that of histories in a .solverstate takes as many bytes
_WIRE_TYPES = {_DATA: (wire.DELIMITED, wire.FIXED32), _DOUBLE_DATA: (wire.DELIMITED, wire.FIXED64)}


class Legacy4D(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
    """An array from a file that states the shape as num x channels x height x width, as files before 2015 did.

    Leading axes of size 1 may be removed from such an array: a net that needs the shape (5, 80) accepts (1, 1, 5, 80).
    It does not accept (1, 1, 5, 80) from a current file.
    """


class BlobError(ValueError):
    """Error about a blob that is complete as a message, but whose values cannot be read or do not fit its shape."""


def decode_blob(data: memoryview) -> Array:
    """Decode a serialized BlobProto to a read-only float32 array, which is a view of `data` if possible.

    The values are those of `double_data` if there are any, otherwise of `data`, otherwise of `raw_data`, as in NVIDIA
    Caffe. That fork and OpenCV's `shrinkCaffeModel` write `raw_data`, of the type that `raw_data_type` names.

    Raises:
        ValueError: if the bytes are not a BlobProto.
        BlobError: if the shape does not match the data, or the type of the data is missing or unknown.
    """
    legacy_dims: dict[int, int] = {}
    dims: list[int] = []
    chunks: dict[int, list[memoryview]] = {_DATA: [], _DOUBLE_DATA: []}
    raw_type: int | None = None
    raw_data: memoryview | None = None
    for number, wire_type, value in wire.read_fields(data):
        if number <= 4 and isinstance(value, int):
            legacy_dims[number] = value
        elif number == _SHAPE and isinstance(value, memoryview):
            try:
                dims += BlobShape.FromString(bytes(value)).dim
            except DecodeError as error:
                raise ValueError("the shape of a blob is damaged") from error
        elif number in chunks and wire_type in _WIRE_TYPES[number] and isinstance(value, memoryview):
            chunks[number].append(value)
        elif number == _RAW_DATA_TYPE and isinstance(value, int):
            raw_type = value
        elif number == _RAW_DATA and isinstance(value, memoryview):
            raw_data = value
    shape = tuple(legacy_dims.get(i, 0) for i in range(1, 5)) if legacy_dims else tuple(dims)
    number, dtype, field = (_DOUBLE_DATA, "<f8", "double_data") if chunks[_DOUBLE_DATA] else (_DATA, "<f4", "data")
    content = chunks[number][0] if len(chunks[number]) == 1 else b"".join(chunks[number])
    if raw_data is not None and len(content) == 0:
        values = decode_raw_data(raw_data, raw_type)
    else:
        values = _read_values(content, dtype, field)
    if len(shape) > _MAX_AXES:
        raise BlobError(f"a blob has {len(shape)} axes, but at most {_MAX_AXES} are allowed")
    if math.prod(shape) != values.size:
        expected_count = format_count(math.prod(shape), "value")
        raise BlobError(f"a blob of shape {format_shape(shape)} must have {expected_count}, but has {values.size}")
    with np.errstate(over="ignore", invalid="ignore"):  # out-of-range values become infinity, as in Caffe
        array = values.astype(np.float32, copy=False).reshape(shape)
    array.flags.writeable = False
    return array.view(Legacy4D) if legacy_dims else array


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
        return [encode_varint(i << 3) + encode_varint(n) for i, n in enumerate(values.shape, 1)] + pieces
    return pieces + wire.encode_delimited(_SHAPE, BlobShape(dim=values.shape).SerializeToString())


def measure_blobs(shapes: Iterable[Sequence[int]], has_diffs: bool = False) -> int:
    """Return the bytes that float32 blobs of these shapes take in a .caffemodel or a .solverstate."""
    total = 0
    for shape in shapes:
        values = (1 + has_diffs) * wire.measure_delimited(_DATA, 4 * math.prod(shape))
        blob = values + wire.measure_delimited(_SHAPE, BlobShape(dim=shape).ByteSize())
        total += wire.measure_delimited(_BLOBS, blob)
    return total


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
    except BlobError as cause:
        raise error(Problem(str(cause), str(path))) from cause
    except ValueError as cause:
        raise error(Problem(f"is not a .binaryproto file, or is damaged or truncated: {cause}", str(path))) from cause


def _as_bytes(values: Array) -> memoryview:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def decode_raw_data(data: bytes | memoryview, raw_type: int | None) -> NDArray[np.generic]:
    """Return the values of the field `raw_data` or `raw_diff`, (n,), in the dtype in which they are stored.

    Args:
        data: the field's bytes.
        raw_type: the field `raw_data_type` or `raw_diff_type`, or None if it is not set.

    Raises:
        BlobError: if the type is missing or unknown, or the last value is cut short.
    """
    if raw_type not in _RAW_DTYPES:
        problem = "is missing" if raw_type is None else f"is {raw_type}, which is unknown"
        types = ", ".join(f"{name} ({number})" for name, number in Type.items())
        raise BlobError(f"the raw_data_type of its raw_data {problem}; the types are {types}")
    return _read_values(data, _RAW_DTYPES[raw_type], f"raw_data of type {Type.Name(raw_type)}")


def _read_values(data: bytes | memoryview, dtype: str, field: str) -> NDArray[np.generic]:
    if len(data) % (size := np.dtype(dtype).itemsize):
        raise BlobError(f"its {field} is cut short: it has {len(data)} bytes, and each value {size}")
    return np.frombuffer(data, dtype)


def format_shape(shape: Sequence[int]) -> str:
    """Format a shape for messages: "2 x 3"."""
    return " x ".join(map(str, shape)) or "a single number"
