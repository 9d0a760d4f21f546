"""Ctrl-C in a process that is the command's own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_AGAIN = 0.02  # seconds


@contextmanager
def heeded() -> Iterator[None]:
    """Have Ctrl-C end the command, soon if it falls where it would do harm, and be silent once the command is over.

    Libraries that are being imported do not stand it: some crash. In functions that Python calls by the way, such as
    those of the garbage collector, it would be reported and lost.
    """
    report = sys.unraisablehook

    def lost(given: Any) -> None:
        if isinstance(given.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            report(given)

    sys.unraisablehook = lost
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):  # not ignored, as by nohup
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        frame = frame.f_back
    raise KeyboardInterrupt
