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
    """A record or a file that holds no image that can be read."""


def read_datum(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> tuple[np.ndarray, int]:
    """Read a Datum.

    Args:
        data: the serialised Datum.
        decode: what becomes of a compressed image: AS_STORED, COLOUR or GREY. Raw data stays as it is.
        max_pixels: how many pixels a compressed image may have.

    Returns:
        The image (C, H, W), uint8 or, from float_data, float32, colours in the order B, G, R; and the label.

    Raises:
        BadImageError: if this is no Datum, its image cannot be decoded or is too large, or its size is not that of
            its data.
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
    """A reader of many Datums: at once, if they are raw images of one shape.

    Such Datums differ only in the pixels and in the few bytes with the label after them. So once one has been
    parsed, others that begin alike are split at the same places.

    Args:
        decode, max_pixels: as for `read_datum`.
    """

    def __init__(self, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._decode, self._max_pixels = decode, max_pixels
        self._like = _Raw(b"\0", ())  # no Datum begins like this
        self._labels = _Labels()

    def read(self, data: bytes) -> tuple[np.ndarray, int]:
        """Read one Datum, as `read_datum` does."""
        image, label = read_datum(data, self._decode, self._max_pixels)
        self._remember(data, image)
        return image, label

    def read_alike(self, data: Sequence[bytes]) -> tuple[np.ndarray, list[int]] | None:
        """Return the images (N, C, H, W) and labels of Datums, or None unless all are like the raw one read last."""
        head, shape = self._like
        begin, end = len(head), len(head) + math.prod(shape)
        if not all(one.startswith(head) for one in data):
            return None
        pixels = b"".join([one[begin:end] for one in data])
        labels = [self._labels[one[end:]] for one in data]
        if len(pixels) < len(data) * (end - begin) or None in labels:
            return None
        return np.frombuffer(pixels, np.uint8).reshape(-1, *shape), labels  # type: ignore[return-value]

    def _remember(self, data: bytes, image: np.ndarray) -> None:
        if image.dtype != np.uint8 or image.size > len(data):  # compressed
            return
        channels, height, width = image.shape
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width, data=image.tobytes())
        alone = datum.SerializeToString()  # the fields are written in this order: shape, data, the rest
        if data.startswith(alone):
            self._like = _Raw(alone[: -image.size], image.shape)


class _Raw(NamedTuple):
    head: bytes  # what comes before the pixels
    shape: tuple[int, ...]


class _Labels(dict[bytes, int | None]):
    """Labels by the bytes after the pixels; None for bytes that hold anything else."""

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
    """Return whether a Datum holds a compressed image."""
    try:
        return bool(caffe_pb2.Datum.FromString(data).encoded)
    except DecodeError:
        return False


def decode_image(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode a compressed image (JPEG, PNG, ...) to uint8 (C, H, W), colours in the order B, G, R.

    Raises:
        BadImageError: if it has more than `max_pixels`, OpenCV cannot decode it, or its pixels are not bytes.
    """
    image = decode_pixels(data, decode, max_pixels)
    if image.dtype != np.uint8:
        raise BadImageError(f"its image has {image.dtype} pixels, not bytes; force_color or force_gray converts it")
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


def decode_pixels(data: bytes, decode: int = AS_STORED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode a compressed image to (H, W) or (H, W, C), as OpenCV gives it: of other types than uint8, too.

    Raises:
        BadImageError: if it has more than `max_pixels`, which is seen before it is decoded, or cannot be decoded.
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
    """Read the pixels of an image file: uint8 (C, H, W), colours in the order B, G, R.

    Args:
        path: the file: JPEG, PNG, or what else OpenCV reads.
        colour: whether three channels come out, else one; whatever the file has.
        height: the height to resize to, bilinearly, if `width` is given too; else 0.
        width: likewise.
        max_pixels: how many pixels it may have, in the file and resized.

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
    """Decode the bytes of an image file to pixels, as `read_image` gives them.

    Raises:
        BadImageError: naming the file, if they cannot be decoded, or hold more than `max_pixels`.
    """
    with located(file=str(path)):
        return decode_image(data, COLOUR if colour else GREY, max_pixels)


def resize(image: np.ndarray, height: int, width: int, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Resize an image (C, H, W) bilinearly, unless height or width is 0.

    Raises:
        DataError: if it would have more than `max_pixels`, or there is no memory for it.
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
