"""Checkpoints that could not be saved: removal of their files, errors, and messages of orbax's threads."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..atomic import not_written
from ..errors import Problem, WeightsError

_TEMPORARY = ".orbax-checkpoint-tmp"  # part of orbax's names of temporary folders
REMOVED = f"removed{_TEMPORARY}"  # old steps are moved here before they are deleted, so that no step is ever incomplete
_MAX_WAIT, _QUIET_TIME = 2, 0.3  # seconds
_LOGGERS = logging.getLogger("absl"), logging.getLogger("asyncio")
_EXCEPTHOOK_ARGUMENTS = 3  # of `sys.excepthook`: type, value, traceback
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")  # in tensorstore's messages


def remove_unfinished(folder: Path, names: str = "*") -> list[str]:
    """Remove orbax's temporary folders whose names match a pattern from a checkpoint folder; return their names."""
    temporary = [p for p in folder.glob(names) if _TEMPORARY in p.name and p.is_dir() and not p.is_symlink()]
    for path in temporary:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in temporary]


def remove_failed(folder: Path, step: int) -> None:
    """Remove the files of a step that could not be saved, until no new ones have appeared for 0.3 seconds, at most 2.

    Tensorstore's threads finish pending writes after the error, and create the folders again.
    """
    begin = quiet_since = time.monotonic()
    while time.monotonic() < min(quiet_since + _QUIET_TIME, begin + _MAX_WAIT):
        if remove_unfinished(folder, f"{step}.*"):
            quiet_since = time.monotonic()
        time.sleep(0.02)


def save_error(folder: Path, step: int, error: Exception) -> WeightsError:
    """Return the error for a step that could not be saved, with the reason of the file system, if there is one."""
    cause = _cause(error)
    if cause is not None and cause.errno == errno.ENOENT:
        return WeightsError(Problem("cannot be written: its folder was removed meanwhile", str(folder / str(step))))
    if cause is not None:
        return WeightsError(not_written(folder / str(step), cause))
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return WeightsError(Problem(f"cannot be written: {reason}", str(folder / str(step))))


def _cause(error: BaseException | None) -> OSError | None:
    """Return the error of the file system that caused this error, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error
        if match := _OS_ERROR.search(str(error)):
            return OSError(int(match[1]), "")
        error = error.__cause__ or error.__context__
    return None


class _Silence:
    """Replaces the three hooks for uncaught exceptions while it is held, and filters two loggers.

    Several threads may hold it. The last to release it restores the hooks, except for a hook that another library has
    replaced meanwhile.
    """

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._hooks: list[tuple[Any, str, Any, Any]] = []  # module, name, hook before, hook meanwhile

    def hold(self) -> None:
        with self._lock:
            self._holders += 1
            if self._holders > 1:
                return
            for module, name in ((threading, "excepthook"), (sys, "unraisablehook"), (sys, "excepthook")):
                before = getattr(module, name)
                setattr(module, name, filtering := _without_late_errors(before))
                self._hooks.append((module, name, before, filtering))
            for logger in _LOGGERS:
                logger.addFilter(_is_relevant)

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            for module, name, before, filtering in self._hooks:
                if getattr(module, name) is filtering:
                    setattr(module, name, before)
            self._hooks.clear()
            for logger in _LOGGERS:
                logger.removeFilter(_is_relevant)


_silence = _Silence()


def hide_late_errors() -> None:
    """Hide errors of abandoned reads and writes of orbax's threads until the process ends; see `caffejax.process`."""
    _silence.hold()


@contextmanager
def suppress_orbax_errors() -> Iterator[None]:
    """Until the block ends, keep orbax and its threads from printing errors that are also raised."""
    _silence.hold()
    try:
        yield
    finally:
        _silence.release()


def _is_relevant(record: logging.LogRecord) -> bool:
    if record.exc_info and _is_late(record.exc_info[1]):
        return False
    return "orbax" not in record.pathname and "orbax" not in record.getMessage()


def _is_late(error: BaseException | None) -> bool:
    """Return whether an error comes from an abandoned read or write."""
    return "Event loop is closed" in str(error) or "tensorstore" in str(error).lower()


def _without_late_errors(hook: Any) -> Callable[..., Any]:
    """Return a hook for uncaught exceptions that leaves out errors of orbax's threads and of a closed event loop."""

    def filtering(*args: Any) -> None:
        error = args[1] if len(args) == _EXCEPTHOOK_ARGUMENTS else args[0].exc_value
        thread = getattr(args[0], "thread", None)
        if not _is_late(error) and "orbax" not in type(thread).__module__:
            hook(*args)

    return filtering
