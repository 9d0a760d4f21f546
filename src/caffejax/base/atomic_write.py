"""Atomic writing of files: a reader never finds an incomplete file."""

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
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "delete files or raise your disk quota",
    errno.EEXIST: "there is a file where a folder is needed; choose another path",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "part of the path is a file, not a folder; choose another path",
}


@contextmanager
def replace_file(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, and rename it to `path` when the block ends and the data is on disk.

    If the block raises an exception or the process crashes, `path` keeps its previous content.

    Args:
        path: the file to replace or create.
        error: the class of the exception to raise.

    Raises:
        CaffejaxError: if the file cannot be written. The exception is an `error` with the path, the reason and, for
            common reasons, a remedy.
    """
    with replace_path(path, error) as partial, open(partial, "xb") as file:
        yield file


@contextmanager
def replace_path(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Iterator[Path]:
    """Yield a temporary path to write, and rename the file there to `path` when the block ends.

    The temporary path is in the same folder and does not exist yet. This function is for libraries that open files
    themselves; see `replace_file`.

    Raises:
        CaffejaxError: if the file cannot be written; see `replace_file`.
    """
    partial = None
    try:
        target = check_writable(path, error)
        partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.tmp")
        yield partial
        _sync(partial)
        os.replace(partial, target)
        with suppress(OSError):  # makes the rename durable; some file systems do not support this
            _sync(target.parent)
    except OSError as cause:
        raise error(make_write_problem(path, cause)) from cause
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str], error: type[CaffejaxError] = CaffejaxError) -> Path:
    """Check, before a long computation, that its result can be written to `path`.

    It cannot be written if the folder is missing, or if `path` is a folder, a device, a pipe or a socket. Permissions
    and free space are not checked.

    Returns:
        The path to write, which is the target if `path` is a symbolic link.

    Raises:
        CaffejaxError: if the file cannot be written; see `replace_file`.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.exists() and not target.is_file():
            message = "is a device, a pipe or a socket, which the file would replace; choose another path"
            raise error(Problem(message, str(path)))
        os.stat(os.path.join(target.parent, ""))  # fails if the parent is not a folder
    except OSError as cause:
        raise error(make_write_problem(path, cause)) from cause
    return target


def make_write_problem(path: str | os.PathLike[str], cause: OSError) -> Problem:
    """Return the problem of a file that cannot be written: the path, the reason and, for common reasons, a remedy."""
    remedy = _REMEDIES.get(cause.errno or 0, "")
    reason = os.strerror(cause.errno) if cause.errno else cause
    return Problem(f"cannot be written: {reason}{'; ' if remedy else ''}{remedy}", str(path))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
