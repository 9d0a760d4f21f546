"""Paths that users and files give."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from .errors import CaffejaxError, Problem


def find(name: str, folder: Path | None) -> Path:
    """Find a path as Caffe does, from the working directory; if nothing is there, from the naming file's folder."""
    given = Path(os.path.expanduser(name))
    beside = folder / given if folder is not None else given
    # of os.path: what is too long for a name, or has a NUL in it, does not exist
    return beside if os.path.exists(beside) and not os.path.exists(given) else given


def not_there(path: str | os.PathLike[str]) -> Problem:
    """Return what is to be said of a file that is not there."""
    return Problem("no such file; check the path and the working directory", os.fspath(path))


def check_there(paths: Iterable[str | os.PathLike[str]], error: type[CaffejaxError] = CaffejaxError) -> None:
    """Raise an error that names every file or folder that is not there."""
    missing = [not_there(path) for path in paths if not os.path.exists(path)]
    if missing:
        raise error(missing)


def content(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file that a file names.

    Raises:
        OSError: if it cannot be read, or is a device such as /dev/zero, which has no end.
        ValueError: for a name with a NUL in it.
    """
    with open(path, "rb") as file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is a device, not a file")
        return file.read()
