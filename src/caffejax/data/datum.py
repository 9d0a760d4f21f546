"""From the bytes of a Datum to an image and its label."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
from google.protobuf.message import DecodeError

from ..errors import DataError
from ..schema import caffe_pb2

AS_STORED: int = cv2.IMREAD_UNCHANGED
COLOUR: int = cv2.IMREAD_COLOR
GREY: int = cv2.IMREAD_GRAYSCALE

_LABELS_KEPT = 1 << 16


class BadImageError(DataError):
    """A record or a file that holds no image that can be read."""


def read_datum(data: bytes, decode: int = AS_STORED) -> tuple[np.ndarray, int]:
    """Reads a Datum.

    Args:
        data: the serialised Datum.
        decode: what becomes of a compressed image: AS_STORED, COLOUR or GREY. Raw data stays as it is.

    Returns:
        The image (C, H, W), uint8 or, from float_data, float32, colours in the order B, G, R; and the label.

    Raises:
        BadImageError: if this is no Datum, its image cannot be decoded, or its size is not that of its data.
    """
    try:
        datum = caffe_pb2.Datum.FromString(data)
    except DecodeError as error:
        raise BadImageError("is not a Datum, or is damaged") from error
    if datum.encoded:
        return decode_image(datum.data, decode), datum.label
    shape = datum.channels, datum.height, datum.width
    raw = datum.data
    image = np.frombuffer(raw, np.uint8) if raw else np.array(datum.float_data, np.float32)
    if image.size != math.prod(shape) or min(shape) < 1:
        raise BadImageError(f"is declared {'x'.join(map(str, shape))} (CxHxW), but has {image.size} values")
    return image.reshape(shape), datum.label


class DatumReader:
    """`read_datum`, faster for raw images of one shape.

    All that differs between such Datums are the pixels and the few bytes with the label after them. So once one
    has been parsed, others that begin alike, and end as one did before, are not.

    Args:
        decode: as for `read_datum`.
    """

    def __init__(self, decode: int = AS_STORED) -> None:
        self._decode = decode
        self._last = _Raw(b"\0", 0, (), {})  # no Datum begins like this

    def __call__(self, data: bytes) -> tuple[np.ndarray, int]:
        """As `read_datum`."""
        last = self._last
        if data.startswith(last.head):
            begin, end = len(last.head), len(last.head) + last.size
            label = last.labels.get(data[end:])
            if label is not None:
                return np.ndarray(last.shape, np.uint8, data, begin), label
        image, label = read_datum(data, self._decode)
        self._remember(data, image, label)
        return image, label

    def _remember(self, data: bytes, image: np.ndarray, label: int) -> None:
        channels, height, width = image.shape
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width)
        before = len(datum.SerializeToString())
        datum.data = image.tobytes()  # the fields are written in this order: shape, data, the rest
        head = datum.SerializeToString()[: -image.size]
        pixels, rest = data[len(head) : len(head) + image.size], data[len(head) + image.size :]
        if image.dtype != np.uint8 or len(head) == before or not data.startswith(head) or pixels != datum.data:
            return
        if head != self._last.head:
            self._last = _Raw(head, image.size, image.shape, {})
        if len(self._last.labels) < _LABELS_KEPT:
            self._last.labels[rest] = label


class _Raw(NamedTuple):
    head: bytes
    size: int
    shape: tuple[int, ...]
    labels: dict[bytes, int]  # by the bytes after the pixels


def is_compressed(data: bytes) -> bool:
    """Whether a Datum holds a compressed image."""
    try:
        return bool(caffe_pb2.Datum.FromString(data).encoded)
    except DecodeError:
        return False


def decode_image(data: bytes, decode: int = AS_STORED) -> np.ndarray:
    """Decodes a compressed image (JPEG, PNG, ...) to uint8 (C, H, W), colours in the order B, G, R.

    Raises:
        BadImageError: if OpenCV cannot decode it, or its pixels are not bytes.
    """
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), decode) if data else None
    except cv2.error as error:
        raise BadImageError(f"its image cannot be decoded: {error.err}") from error
    if image is None:
        raise BadImageError(f"its image of {len(data)} bytes cannot be decoded: not a JPEG, PNG, ... or damaged")
    if image.dtype != np.uint8:
        raise BadImageError(f"its image has {image.dtype} pixels, not bytes; force_color or force_gray converts it")
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
