"""Decoding of Datums and image files to arrays of pixels.

OpenCV allocates the size that an image's header claims, up to a limit that applies to the whole process and is fixed
when OpenCV is imported. A few bytes can claim gigabytes, so the header is read here as OpenCV's decoders read it,
before the image is decoded. Files in other formats are not passed to OpenCV.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from struct import error as StructError
from struct import unpack_from

import numpy as np
from google.protobuf.message import DecodeError

from ...base.config import MAX_IMAGE_PIXELS
from ...base.errors import DataError, locate_errors
from ...base.paths import describe_content, read_bytes
from ..schema import caffe_pb2
from .import_cv2 import cv2

log = logging.getLogger("caffejax.data")
UNCHANGED: int = cv2.IMREAD_UNCHANGED
COLOR: int = cv2.IMREAD_COLOR
GRAY: int = cv2.IMREAD_GRAYSCALE

_MAX_CACHED_LABELS = 1 << 16

Size = tuple[int, int]

_GAP = rb"\s(?:\s|#[^\n\r]*[\n\r])*"  # white space, with comments up to the end of their lines
_PNM = re.compile(rb"P[1-6]" + _GAP + rb"(\d{1,10})" + _GAP + rb"(\d{1,10})\s|P[Ff]\n(\d{1,10})\s(\d{1,10})\s")
_PAM = re.compile(rb"^[ \t\v\f\r]*(WIDTH|HEIGHT)\s+(\d{1,10})", re.MULTILINE)
_HDR = re.compile(rb"-Y\s*\+?(\d{1,10})\s*\+X\s*\+?(\d{1,10})")
_MARKERS_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}  # JPEG markers without a segment
_WIDTH_TAG, _HEIGHT_TAG = 256, 257  # TIFF's tags
_INTEGER_TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q"}  # TIFF's integer types
_MAX_DIRECTORY_ENTRIES = 1 << 16  # the most entries of a TIFF's directory that are read
_FRAME_MARKERS = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG segments with a size


def read_image_size(data: bytes) -> Size | None:
    """Return the height and width in a file's header, or None if the format is unknown or the file is truncated.

    The header is not verified: sizes may be 0 or very large.
    """
    for signature, read_size in _SIZE_READERS:
        if signature.match(data):
            try:
                return read_size(data)
            except (StructError, IndexError, OverflowError):  # an offset beyond the end of the file
                return None
    return None


def _read_png_size(data: bytes) -> Size | None:
    if data[12:16] != b"IHDR":
        return None
    offset, chunk_type = 8, b""
    while chunk_type != b"IEND" and offset + 4 < len(data):
        length, chunk_type = unpack_from(">I4s", data, offset)
        offset += 12 + length
        if offset > len(data):  # OpenCV would allocate the whole chunk first
            return None
    return _read_two_numbers(">II", 16, data)


def _read_jpeg_size(data: bytes) -> Size | None:
    offset = 2
    while True:
        while data[offset] != 0xFF or data[offset + 1] in (0x00, 0xFF):  # libjpeg skips other bytes
            offset += 1
        marker = data[offset + 1]
        if marker in _FRAME_MARKERS:
            height, width = unpack_from(">HH", data, offset + 5)
            return height, width
        if marker in (0xD9, 0xDA):  # the end or the pixels, without a size before them
            return None
        offset += 2 if marker in _MARKERS_WITHOUT_LENGTH else 2 + unpack_from(">H", data, offset + 2)[0]


def _read_two_numbers(layout: str, offset: int, data: bytes) -> Size:
    width, height = unpack_from(layout, data, offset)
    return height, width


def _read_bmp_size(data: bytes) -> Size:
    width, height = unpack_from("<HH" if unpack_from("<I", data, 14)[0] == 12 else "<ii", data, 18)
    return abs(height), abs(width)


def _read_webp_size(data: bytes) -> Size | None:
    fourcc = data[12:16]
    if fourcc == b"VP8 ":
        width, height = unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    if fourcc == b"VP8L":
        (bits,) = unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if fourcc == b"VP8X":
        width, height = (int.from_bytes(unpack_from("3s", data, offset)[0], "little") + 1 for offset in (24, 27))
        return height, width
    return None


def _read_tiff_size(data: bytes) -> Size | None:
    byte_order = "<" if data[:1] == b"I" else ">"
    is_big = unpack_from(byte_order + "H", data, 2)[0] == 43
    (directory_offset,) = unpack_from(byte_order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (num_entries,) = unpack_from(byte_order + ("Q" if is_big else "H"), data, directory_offset)
    first_entry, entry_size = directory_offset + (8 if is_big else 2), 20 if is_big else 12
    sizes = {_WIDTH_TAG: 0, _HEIGHT_TAG: 0}
    for offset in range(first_entry, first_entry + entry_size * min(num_entries, _MAX_DIRECTORY_ENTRIES), entry_size):
        tag, field_type = unpack_from(byte_order + "HH", data, offset)
        if tag in sizes:
            if field_type not in _INTEGER_TYPES or (_INTEGER_TYPES[field_type] in "Qq" and not is_big):
                return None
            (value,) = unpack_from(byte_order + _INTEGER_TYPES[field_type], data, offset + (12 if is_big else 8))
            sizes[tag] = max(sizes[tag], value)
    return sizes[_HEIGHT_TAG], sizes[_WIDTH_TAG]


def _read_pnm_size(data: bytes) -> Size | None:
    match = _PNM.match(data)
    return (int(match[2] or match[4]), int(match[1] or match[3])) if match else None


def _read_pam_size(data: bytes) -> Size | None:
    return _find_largest_size((value, 1) if name == b"HEIGHT" else (1, value) for name, value in _PAM.findall(data))


def _read_hdr_size(data: bytes) -> Size | None:
    return _find_largest_size(_HDR.findall(data))


def _read_jpeg2000_size(data: bytes) -> Size | None:
    codestreams = (offset for box_type, offset in _iterate_boxes(data) if box_type == b"jp2c")
    offset = 0 if data.startswith(b"\xff\x4f") else next(codestreams, None)
    if offset is None or data[offset : offset + 4] != b"\xff\x4f\xff\x51":
        return None
    right, bottom, left, top = unpack_from(">IIII", data, offset + 8)
    return max(bottom - top, 0), max(right - left, 0)


def _read_avif_size(data: bytes) -> Size | None:
    sizes = [unpack_from(">II", data, match.end() + 4) for match in re.finditer(b"ispe", data)]
    return _find_largest_size((height, width) for width, height in sizes)


def _find_largest_size(sizes: Iterable[tuple[bytes | int, bytes | int]]) -> Size | None:
    """Return the largest height and width, or None. Some of the sizes may come from other data, such as comments."""
    int_sizes = [(int(height), int(width)) for height, width in sizes]
    return (max(height for height, _ in int_sizes), max(width for _, width in int_sizes)) if int_sizes else None


def _iterate_boxes(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the type of each box of a JPEG 2000 file, and the offset of its content."""
    offset = 0
    while offset < len(data):
        length, box_type = unpack_from(">I4s", data, offset)
        header_size = 8
        if length == 1:
            (length,), header_size = unpack_from(">Q", data, offset + 8), 16
        yield box_type, offset + header_size
        if length < header_size:  # to the end
            return
        offset += length


_SIZE_READERS: list[tuple[re.Pattern[bytes], Callable[[bytes], Size | None]]] = [
    (re.compile(signature, re.DOTALL), read)
    for signature, read in (
        (rb"\xff\xd8\xff", _read_jpeg_size),
        (rb"\x89PNG\r\n\x1a\n", _read_png_size),
        (rb"BM", _read_bmp_size),
        (rb"GIF8[79]a", partial(_read_two_numbers, "<HH", 6)),
        (rb"RIFF....WEBP", _read_webp_size),
        (rb"II[*+]\0|MM\0[*+]", _read_tiff_size),
        (rb"P[1-6Ff]", _read_pnm_size),
        (rb"P7", _read_pam_size),
        (rb"\x59\xa6\x6a\x95", partial(_read_two_numbers, ">II", 4)),
        (rb"#\?(?:RGBE|RADIANCE)", _read_hdr_size),
        (rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n", _read_jpeg2000_size),
        (rb"....ftypavi[fs]", _read_avif_size),
    )
]


class BadImageError(DataError):
    """Raised for a record or a file whose image cannot be decoded."""


def read_datum(data: bytes, decode_mode: int = UNCHANGED, max_pixels: int = MAX_IMAGE_PIXELS) -> tuple[np.ndarray, int]:
    """Read a Datum.

    Args:
        data: the serialised Datum.
        decode_mode: how a compressed image is decoded: UNCHANGED, COLOR or GRAY. Raw data is not converted.
        max_pixels: the largest number of pixels of a compressed image.

    Returns:
        The image (C, H, W), with channels in the order B, G, R, and the label. The image is uint8, or float32 if it is
        stored in float_data.

    Raises:
        BadImageError: if the data is not a Datum, its image cannot be decoded or is too large, or its shape does not
            fit the number of its values.
    """
    try:
        datum = caffe_pb2.Datum.FromString(data)
    except DecodeError as error:
        raise BadImageError("is not a Datum, or is damaged") from error
    return decode_datum(datum, decode_mode, max_pixels), datum.label


def decode_datum(
    datum: caffe_pb2.Datum, decode_mode: int = UNCHANGED, max_pixels: int = MAX_IMAGE_PIXELS
) -> np.ndarray:
    """Return the image of a Datum; see `read_datum`."""
    if datum.encoded:
        return decode_image(datum.data, decode_mode, max_pixels)
    shape = datum.channels, datum.height, datum.width
    raw = datum.data
    image = np.frombuffer(raw, np.uint8) if raw else np.array(datum.float_data, np.float32)
    if image.size != math.prod(shape) or min(shape) < 1:
        raise BadImageError(f"is declared as {'x'.join(map(str, shape))} (CxHxW), but has {image.size} values")
    return image.reshape(shape)


class DatumReader:
    """A reader of Datums that parses many of them at once if they are raw images of the same shape.

    The serialized forms of such Datums differ only in the pixels and in the label, which is stored in the few bytes
    after the pixels. When one Datum has been parsed, others that begin with the same bytes are split at the same
    offsets.

    Args:
        decode_mode, max_pixels: see `read_datum`.
    """

    def __init__(self, decode_mode: int = UNCHANGED, max_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._decode_mode, self._max_pixels = decode_mode, max_pixels
        # the bytes before the pixels, and the shape; a pair, because several threads may read
        self._template: tuple[bytes, tuple[int, ...]] = b"\0", ()  # no Datum begins with this byte
        self._labels = _LabelCache()

    def read(self, data: bytes) -> tuple[np.ndarray, int]:
        """Read one Datum, as `read_datum` does."""
        image, label = read_datum(data, self._decode_mode, self._max_pixels)
        self._set_template(data, image)
        return image, label

    def read_same_layout(self, data: Sequence[bytes]) -> tuple[np.ndarray, list[int]] | None:
        """Return the images (N, C, H, W) and labels of Datums that have the layout of the last raw Datum, or None.

        Datums of one layout, such as a batch of MNIST, differ only in pixels and labels, so no message is parsed.
        """
        prefix, shape = self._template
        begin, end = len(prefix), len(prefix) + math.prod(shape)
        if not all(datum.startswith(prefix) for datum in data):
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
        serialized_datum = datum.SerializeToString()  # in the order of the fields: shape, data, others
        if data.startswith(serialized_datum):
            self._template = serialized_datum[: -image.size], image.shape


class _LabelCache(dict[bytes, int | None]):
    """A cache of labels, keyed by the bytes after the pixels. A label is None if these bytes contain other fields."""

    def __missing__(self, suffix: bytes) -> int | None:
        try:
            datum = caffe_pb2.Datum.FromString(suffix)
        except DecodeError:
            return None
        if any(field.name != "label" and value is not False for field, value in datum.ListFields()):
            return None
        if len(self) < _MAX_CACHED_LABELS:
            self[suffix] = datum.label
        return datum.label


def is_compressed(data: bytes) -> bool:
    """Return whether a Datum has a compressed image."""
    try:
        return bool(caffe_pb2.Datum.FromString(data).encoded)
    except DecodeError:
        return False


def decode_image(data: bytes, decode_mode: int = UNCHANGED, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode a compressed image (JPEG, PNG, ...) to uint8 (C, H, W) with channels in the order B, G, R.

    Raises:
        BadImageError: if it has more than `max_pixels`, OpenCV cannot decode it, or its pixels are not bytes.
    """
    return _to_channels_first(decode_pixels(data, decode_mode, max_pixels))


def _to_channels_first(image: np.ndarray) -> np.ndarray:
    if image.dtype != np.uint8:
        raise BadImageError(f"its image has {image.dtype} pixels, not bytes; force_color or force_gray converts it")
    return image[None] if image.ndim == 2 else image.transpose(2, 0, 1)


# libjpeg reads these bytes again and again after the end of a file, but not after the end of bytes in memory. A segment
# of a JPEG, which may be truncated, has at most 65,535 bytes.
_END_OF_JPEG = b"\xff\xd9" * (1 << 15)


def decode_pixels(
    data: bytes, decode_mode: int = UNCHANGED, max_pixels: int = MAX_IMAGE_PIXELS, truncated_path: str | None = None
) -> np.ndarray:
    """Decode a compressed image to (H, W) or (H, W, C) in OpenCV's dtype, which may differ from uint8.

    Args:
        data: the compressed image.
        decode_mode: see `read_datum`.
        max_pixels: the largest number of pixels.
        truncated_path: the file that the data comes from, if a truncated JPEG is decoded with a warning, to the pixels
            that `cv2.imread` returns. If it is None, a truncated JPEG is an error, as for `cv2.imdecode`.

    Raises:
        BadImageError: if it has more than `max_pixels`, which is checked before decoding, or cannot be decoded.
    """
    size = read_image_size(data)
    if size is not None:
        check_pixel_count(*size, max_pixels)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), decode_mode) if size else None
        if image is None and size and truncated_path is not None and data.startswith(b"\xff\xd8"):
            image = cv2.imdecode(np.frombuffer(data + _END_OF_JPEG, np.uint8), decode_mode)
            if image is not None:
                _warn_of_truncation(truncated_path)
    except cv2.error as error:
        raise BadImageError(f"its image cannot be decoded: {error.err}") from error
    if image is None:
        file_type = None if size else describe_content(data)
        reason = f"it is {file_type}" if file_type else "it is damaged, or not a JPEG, PNG, ..."
        raise BadImageError(f"its image of {len(data)} bytes cannot be decoded: {reason}")
    return image


@lru_cache(4096)
def _warn_of_truncation(path: str) -> None:
    log.warning("%s: the JPEG is truncated; OpenCV fills the missing part, as in Caffe", path)


def check_pixel_count(height: int, width: int, max_pixels: int) -> None:
    """Check that an image is not too large.

    Raises:
        BadImageError: if it has more than `max_pixels`.
    """
    if height * width > max_pixels:
        raise BadImageError(
            f"its image has {height * width} pixels ({height}x{width}, HxW), and at most {max_pixels} are decoded; if "
            "this size is intended, raise max_image_pixels (--max_image_pixels)"
        )


def read_image(
    path: str | Path, color: bool = True, height: int = 0, width: int = 0, max_pixels: int = MAX_IMAGE_PIXELS
) -> np.ndarray:
    """Read an image file like Caffe's ReadImageToCVMat, as uint8 (C, H, W) with channels in the order B, G, R.

    Args:
        path: the file, in a format that OpenCV reads.
        color: whether to return three channels instead of one, independent of the number of channels in the file.
        height: the height to which the image is resized bilinearly, or 0 for the original size.
        width: the width, or 0 for the original size.
        max_pixels: the largest number of pixels, before and after resizing.

    Raises:
        DataError: if the file cannot be read. The message names the file.
        BadImageError: if the image cannot be decoded or is too large.
    """
    return resize(decode_file(path, read_bytes(path, DataError), color, max_pixels), height, width, max_pixels)


def decode_file(path: str | Path, data: bytes, color: bool = True, max_pixels: int = MAX_IMAGE_PIXELS) -> np.ndarray:
    """Decode the bytes of an image file; see `read_image`. As for `cv2.imread`, a JPEG may be truncated.

    Raises:
        BadImageError: if they cannot be decoded or have more than `max_pixels`. The message names the file.
    """
    with locate_errors(file=str(path)):
        return _to_channels_first(decode_pixels(data, COLOR if color else GRAY, max_pixels, str(path)))


def resize(
    image: np.ndarray,
    height: int,
    width: int,
    max_pixels: int = MAX_IMAGE_PIXELS,
    interpolation: int = cv2.INTER_LINEAR,
) -> np.ndarray:
    """Resize an image (C, H, W) with OpenCV, or return it unchanged if `height` or `width` is 0.

    Raises:
        DataError: if the result would have more than `max_pixels`, or memory is exhausted.
    """
    if not (height and width):
        return image
    problem = f"cannot be resized to height {height} and width {width}"
    if height * width > max_pixels:
        raise DataError(f"{problem}: that is more than max_image_pixels, {max_pixels} (--max_image_pixels)")
    try:
        pixels = cv2.resize(image.transpose(1, 2, 0), (width, height), interpolation=interpolation)
    except (cv2.error, MemoryError) as error:
        raise DataError(f"{problem}: {getattr(error, 'err', None) or 'there is not enough memory'}") from error
    return pixels.reshape(height, width, len(image)).transpose(2, 0, 1)
