"""Decoding of Datums and image files to arrays of pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from ..errors import DataError, Problem, located
from ..options import MAX_IMAGE_PIXELS
from ..paths import content
from ..schema import caffe_pb2
from .image_header import image_size
from .opencv import cv2

AS_STORED: int = cv2.IMREAD_UNCHANGED
COLOUR: int = cv2.IMREAD_COLOR
GREY: int = cv2.IMREAD_GRAYSCALE

_MAX_CACHED_LABELS = 1 << 16


class BadImageError(DataError):
    """A record or a file without an image that can be decoded."""


def read_datum(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> tuple[np.ndarray, int]:
    """Read a Datum.

    Args:
        data: the serialised Datum.
        decode: how a compressed image is decoded: AS_STORED, COLOUR or GREY. Raw data is not converted.
        max_pixels: the largest number of pixels of a compressed image.

    Returns:
        The image (C, H, W), uint8 or (from float_data) float32, channels in the order B, G, R; and the label.

    Raises:
        BadImageError: if the data is not a Datum, its image cannot be decoded or is too large, or its shape does not
            fit the number of its values.
    """
    try:
        datum = caffe_pb2.Datum.FromString(data)
    except DecodeError as error:
        raise BadImageError("is not a Datum, or is damaged") from error
    return image_of(datum, decode, max_pixels), datum.label


def image_of(datum: caffe_pb2.Datum, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Return the image of a Datum, as `read_datum` does."""
    if datum.encoded:
        return decode_image(datum.data, decode, max_pixels)
    shape = datum.channels, datum.height, datum.width
    raw = datum.data
    image = np.frombuffer(raw, np.uint8) if raw else np.array(datum.float_data, np.float32)
    if image.size != math.prod(shape) or min(shape) < 1:
        raise BadImageError(f"is declared {'x'.join(map(str, shape))} (CxHxW), but has {image.size} values")
    return image.reshape(shape)


class DatumReader:
    """Reads many Datums at once if they are raw images of one shape.

    The serialized forms of such Datums differ only in the pixels and in the few bytes with the label after them. Once
    one Datum has been parsed, others with the same beginning are split at the same offsets.

    Args:
        decode, max_pixels: as for `read_datum`.
    """

    def __init__(self, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._decode, self._max_pixels = decode, max_pixels
        self._template = _Raw(b"\0", ())  # no Datum begins with this byte
        self._labels = _Labels()

    def read(self, data: bytes) -> tuple[np.ndarray, int]:
        """Read one Datum, as `read_datum` does."""
        image, label = read_datum(data, self._decode, self._max_pixels)
        self._set_template(data, image)
        return image, label

    def read_alike(self, data: Sequence[bytes]) -> tuple[np.ndarray, list[int]] | None:
        """Return the images (N, C, H, W) and labels of Datums, or None if some differ from the raw one read last.

        Datums may differ in their pixels and labels, and not in any other field.
        """
        head, shape = self._template
        begin, end = len(head), len(head) + math.prod(shape)
        if not all(datum.startswith(head) for datum in data):
            return None
        pixels = b"".join([datum[begin:end] for datum in data])
        labels = [self._labels[datum[end:]] for datum in data]
        if len(pixels) < len(data) * (end - begin) or None in labels:
            return None
        return np.frombuffer(pixels, np.uint8).reshape(-1, *shape), labels  # type: ignore[return-value]

    def _set_template(self, data: bytes, image: np.ndarray) -> None:
        if image.dtype != np.uint8 or image.size > len(data):  # compressed
            return
        channels, height, width = image.shape
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width, data=image.tobytes())
        serialized = datum.SerializeToString()  # in the order of the fields: shape, data, others
        if data.startswith(serialized):
            self._template = _Raw(serialized[: -image.size], image.shape)


class _Raw(NamedTuple):
    head: bytes  # before the pixels
    shape: tuple[int, ...]


class _Labels(dict[bytes, int | None]):
    """A cache of labels by the bytes after the pixels, with None for bytes with fields other than the label."""

    def __missing__(self, rest: bytes) -> int | None:
        try:
            datum = caffe_pb2.Datum.FromString(rest)
        except DecodeError:
            return None
        if any(field.name != "label" and value is not False for field, value in datum.ListFields()):
            return None
        if len(self) < _MAX_CACHED_LABELS:
            self[rest] = datum.label
        return datum.label


def is_compressed(data: bytes) -> bool:
    """Return whether a Datum has a compressed image."""
    try:
        return bool(caffe_pb2.Datum.FromString(data).encoded)
    except DecodeError:
        return False


def decode_image(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode a compressed image (JPEG, PNG, ...) to uint8 (C, H, W), channels in the order B, G, R.

    Raises:
        BadImageError: if it has more than `max_pixels`, OpenCV cannot decode it, or its pixels are not bytes.
    """
    image = decode_pixels(data, decode, max_pixels)
    if image.dtype != np.uint8:
        raise BadImageError(f"its image has {image.dtype} pixels, not bytes; force_color or force_gray converts it")
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


def decode_pixels(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode a compressed image to (H, W) or (H, W, C) in OpenCV's dtype, which may differ from uint8.

    Raises:
        BadImageError: if it has more than `max_pixels`, which is checked before decoding, or cannot be decoded.
    """
    size = image_size(data)
    if size is not None:
        check_pixels(*size, max_pixels)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), decode) if size else None
    except cv2.error as error:
        raise BadImageError(f"its image cannot be decoded: {error.err}") from error
    if image is None:
        raise BadImageError(f"its image of {len(data)} bytes cannot be decoded: not a JPEG, PNG, ... or damaged")
    return image


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Check that an image is not too large.

    Raises:
        BadImageError: if it has more than `max_pixels`.
    """
    if height * width > max_pixels:
        raise BadImageError(
            f"its image has {height * width} pixels ({height}x{width}, HxW), and at most {max_pixels} are decoded; if "
            "that many are meant, raise max_image_pixels (--max_image_pixels)"
        )


def read_image(
    path: str | Path, colour: bool = True, height: int = 0, width: int = 0, max_pixels: int = MAX_IMAGE_PIXELS
) -> np.ndarray:
    """Read an image file as Caffe's ReadImageToCVMat does: uint8 (C, H, W), channels in the order B, G, R.

    Args:
        path: the file, in a format that OpenCV reads.
        colour: whether to return three channels instead of one, whatever the file has.
        height: the height to resize to, bilinearly; 0 for the original size.
        width: the width; 0 for the original size.
        max_pixels: the largest number of pixels, in the file and resized.

    Raises:
        DataError: naming the file, if it cannot be read; BadImageError, if it cannot be decoded or is too large.
    """
    return resize(decode_file(path, read_file(path), colour, max_pixels), height, width, max_pixels)


def read_file(path: str | Path) -> bytes:
    """Read the bytes of a file.

    Raises:
        DataError: naming the file, if it cannot be read.
    """
    try:
        return content(path)
    except (OSError, ValueError) as error:
        raise DataError(Problem(f"cannot be read: {getattr(error, 'strerror', error)}", str(path))) from error


def decode_file(path: str | Path, data: bytes, colour: bool = True, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode the bytes of an image file as `read_image` does.

    Raises:
        BadImageError: naming the file, if they cannot be decoded, or have more than `max_pixels`.
    """
    with located(file=str(path)):
        return decode_image(data, COLOUR if colour else GREY, max_pixels)


def resize(image: np.ndarray, height: int, width: int, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Resize an image (C, H, W) bilinearly; return it unchanged if `height` or `width` is 0.

    Raises:
        DataError: if the result would have more than `max_pixels`, or memory is exhausted.
    """
    if not (height and width):
        return image
    problem = f"cannot be resized to height {height} and width {width}: that is too large (--max_image_pixels)"
    if height * width > max_pixels:
        raise DataError(problem)
    try:
        pixels = cv2.resize(image.transpose(1, 2, 0), (width, height))
    except (cv2.error, MemoryError) as error:
        raise DataError(problem) from error
    return pixels.reshape(height, width, len(image)).transpose(2, 0, 1)
