"""Log lines in glog's form: `I0131 12:00:00.000000 12345 solver.py:42] message`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

log = logging.getLogger("caffejax")

_logged_messages: ContextVar[set[str]] = ContextVar("logged", default=set())  # noqa: B039  one set for the whole process

_LEVEL_LETTERS = {logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class GlogFormatter(logging.Formatter):
    """A formatter of log records in glog's form.

    Args:
        prefix: a prefix for each message.
    """

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line: level, date, time, process id, file and line, and the message."""
        letter = _LEVEL_LETTERS.get(record.levelno, "I")
        clock = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        location = f"{record.filename}:{record.lineno}"
        return f"{letter}{clock}.{micros:06d} {record.process:5d} {location}] {self._prefix}{record.getMessage()}"


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], object], prefix: str) -> None:
        super().__init__()
        self.write = write
        self.setFormatter(GlogFormatter(prefix))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:
            self.handleError(record)


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # one write, so that other output, such as ^C, does not split the line
    sys.stderr.flush()


def start_logging(write: Callable[[str], object] = _write_to_stderr, process: int = 0) -> None:
    """Print caffejax's log in glog's form, as Caffe's commands do.

    The log has the losses and outputs at each `display`, tests and snapshots. Before this call, the logger "caffejax"
    has Python's default settings, which print warnings and errors only. A second call replaces the first. When several
    processes train together, process 0 logs everything, and the other processes log only warnings and errors, prefixed
    with their number.

    Args:
        write: a function that is called with each line. By default, lines are written to stderr.
        process: the number of this process.
    """
    log.handlers[:] = [_Handler(write, f"[process {process}] " if process else "")]
    log.setLevel(logging.WARNING if process else logging.INFO)
    log.propagate = False


@contextmanager
def log_to_stderr(level: int = logging.INFO) -> Iterator[None]:
    """Print caffejax's log in glog's form within a `with` block; the logger is restored at its end.

    The block changes nothing if the logger already has a handler or a level. The handlers of the root logger receive
    the log too, except if one of them prints to stderr or stdout, such as the handler that absl adds when orbax is
    imported.

    Args:
        level: the lowest level that is printed, such as `logging.INFO`.
    """
    if log.handlers or log.level:
        yield
        return
    streams = [getattr(h, "stream", None) for h in logging.getLogger().handlers]
    handler = _Handler(_write_to_stderr, "")
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = bool(streams) and not (sys.stderr in streams or sys.stdout in streams)
    try:
        yield
    finally:
        log.propagate = True
        log.setLevel(logging.NOTSET)
        log.removeHandler(handler)


def warn_once(message: str) -> None:
    """Log a warning, unless this process has already logged the same message."""
    logged_messages = _logged_messages.get()
    if message not in logged_messages:
        logged_messages.add(message)
        log.warning("%s", message)


@contextmanager
def collect_warnings(prefix: str = "") -> Iterator[list[str]]:
    """Collect caffejax's warnings within a `with` block in a list, and do not print them.

    Warnings that `warn_once` has already logged are collected again.

    Args:
        prefix: a prefix to remove from the messages.
    """
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage().removeprefix(prefix))

    handlers, propagate = log.handlers[:], log.propagate
    log.handlers[:] = [Collector(logging.WARNING)]  # instead of the handler of `start_logging`, which prints
    log.propagate = False
    token = _logged_messages.set(set())
    try:
        yield messages
    finally:
        _logged_messages.reset(token)
        log.handlers[:] = handlers
        log.propagate = propagate
