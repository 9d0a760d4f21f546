"""Log lines in glog's form on stderr: `I0131 12:00:00.000000 12345 solver.py:42] message`."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

log = logging.getLogger("caffejax")

_said: ContextVar[set[str]] = ContextVar("said", default=set())  # noqa: B039  one for the whole process

_LETTERS = {logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class GlogFormatter(logging.Formatter):
    """Formatter of records in glog's form.

    Args:
        said_first: what comes before each message.
    """

    def __init__(self, said_first: str = "") -> None:
        super().__init__()
        self._said_first = said_first

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        letter = _LETTERS.get(record.levelno, "I")
        clock = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        place = f"{record.filename}:{record.lineno}"
        return f"{letter}{clock}.{micros:06d} {record.process:5d} {place}] {self._said_first}{record.getMessage()}"


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], object], said_first: str) -> None:
        super().__init__()
        self.write = write
        self.setFormatter(GlogFormatter(said_first))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:
            self.handleError(record)


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # at once: what comes between, such as Ctrl-C, has a line of its own
    sys.stderr.flush()


def start_logging(write: Callable[[str], object] = _to_stderr, process: int = 0) -> None:
    """Show caffejax's log in Caffe's form, as commands do: loss and outputs at each `display`, tests, snapshots.

    Until it is called the logger "caffejax" is as any of Python's, which shows warnings only. A second call replaces
    the first. Of several processes that train together, only number 0 says all; of others there are warnings, with
    their number.

    Args:
        write: what takes each line; stderr unless given.
        process: the number of this process.
    """
    log.handlers[:] = [_Handler(write, f"[process {process}] " if process else "")]
    log.setLevel(logging.WARNING if process else logging.INFO)
    log.propagate = False


def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged it before."""
    said = _said.get()
    if message not in said:
        said.add(message)
        log.warning("%s", message)


@contextmanager
def warnings_kept(said_first: str = "") -> Iterator[list[str]]:
    """Collect what caffejax logs as warnings meanwhile, instead of showing it, without `said_first`.

    What was said before is collected, too.
    """
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage().removeprefix(said_first))

    collector, propagate = Collector(logging.WARNING), log.propagate
    log.addHandler(collector)
    log.propagate = False
    said = _said.set(set())
    try:
        yield found
    finally:
        _said.reset(said)
        log.removeHandler(collector)
        log.propagate = propagate
