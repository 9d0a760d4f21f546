"""One training run at a time for each snapshot prefix, and what one left behind, swept."""

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

# locks that some network file systems do not have
_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def locked(prefix: str) -> Iterator[None]:
    """Hold `<prefix>.lock`, which says who does, until the block ends; and sweep what killed runs left, and this one.

    The operating system lets go of it when a process ends, however it does, so none is ever stale.

    Raises:
        SolverError: if another run holds it, naming its process and host, or if it cannot be written.
    """
    path = Path(f"{prefix}.lock")
    try:
        file = _opened(path)
    except OSError as error:
        raise SolverError(Problem(f"cannot be written: {error.strerror}", str(path))) from error
    try:
        sweep(prefix)
        yield
    finally:
        with suppress(OSError):
            sweep(prefix)
        with suppress(OSError):  # before it is let go: the next one makes its own
            path.unlink()
        os.close(file)


def _opened(path: Path) -> int:
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
            raise _held(path, holder) from None
        if _is(path, file):  # not removed by the run before, between opening and locking
            break
        os.close(file)
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return file


def _is(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _held(path: Path, holder: str) -> SolverError:
    by = f"by {holder}" if holder.startswith("process ") and holder.isprintable() else "by another process"
    message = f"another run trains with this snapshot prefix: the file is locked {by}; wait, or use another"
    return SolverError(Problem(message, str(path)))


def sweep(prefix: str) -> None:
    """Remove unfinished checkpoints and files of this prefix, to which nobody writes: who holds the lock says so."""
    stem = Path(prefix)
    partial = [p for p in stem.parent.glob(".*.tmp") if p.name.startswith(f".{stem.name}_iter_")]
    for path in partial:
        with suppress(OSError):
            path.unlink()
    if names := [*remove_unfinished(Path(f"{prefix}.orbax")), *(path.name for path in partial)]:
        log.info("Removed what a run left unfinished: %s", ", ".join(names))
