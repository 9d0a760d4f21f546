"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from .errors import Problem, WeightsError

_REMEDIES = {
    errno.ENOENT: "create the folder first",
    errno.EACCES: "you may not write there; choose another folder or change its permissions",
    errno.EPERM: "you may not write there; choose another folder or change its permissions",
    errno.EROFS: "choose a folder that is not read-only",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "part of the path is a file, not a folder",
}


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` once it is complete and on the disk.

    If anything goes wrong before, a crash included, `path` stays as it was.

    Raises:
        WeightsError: naming the path, the reason and the remedy.
    """
    with replacing_path(path) as partial, open(partial, "xb") as file:
        yield file


@contextmanager
def replacing_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """`replacing` for libraries that open files themselves: the path to write to, where nothing is yet.

    Raises:
        WeightsError: likewise.
    """
    target = Path(os.path.realpath(path))  # a symbolic link stays one
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        yield partial
        _sync(partial)
        os.replace(partial, target)
        with suppress(OSError):  # makes the renaming itself last; some file systems cannot, which does no harm
            _sync(target.parent)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "")
        reason = os.strerror(error.errno) if error.errno else error
        raise WeightsError(
            Problem(f"cannot be written: {reason}{'; ' if remedy else ''}{remedy}", str(path))
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
