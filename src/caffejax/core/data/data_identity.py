"""Checksums that identify data, by which processes notice that their copies of it differ."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..layers.context import LayerDefinition

_CHUNK = 2**20  # bytes


def checksum_bytes(parts: Iterable[bytes | memoryview]) -> int:
    """Return the CRC-32 of all parts together."""
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def checksum_arrays(arrays: Iterable[Any]) -> int:
    """Return a CRC-32 of arrays or numbers, with their shapes and dtypes."""

    def list_parts() -> Iterator[bytes | memoryview]:
        for array in map(np.asarray, arrays):
            yield f"{array.dtype}{array.shape}".encode()
            yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    return checksum_bytes(list_parts())


def checksum_file(path: str | os.PathLike[str]) -> int:
    """Return the CRC-32 of a file."""
    with open(path, "rb") as file:
        return checksum_bytes(iter(lambda: file.read(_CHUNK), b""))


def describe_source(definition: LayerDefinition, source: Any) -> str:
    """Return the number of a source's examples, and a checksum of some of them and of all files that its layer names.

    Such files are lists of images, mean files and label maps. A database is a folder, and only examples represent it.
    """
    texts = (text for text in _list_strings(definition.layer) if text and "\0" not in text)
    checksums = [checksum_file(path) for text in texts if os.path.isfile(path := definition.path(text))]
    num_examples = getattr(source, "num_examples", None)
    if hasattr(source, "checksum"):  # other than Python layers, which give no examples without advancing
        checksums.append(source.checksum())
    checksum = f"checksum {checksum_arrays([np.array(checksums, np.uint32)]):08x}"
    return checksum if num_examples is None else f"{num_examples} examples ({checksum})"


def _list_strings(message: Any) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name in ("name", "type", "bottom", "top"):
            continue
        values = value if field.is_repeated else [value]
        if field.type == field.TYPE_MESSAGE:
            for child in values:
                yield from _list_strings(child)
        elif field.type == field.TYPE_STRING:
            yield from values
