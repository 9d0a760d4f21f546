"""Serialization of image files as Datums, as in Caffe's convert_imageset, and the mean of images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...base.config import MAX_IMAGE_PIXELS
from ...base.errors import DataError, Problem
from ...base.human_readable import format_shape
from ...base.paths import read_bytes
from ..schema import caffe_pb2
from ..schema.blob_proto import Legacy4D, encode_blob
from .image_decoding import decode_file, resize
from .import_cv2 import cv2


def encode_image_datum(
    path: str,
    label: int,
    *,
    color: bool = True,
    height: int = 0,
    width: int = 0,
    encoding: str = "",
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> tuple[bytes, tuple[int, ...]]:
    """Serialize an image file as a Datum.

    Args:
        path: the file.
        label: its label.
        color: whether to store three channels instead of one.
        height: the height to resize to; 0 for the original size.
        width: the width to resize to; 0 for the original size.
        encoding: the format in which the image is compressed, such as jpg or png, or "" for no compression. The bytes
            of a file with this suffix are copied if it is not resized, even if it has colors and `color` is False, as
            in Caffe.
        max_pixels: the largest number of pixels, before and after resizing.

    Returns:
        The Datum, and the image's shape (C, H, W).

    Raises:
        DataError: if the file cannot be read or decoded, or OpenCV does not support the encoding. The message names the
            file.
    """
    content = read_bytes(path, DataError)
    image = resize(decode_file(path, content, color, max_pixels), height, width, max_pixels)
    datum = make_datum(path, None if height and width else content, image, encoding)
    datum.label = label
    return datum.SerializeToString(), image.shape


def make_datum(path: str, content: bytes | None, image: np.ndarray, encoding: str) -> caffe_pb2.Datum:
    """Return a Datum without a label.

    Args:
        path: the image's file.
        content: its bytes, or None if the image was changed.
        image: the image (C, H, W).
        encoding: the format, such as jpg or png, or "" for no compression.

    Raises:
        DataError: if OpenCV does not support the encoding. The message names the file.
    """
    datum = caffe_pb2.Datum(encoded=bool(encoding))
    suffix = guess_encoding(path)
    has_this_encoding = suffix == encoding.lower() or (encoding.lower(), suffix) == ("jpg", "jpeg")
    if not encoding:
        datum.channels, datum.height, datum.width = image.shape
        datum.data = image.tobytes()
    elif content is not None and has_this_encoding:
        datum.data = content
    else:
        datum.data = _encode(image, encoding, path)
    return datum


def guess_encoding(name: str) -> str:
    """Return a file name's suffix in lower case, such as `jpg` for `a/b.JPG`.

    Without a dot, the complete name is returned, as in Caffe.
    """
    return name[name.rfind(".") + 1 :].lower()


class MeanImage:
    """The mean of images of one shape."""

    def __init__(self) -> None:
        self.count = 0
        self._sum: np.ndarray = np.zeros((0, 0, 0))

    def add(self, image: np.ndarray) -> None:
        """Add an image (C, H, W) to the mean.

        Raises:
            DataError: if its shape differs from the first image's.
        """
        if not self.count:
            self._sum = np.zeros(image.shape)
        if image.shape != self._sum.shape:
            raise DataError(
                f"is {format_shape(image.shape)} (CxHxW), but the first image is {format_shape(self._sum.shape)}: a "
                "mean needs images of the same shape"
            )
        self._sum += image
        self.count += 1

    @property
    def value(self) -> np.ndarray:
        """The mean, float32 (C, H, W)."""
        return self._sum.astype(np.float32) / np.float32(self.count)

    def to_binaryproto(self) -> bytes:
        """Serialize the mean as a .binaryproto, in the form that Caffe writes."""
        return b"".join(encode_blob(self.value[None].view(Legacy4D)))


def encode_feature_datums(features: np.ndarray, name: str) -> Iterable[bytes]:
    """Serialize the rows of a blob as Datums with float_data, as extract_features stores them.

    Args:
        features: the blob's array, with one to four axes. The first axis indexes the rows.
        name: the blob's name, for messages.

    Raises:
        DataError: if the array has no axes or more than four.
    """
    if not 1 <= features.ndim <= 4:
        raise DataError(f"blob '{name}': has {features.ndim} axes; a Datum needs 1 to 4")
    channels, height, width = (*features.shape[1:], 1, 1, 1)[:3]
    for row in features:
        datum = caffe_pb2.Datum(channels=channels, height=height, width=width)
        datum.float_data.extend(row.ravel().tolist())
        yield datum.SerializeToString()


def _encode(image: np.ndarray, encoding: str, path: str) -> bytes:
    try:
        is_encoded, data = cv2.imencode(f".{encoding}", image.transpose(1, 2, 0))
        reason = "OpenCV failed"
    except cv2.error as error:
        is_encoded, reason = False, error.err
    if not is_encoded:
        message = f"cannot be stored as '{encoding}': {reason}; use --encode_type jpg or png"
        raise DataError(Problem(message, str(Path(path))))
    return bytes(data)
