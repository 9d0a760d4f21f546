"""Large files as bytes that need no memory of their own."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from ..schema.blob_proto import read_bytes


def map_file(path: str | os.PathLike[str]) -> tuple[memoryview, Callable[[], object]]:
    """Map a file. Return its bytes, read when looked at, and a function that lets go of those read so far.

    They are read again when looked at again, so the file must not be cut short or written to while they are in
    use. It may be replaced by another, as caffejax does when it writes.

    Raises:
        WeightsError: if the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # an empty file, a pipe, or none at all
        return memoryview(read_bytes(path)), lambda: None
    return memoryview(mapped), lambda: mapped.madvise(mmap.MADV_DONTNEED)
