"""Handling of checkpoints that could not be saved: removal of files, errors to raise, silencing of orbax."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base.atomic_write import make_write_problem
from ...base.errors import Problem, WeightsError

_TEMPORARY_SUFFIX = ".orbax-checkpoint-tmp"  # part of orbax's names of temporary folders
# old steps are moved here before they are deleted, so that no step is ever incomplete
TRASH_FOLDER = f"removed{_TEMPORARY_SUFFIX}"
_POLL_SECONDS = 0.02
_MAX_WAIT, _QUIET_TIME = 2, 0.3  # seconds
_EXCEPTHOOK_ARGUMENTS = 3  # of `sys.excepthook`: type, value, traceback
_UNAWAITED_COROUTINE = re.compile("coroutine '.*' was never awaited")  # Python's warning
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")  # in tensorstore's messages


def remove_temporary_folders(folder: Path, pattern: str = "*") -> list[str]:
    """Remove orbax's temporary folders in a checkpoint folder, and return their names.

    Args:
        folder: the checkpoint folder.
        pattern: a glob pattern; only folders whose names match it are removed.
    """
    temporary_folders = [
        p for p in folder.glob(pattern) if _TEMPORARY_SUFFIX in p.name and p.is_dir() and not p.is_symlink()
    ]
    for path in temporary_folders:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in temporary_folders]


def remove_failed_step(folder: Path, step: int) -> None:
    """Remove the files of a step that could not be saved.

    After the error, tensorstore's threads still finish pending writes and create the files again. So files are removed
    repeatedly, until none has appeared for 0.3 seconds or 2 seconds have passed.
    """
    begin = quiet_since = time.monotonic()
    while time.monotonic() < min(quiet_since + _QUIET_TIME, begin + _MAX_WAIT):
        if remove_temporary_folders(folder, f"{step}.*"):
            quiet_since = time.monotonic()
        time.sleep(0.02)


def make_save_error(folder: Path, step: int, error: Exception) -> WeightsError:
    """Return the error to raise for a step that could not be saved, with the file system's reason if it is known."""
    cause = _find_os_error(error)
    if cause is not None and cause.errno == errno.ENOENT:
        return WeightsError(Problem("cannot be written: its folder has been removed", str(folder / str(step))))
    if cause is not None:
        return WeightsError(make_write_problem(folder / str(step), cause))
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return WeightsError(Problem(f"cannot be written: {reason}", str(folder / str(step))))


def _find_os_error(error: BaseException | None) -> OSError | None:
    """Return the `OSError` in an error's chain of causes, or None.

    Tensorstore raises no `OSError`, but the text of its errors contains the `errno`. In this case, a new `OSError` with
    this `errno` is returned.
    """
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


class _ErrorSilencer:
    """A switch that silences errors of orbax's threads between `acquire` and `release`.

    It replaces Python's three hooks for uncaught exceptions and its hook for warnings, and filters two loggers. Several
    threads may call `acquire` at the same time. The last `release` restores the hooks, except for a hook that another
    library has replaced since `acquire`.
    """

    def __init__(self) -> None:
        self.is_permanent = False  # whether `release` does nothing
        self._lock, self._num_holders = threading.Lock(), 0
        self._hooks: list[tuple[Any, str, Any, Any]] = []  # module, name, previous hook, filtering hook

    def acquire(self) -> None:
        with self._lock:
            self._num_holders += 1
            if self._num_holders > 1:
                return
            for module, name, wrap in _HOOKS:
                previous_hook = getattr(module, name)
                setattr(module, name, filter_hook := wrap(previous_hook))
                self._hooks.append((module, name, previous_hook, filter_hook))
            for logger in _get_loggers():
                logger.addFilter(_is_relevant)

    def release(self) -> None:
        with self._lock:
            if self.is_permanent:
                return
            self._num_holders -= 1
            if self._num_holders:
                return
            for module, name, previous_hook, filter_hook in self._hooks:
                if getattr(module, name) is filter_hook:
                    setattr(module, name, previous_hook)
            self._hooks.clear()
            for logger in _get_loggers():
                logger.removeFilter(_is_relevant)


def _get_loggers() -> tuple[logging.Logger, logging.Logger]:
    """Return the loggers whose messages are filtered: absl's, which orbax uses, and asyncio's.

    The filter looks for "orbax" in the path of the source file that logged a message. Only messages of absl's own
    logger are certain to contain it.
    """
    from absl import logging as absl_logging

    return absl_logging.get_absl_logger(), logging.getLogger("asyncio")


def silence_orbax_permanently() -> None:
    """From the next read or write of a checkpoint on, hide errors of orbax's threads until the process ends."""
    _silencer.is_permanent = True


@contextmanager
def suppress_orbax_errors() -> Iterator[None]:
    """Keep orbax and its threads from printing errors that are also raised, until the `with` block ends."""
    _silencer.acquire()
    try:
        yield
    finally:
        _silencer.release()


def _is_relevant(record: logging.LogRecord) -> bool:
    if record.exc_info and _is_from_abandoned_io(record.exc_info[1]):
        return False
    return "orbax" not in record.pathname and "orbax" not in record.getMessage()


def _is_from_abandoned_io(error: BaseException | None) -> bool:
    """Return whether an error's message shows that the error comes from a read or write that was abandoned."""
    return (
        "Event loop is closed" in str(error)
        or "tensorstore" in str(error).lower()
        # a coroutine that orbax had not started yet, where warnings are raised as exceptions
        or (isinstance(error, RuntimeWarning) and _is_unawaited_coroutine(error))
    )


def _is_unawaited_coroutine(message: object) -> bool:
    return _UNAWAITED_COROUTINE.match(str(message)) is not None


def _wrap_hook(hook: Any) -> Callable[..., Any]:
    """Return a hook for uncaught exceptions that calls `hook`, except for errors of orbax's threads and tensorstore."""

    def filter_hook(*args: Any) -> None:
        error = args[1] if len(args) == _EXCEPTHOOK_ARGUMENTS else args[0].exc_value
        thread = getattr(args[0], "thread", None)
        if not _is_from_abandoned_io(error) and "orbax" not in type(thread).__module__:
            hook(*args)

    return filter_hook


def _wrap_showwarning(showwarning: Any) -> Callable[..., None]:
    """Return a replacement of `warnings.showwarning` that hides warnings of coroutines that were never awaited.

    Orbax leaves such coroutines behind when another array of the checkpoint cannot be read.
    """

    def filter_warning(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if not (issubclass(category, RuntimeWarning) and _is_unawaited_coroutine(message)):
            showwarning(message, category, *args, **kwargs)

    return filter_warning


# hooks that are replaced: module, name, and the function that makes the replacement
_HOOKS: tuple[tuple[Any, str, Callable[[Any], Callable[..., None]]], ...] = (
    (threading, "excepthook", _wrap_hook),
    (sys, "unraisablehook", _wrap_hook),
    (sys, "excepthook", _wrap_hook),
    (warnings, "showwarning", _wrap_showwarning),
)
_silencer = _ErrorSilencer()
