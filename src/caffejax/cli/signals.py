"""What signals do to a training run: snapshot, stop, or nothing."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

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
def handled(solver: Solver, options: argparse.Namespace) -> Iterator[None]:
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
