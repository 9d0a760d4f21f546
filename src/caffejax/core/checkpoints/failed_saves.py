"""Handling of checkpoints that could not be saved or read: removal of files, errors to raise, silence of orbax."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...base.atomic_write import make_write_problem
from ...base.errors import Problem, WeightsError

_TEMPORARY_SUFFIX = ".orbax-checkpoint-tmp"  # part of orbax's names of temporary folders
# old steps are moved here, since orbax deletes file by file: a kill would leave a step that is damaged
TRASH_FOLDER = f"removed{_TEMPORARY_SUFFIX}"
_ORBAX = "orbax/checkpoint"  # part of the paths of orbax's sources
_MAX_WAIT, _QUIET_TIME = 2, 0.3  # seconds
_MAX_REASON_LENGTH = 200  # characters; tensorstore's messages have a thousand
_POLL_SECONDS = 0.02
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")  # in tensorstore's messages


def remove_temporary_folders(folder: Path, pattern: str = "*") -> list[str]:
    """Remove orbax's temporary folders in a checkpoint folder, and return their names.

    Orbax itself removes none after an error, and others only where a manager is made, without a word.

    Args:
        folder: the checkpoint folder.
        pattern: a glob pattern; only folders whose names match it are removed.
    """
    paths = [p for p in folder.glob(pattern) if _TEMPORARY_SUFFIX in p.name and p.is_dir() and not p.is_symlink()]
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in paths]


def remove_failed_step(folder: Path, step: int) -> None:
    """Remove the files of a step that could not be saved.

    Orbax raises an error while tensorstore's threads still write, which create the files again. So files are removed
    repeatedly, until none has appeared for 0.3 seconds or 2 seconds have passed.
    """
    begin = quiet_since = time.monotonic()
    while time.monotonic() < min(quiet_since + _QUIET_TIME, begin + _MAX_WAIT):
        if remove_temporary_folders(folder, f"{step}.*"):
            quiet_since = time.monotonic()
        time.sleep(0.02)


def make_save_error(folder: Path, step: int, error: Exception) -> WeightsError:
    """Return the error to raise for a step that could not be saved, with the file system's reason if it is known."""
    path, cause = folder / str(step), _find_os_error(error)
    if cause is not None and cause.errno != errno.ENOENT:
        return WeightsError(make_write_problem(path, cause))
    reason = summarize(error) if cause is None else "its folder has been removed"
    return WeightsError(Problem(f"cannot be written: {reason}", str(path)))


def summarize(error: Exception) -> str:
    """Return the beginning of an error's message, or the name of its type if it has none."""
    line = re.split(r"\n| See full TensorStore| \[", str(error), maxsplit=1)[0]
    return textwrap.shorten(line, _MAX_REASON_LENGTH, placeholder=" ...") or type(error).__name__


def _find_os_error(error: BaseException | None) -> OSError | None:
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error
        if match := _OS_ERROR.search(str(error)):
            return OSError(int(match[1]), "")
        error = error.__cause__ or error.__context__
    return None


def record_failures(manager: Any) -> None:
    """Prepare orbax's manager, which several processes share, for `wait_or_fail`.

    If a write fails in one process, the manager first waits twenty minutes for the other processes, which wait for this
    one, and only then raises the error.
    """
    wait, manager.failures = manager._wait_for_checkpointers, []

    def wait_for_checkpointers() -> None:
        try:
            wait()
        except Exception as error:
            manager.failures.append(error)
            raise

    manager._wait_for_checkpointers = wait_for_checkpointers


def wait_or_fail(manager: Any) -> None:
    """Wait until the step that a manager saves is complete, or raise the error of a failed write at once."""
    while manager.is_saving_in_progress():
        if manager.failures:
            raise manager.failures[0]
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class _UnraisableFilter:
    """A replacement of `sys.unraisablehook` that passes on all errors except those of abandoned reads and writes."""

    previous_hook: Callable[[Any], object]

    def __call__(self, unraisable: Any) -> None:
        traceback = unraisable.exc_traceback
        code = traceback.tb_frame.f_code if traceback else None  # of the function that no other one in Python called
        # tensorstore's threads call this method of asyncio's loop
        if code is None or not (code.co_name == "call_soon_threadsafe" or _ORBAX in code.co_filename):
            self.previous_hook(unraisable)


def _is_relevant(record: logging.LogRecord) -> bool:
    texts = record.pathname, record.getMessage(), str(record.exc_info and record.exc_info[1])
    # some of tensorstore's messages name only its database
    return not any(library in text for text in texts for library in (_ORBAX, "tensorstore", "OCDBT database"))


@contextmanager
def suppress_orbax_errors() -> Iterator[None]:
    """Keep orbax and its threads from printing errors that are also raised in the `with` block.

    Orbax closes its event loop at the first error. Each further array that tensorstore has then read or written, at any
    later time, is an error of the closed loop, which Python prints, and each abandoned task is one that asyncio logs.
    So after an error, what hides these two stays.
    """
    from absl import logging as absl_logging

    loggers = absl_logging.get_absl_logger(), logging.getLogger("asyncio")
    filters = [partial(_is_relevant) for _ in loggers]  # of this block, so that no other thread removes them
    for logger, log_filter in zip(loggers, filters, strict=True):
        logger.addFilter(log_filter)
    hook = sys.unraisablehook
    if is_outermost := not isinstance(hook, _UnraisableFilter):
        sys.unraisablehook = _UnraisableFilter(hook)
    has_succeeded = False
    try:
        yield
        has_succeeded = True
    finally:
        loggers[0].removeFilter(filters[0])
        if has_succeeded or not is_outermost:
            loggers[1].removeFilter(filters[1])
        if has_succeeded and is_outermost:
            sys.unraisablehook = hook
