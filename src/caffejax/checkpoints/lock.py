"""Lock of a snapshot prefix, so that only one training run at a time writes snapshots with it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import Problem, SolverError
from .unfinished import remove_unfinished

log = logging.getLogger("caffejax")

# errors of network file systems without locks
_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def lock_prefix(prefix: str) -> Iterator[None]:
    """Hold a lock on the file `<prefix>.lock` until the `with` block ends.

    Unfinished files that killed runs left are removed at the start and at the end of the block. The lock file contains
    the process and host of its holder. The operating system releases the lock when the process ends, so the lock cannot
    become stale.

    Raises:
        SolverError: if another run holds the lock or the file cannot be written. The message names the process and host
            of the holder.
    """
    path = Path(f"{prefix}.lock")
    try:
        file = _open_locked(path)
    except OSError as error:
        raise SolverError(Problem(f"cannot be written: {error.strerror}", str(path))) from error
    try:
        sweep(prefix)
        yield
    finally:
        with suppress(OSError):
            sweep(prefix)
        for _ in range(2):  # a failure may be temporary
            with suppress(OSError):  # before the lock is released: the next run creates another file
                path.unlink(missing_ok=True)
        os.close(file)


def _open_locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                log.warning("%s: %s; nothing keeps a second run from this prefix", path, error.strerror)
                return file
            holder = os.pread(file, 200, 0).decode(errors="replace").strip()
            os.close(file)
            raise _held_error(path, holder) from None
        if _is_same_file(path, file):  # the previous run did not remove it between opening and locking
            break
        os.close(file)
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return file


def _is_same_file(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _held_error(path: Path, holder: str) -> SolverError:
    by = f"by {holder}" if holder.startswith("process ") and holder.isprintable() else "by another process"
    message = f"another run trains with this snapshot prefix: the file is locked {by}; wait, or use another"
    return SolverError(Problem(message, str(path)))


def sweep(prefix: str) -> None:
    """Remove unfinished checkpoints and temporary files of a snapshot prefix. The caller must hold the lock."""
    stem = Path(prefix)
    partial = [p for p in stem.parent.glob(".*.tmp") if p.name.startswith(f".{stem.name}_iter_")]
    for path in partial:
        with suppress(OSError):
            path.unlink()
    if names := [*remove_unfinished(Path(f"{prefix}.orbax")), *(path.name for path in partial)]:
        log.info("Removed unfinished files of an earlier run: %s", ", ".join(names))
