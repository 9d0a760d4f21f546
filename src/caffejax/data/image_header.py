"""Reading of an image's size from the header of its file, before the image is decoded.

OpenCV allocates the size that a header claims, up to a limit that applies to the whole process and is fixed when OpenCV
is imported. A few bytes can claim gigabytes, so the header is read here as OpenCV's decoders read it. Files in other
formats are not passed to OpenCV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from struct import error as OutOfBytes
from struct import unpack_from

Size = tuple[int, int]

_GAP = rb"\s(?:\s|#[^\n\r]*[\n\r])*"  # white space, with comments up to the end of their lines
_PNM = re.compile(rb"P[1-6]" + _GAP + rb"(\d{1,10})" + _GAP + rb"(\d{1,10})\s")
_PFM = re.compile(rb"P[Ff]\n(\d{1,10})\s(\d{1,10})\s")
_PAM = re.compile(rb"^[ \t\v\f\r]*(WIDTH|HEIGHT)\s+(\d{1,10})", re.MULTILINE)
_HDR = re.compile(rb"-Y\s*\+?(\d{1,10})\s*\+X\s*\+?(\d{1,10})")
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}  # JPEG markers without a segment
_WIDTH, _HEIGHT = 256, 257  # TIFF's tags
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q"}  # TIFF's integer types
_MAX_ENTRIES = 1 << 16  # the most entries of a TIFF's directory that are read
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG segments with a size


def image_size(data: bytes) -> Size | None:
    """Return the height and width in a file's header, or None if the format is unknown or the file is truncated.

    The header is not verified: sizes may be 0 or very large.
    """
    for signature, read in _KINDS:
        if signature.match(data):
            try:
                return read(data)
            except (OutOfBytes, IndexError, OverflowError):  # an offset beyond the end of the file
                return None
    return None


def _png(data: bytes) -> Size | None:
    if data[12:16] != b"IHDR":
        return None
    at, kind = 8, b""
    while kind != b"IEND" and at + 4 < len(data):
        length, kind = unpack_from(">I4s", data, at)
        at += 12 + length
        if at > len(data):  # OpenCV would allocate the whole chunk first
            return None
    width, height = unpack_from(">II", data, 16)
    return height, width


def _jpeg(data: bytes) -> Size | None:
    at = 2
    while True:
        while data[at] != 0xFF or data[at + 1] in (0x00, 0xFF):  # libjpeg skips other bytes
            at += 1
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = unpack_from(">HH", data, at + 5)
            return height, width
        if marker in (0xD9, 0xDA):  # the end or the pixels, without a size before them
            return None
        at += 2 if marker in _NO_LENGTH else 2 + unpack_from(">H", data, at + 2)[0]


def _gif(data: bytes) -> Size:
    width, height = unpack_from("<HH", data, 6)
    return height, width


def _bmp(data: bytes) -> Size:
    width, height = unpack_from("<HH" if unpack_from("<I", data, 14)[0] == 12 else "<ii", data, 18)
    return abs(height), abs(width)


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    if kind == b"VP8L":
        (bits,) = unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8X":
        width, height = (int.from_bytes(unpack_from("3s", data, at)[0], "little") + 1 for at in (24, 27))
        return height, width
    return None


def _tiff(data: bytes) -> Size | None:
    order = "<" if data[:1] == b"I" else ">"
    big = unpack_from(order + "H", data, 2)[0] == 43
    (directory,) = unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
    (count,) = unpack_from(order + ("Q" if big else "H"), data, directory)
    first, step = directory + (8 if big else 2), 20 if big else 12
    sizes = {_WIDTH: 0, _HEIGHT: 0}
    for at in range(first, first + step * min(count, _MAX_ENTRIES), step):
        tag, kind = unpack_from(order + "HH", data, at)
        if tag in sizes:
            if kind not in _INTEGERS or (_INTEGERS[kind] in "Qq" and not big):
                return None
            (value,) = unpack_from(order + _INTEGERS[kind], data, at + (12 if big else 8))
            sizes[tag] = max(sizes[tag], value)
    return sizes[_HEIGHT], sizes[_WIDTH]


def _pnm(data: bytes) -> Size | None:
    match = _PNM.match(data)
    return (int(match[2]), int(match[1])) if match else None


def _pfm(data: bytes) -> Size | None:
    match = _PFM.match(data)
    return (int(match[2]), int(match[1])) if match else None


def _pam(data: bytes) -> Size | None:
    return _largest((value, 1) if name == b"HEIGHT" else (1, value) for name, value in _PAM.findall(data))


def _sun(data: bytes) -> Size:
    width, height = unpack_from(">II", data, 4)
    return height, width


def _hdr(data: bytes) -> Size | None:
    return _largest(_HDR.findall(data))


def _jpeg2000(data: bytes) -> Size | None:
    at = 0 if data.startswith(b"\xff\x4f") else next((begin for kind, begin in _boxes(data) if kind == b"jp2c"), None)
    if at is None or data[at : at + 4] != b"\xff\x4f\xff\x51":
        return None
    right, bottom, left, top = unpack_from(">IIII", data, at + 8)
    return max(bottom - top, 0), max(right - left, 0)


def _avif(data: bytes) -> Size | None:
    sizes = [unpack_from(">II", data, at.end() + 4) for at in re.finditer(b"ispe", data)]
    return _largest((height, width) for width, height in sizes)


def _largest(sizes: Iterable[tuple[bytes | int, bytes | int]]) -> Size | None:
    """Return the largest height and width of several candidates, some possibly in comments; None without any."""
    numbers = [(int(height), int(width)) for height, width in sizes]
    return (max(height for height, _ in numbers), max(width for _, width in numbers)) if numbers else None


def _boxes(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the type of each box of a JPEG 2000 file, and the offset of its content."""
    at = 0
    while at < len(data):
        length, kind = unpack_from(">I4s", data, at)
        head = 8
        if length == 1:
            (length,), head = unpack_from(">Q", data, at + 8), 16
        yield kind, at + head
        if length < head:  # to the end
            return
        at += length


_KINDS: list[tuple[re.Pattern[bytes], Callable[[bytes], Size | None]]] = [
    (re.compile(signature, re.DOTALL), read)
    for signature, read in (
        (rb"\xff\xd8\xff", _jpeg),
        (rb"\x89PNG\r\n\x1a\n", _png),
        (rb"BM", _bmp),
        (rb"GIF8[79]a", _gif),
        (rb"RIFF....WEBP", _webp),
        (rb"II[*+]\0|MM\0[*+]", _tiff),
        (rb"P[1-6]", _pnm),
        (rb"P7", _pam),
        (rb"P[Ff]", _pfm),
        (rb"\x59\xa6\x6a\x95", _sun),
        (rb"#\?(?:RGBE|RADIANCE)", _hdr),
        (rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n", _jpeg2000),
        (rb"....ftypavi[fs]", _avif),
    )
]
