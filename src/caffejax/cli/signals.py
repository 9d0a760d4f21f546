"""What signals do to a training run: snapshot, stop, or nothing."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..glog import log
from . import flags

if TYPE_CHECKING:
    from ..training import Solver

_EFFECTS = ("stop", "snapshot", "none")
_ONE = 1.0  # seconds within which schedulers, which may signal a process and its parent, have signalled once


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--sigint_effect` and `--sighup_effect`."""
    effects = flags.group(parser, "signals")
    flags.add(
        effects,
        "sigint_effect",
        "what Ctrl-C does: stop (after a snapshot; twice: at once), snapshot or none",
        choices=_EFFECTS,
        default="stop",
    )
    flags.add(effects, "sighup_effect", "what SIGHUP does", choices=_EFFECTS, default="snapshot")


@contextmanager
def handle_signals(solver: Solver, options: argparse.Namespace) -> Iterator[None]:
    """Follow the flags while the solver runs; SIGTERM snapshots and stops. A SIGINT a second later ends at once."""
    effects = {
        signal.SIGINT: options.sigint_effect,
        signal.SIGHUP: options.sighup_effect,
        signal.SIGTERM: "stop",
    }
    first: dict[int, float] = {}
    unsaid: list[str] = []  # a handler may interrupt the log itself: what it has to say is said between iterations

    def say(solver: Solver) -> None:
        while unsaid:
            log.info(unsaid.pop(0))

    def handler(number: int, frame: FrameType | None) -> None:
        effect = effects[signal.Signals(number)]
        now = time.monotonic()
        if number == signal.SIGINT and effect == "stop" and now - first.setdefault(number, now) > _ONE:
            raise KeyboardInterrupt
        if effect != "none":
            solver.request(effect)
        unsaid.append(f"{signal.Signals(number).name}: {_SAID[effect]}")

    solver.callbacks.append(say)
    before = {number: signal.signal(number, handler) for number in effects}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        solver.callbacks.remove(say)


_SAID = {
    "stop": "a snapshot after this iteration, then the end",
    "snapshot": "a snapshot after this iteration",
    "none": "ignored",
}


_AGAIN = 0.02  # seconds


@contextmanager
def handle_ctrl_c() -> Iterator[None]:
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


def open_missing_streams() -> None:
    """Open /dev/null for each that is closed: the next files would take their numbers, and get what is meant for them.

    Call it before any file is opened.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
