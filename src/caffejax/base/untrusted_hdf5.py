"""Safe reading of HDF5 files from untrusted sources.

Names in an HDF5 file can lead into any other file: external links, data sets with external storage, and virtual data
sets. All of these are refused. A data set can also claim a size of gigabytes, although the file contains only a few
compressed bytes or no data. Its size is checked before it is read.
"""

from __future__ import annotations

import math
import os

import h5py

from .config import MAX_HDF5_BYTES
from .host_memory import get_total_memory
from .human_readable import format_bytes
from .paths import HDF5_SIGNATURE

HDF5_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # exceptions of h5py for damaged files
_MAX_SUPERBLOCK_SIZE = 28 + 4 * 255  # bytes
_MAX_LINKS = 16  # the largest number of links to follow for one path
_FLOAT_BYTES = 4  # values of smaller types are converted to float32


class RefusedError(ValueError):
    """Raised for a part of a file that is refused. The message states the reason and, if there is one, the remedy."""


def open_hdf5_file(path: str | os.PathLike[str]) -> h5py.File:
    """Open an HDF5 file for reading.

    Raises:
        RefusedError: if the header says that the data is in several files. HDF5 would then allocate whatever size the
            header states.
        OSError: if the file cannot be opened.
    """
    with open(path, "rb") as file:
        size, start = os.fstat(file.fileno()).st_size, 0
        while start < size:  # the superblock is at the start, or at 512 bytes, 1024 and so on
            file.seek(start)
            if (block := file.read(_MAX_SUPERBLOCK_SIZE)).startswith(HDF5_SIGNATURE):
                _check_superblock(block)
                break
            start = max(512, 2 * start)
    return h5py.File(path, "r")


def _check_superblock(block: bytes) -> None:
    """Check that a superblock of version 0 or 1 has no driver information; later versions cannot have any."""
    version, width = (block + bytes(14))[8], (block + bytes(14))[13]
    start = {0: 24, 1: 28}.get(version, len(block)) + 3 * width  # after three other addresses
    address = block[start : start + width]
    if address.strip(b"\xff"):
        raise RefusedError("is one of several files of a multi-file HDF5 driver, or is damaged")


def is_link(group: h5py.Group, name: str | bytes) -> bool:
    """Return whether a name in a group is a soft or external link. The link is not followed.

    Raises:
        RefusedError: if the name is not UTF-8; h5py returns such a name as bytes.
    """
    if isinstance(name, bytes):
        raise RefusedError(f"the name {name!r} in {group.name} is not UTF-8")
    return bool(group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD)


def find_item(group: h5py.Group, path: str) -> h5py.Group | h5py.Dataset | None:
    """Return the group or data set at a path, or None if it does not exist. Soft links within the file are followed.

    Raises:
        RefusedError: if the path has a link into another file, a link to a missing name, or more than 16 links.
    """
    item, parts, links_left = group, path.split("/"), _MAX_LINKS
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if not isinstance(item, h5py.Group) or not item.id.links.exists(part.encode()):
            if links_left < _MAX_LINKS:
                raise RefusedError(f"'{path}' is a broken link")
            return None
        link = item.id.links.get_info(part.encode()).type
        if link == h5py.h5l.TYPE_HARD:
            item = item[part]
        elif link != h5py.h5l.TYPE_SOFT:
            raise RefusedError(
                f"'{path}' is a link to another file, which is not followed; copy its target into this file"
            )
        elif not links_left:
            raise RefusedError(f"'{path}' is a circular link")
        else:
            links_left -= 1
            target = item.id.links.get_val(part.encode()).decode("utf-8", "surrogateescape")
            item, parts = (group.file if target.startswith("/") else item), [*target.split("/"), *parts]
    return item


class SizeLimit:
    """A limit on the unpacked size of the data sets that are read from one file.

    The data sets may take as many bytes as the file has plus `max_expansion`, but at most the machine's memory.

    Args:
        file: the open file.
        max_expansion: the bytes that data may unpack to, beyond the bytes in the file.
        option: the name of the option that raises the limit, for messages, or "" if there is no such option.
    """

    def __init__(self, file: h5py.File, max_expansion: int = MAX_HDF5_BYTES, option: str = "") -> None:
        self._file_size, self._max_expansion, self._option = file.id.get_filesize(), max_expansion, option
        self._memory = get_total_memory()
        self._claimed_bytes = self._unpacked_bytes = 0
        self._max_unpacked_bytes = 0  # an upper bound of `_unpacked_bytes`
        self._unmeasured_data_sets: list[tuple[h5py.Dataset, int]] = []

    def check(self, data_set: h5py.Dataset) -> None:
        """Check that a data set may be read in addition to the previously checked data sets.

        Raises:
            RefusedError: if its values are in other files, or the data sets together exceed the limit.
        """
        name = data_set.name
        if data_set.is_virtual or data_set.external:
            raise RefusedError(
                f"data set '{name}' stores its values in other files, which are not read; copy them into this file"
            )
        memory_size = math.prod(data_set.shape or ()) * max(data_set.dtype.itemsize, _FLOAT_BYTES)
        claimed_bytes = max(memory_size, math.prod(data_set.chunks or (0,)) * data_set.dtype.itemsize)
        self._claimed_bytes += claimed_bytes
        description = f"data set '{name}' of shape {data_set.shape} takes {format_bytes(claimed_bytes)}"
        if self._claimed_bytes > self._memory:
            raise RefusedError(f"{description}, but the machine has only {format_bytes(self._memory)} of memory")
        self._unmeasured_data_sets.append((data_set, claimed_bytes))
        self._max_unpacked_bytes += claimed_bytes
        if self._max_unpacked_bytes <= self._max_expansion:
            return  # the stored size is slow to query, so it is queried only when the limit may be exceeded
        stored_bytes = 0
        for unmeasured_data_set, size in self._unmeasured_data_sets:
            stored_bytes = min(unmeasured_data_set.id.get_storage_size(), self._file_size)
            self._unpacked_bytes += max(0, size - stored_bytes)
        self._unmeasured_data_sets.clear()
        self._max_unpacked_bytes = self._unpacked_bytes
        if self._unpacked_bytes > self._max_expansion:
            remedy = f"raise {self._option} (--{self._option}), or " if self._option else ""
            raise RefusedError(
                f"{description}, of which {format_bytes(stored_bytes)} are in the file, but at most "
                f"{format_bytes(self._max_expansion)} more may be unpacked; if this size is intended, {remedy}store it "
                "without compression (h5repack -f NONE)"
            )
