"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from .errors import CaffejaxError, Problem

_REMEDIES = {
    errno.ENOENT: "create the folder first",
    errno.EACCES: "you may not write there; choose another folder or change its permissions",
    errno.EPERM: "you may not write there; choose another folder or change its permissions",
    errno.EROFS: "choose a folder that is not read-only",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota",
    errno.EEXIST: "a file is where a folder is wanted; choose another path",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "part of the path is a file, not a folder",
}


@contextmanager
def replacing(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Iterator[BinaryIO]:
    """Open a file to write, which takes the place of `path` once it is complete and on the disk.

    If anything goes wrong before, a crash included, `path` stays as it was.

    Args:
        path: the file to replace or to make.
        error: what to raise where it cannot be written.

    Raises:
        CaffejaxError: of that class, with the path, the reason and the remedy.
    """
    with replacing_path(path, error) as partial, open(partial, "xb") as file:
        yield file


@contextmanager
def replacing_path(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Iterator[Path]:
    """Give the path to write to instead, where nothing is yet: `replacing` for libraries that open files themselves.

    Raises:
        CaffejaxError: likewise.
    """
    partial = None
    try:
        target = check_place(path, error)
        partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.tmp")
        yield partial
        _sync(partial)
        os.replace(partial, target)
        with suppress(OSError):  # makes the renaming itself last; some file systems cannot, which does no harm
            _sync(target.parent)
    except OSError as cause:
        raise error(not_written(path, cause)) from cause
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def check_place(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Path:
    """Check that a file can stand at `path`, as far as can be seen before there is something to write.

    Returns:
        Where it will be: a symbolic link stays one.

    Raises:
        CaffejaxError: as `replacing`: if there is no such folder, or something else is there already.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not target.is_file():
            message = "is a device, a pipe or a socket, which a file would take the place of; name a file"
            raise error(Problem(message, str(path)))
        os.stat(os.path.join(target.parent, ""))  # fails where that is a file
    except OSError as cause:
        raise error(not_written(path, cause)) from cause
    return target


def not_written(path: str | os.PathLike[str], cause: OSError) -> Problem:
    """Return what keeps a file from being written, with the remedy."""
    remedy = _REMEDIES.get(cause.errno or 0, "")
    reason = os.strerror(cause.errno) if cause.errno else cause
    return Problem(f"cannot be written: {reason}{'; ' if remedy else ''}{remedy}", str(path))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
