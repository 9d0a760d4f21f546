"""Signal handlers for training (snapshot, stop or ignore) and Ctrl-C, and replacement of closed standard streams."""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..base.glog import log
from . import flags
from .device_flags import is_multiprocess

if TYPE_CHECKING:
    from ..core.solver import Solver

_EFFECTS = ("stop", "snapshot", "none")
_DUPLICATE_SECONDS = 1.0  # seconds; signals within it count as one: schedulers may signal both a process and its parent


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--sigint_effect` and `--sighup_effect`."""
    group = flags.get_group(parser, "signals")
    flags.add(
        group,
        "sigint_effect",
        "the effect of Ctrl-C: stop after a snapshot (a second Ctrl-C stops at once), snapshot, or none",
        choices=_EFFECTS,
        default="stop",
    )
    flags.add(group, "sighup_effect", "the effect of SIGHUP", choices=_EFFECTS, default="snapshot")


@contextmanager
def handle_signals(solver: Solver, options: argparse.Namespace) -> Iterator[None]:
    """Return a context that handles signals, as the flags select, while the solver runs.

    SIGTERM writes a snapshot and stops training. With the effect "stop", a SIGINT more than 1 s after the first raises
    KeyboardInterrupt at once.
    """
    effects = {
        signal.SIGINT: options.sigint_effect,
        signal.SIGHUP: options.sighup_effect,
        signal.SIGTERM: "stop",
    }
    first_times: dict[int, float] = {}
    pending_messages: list[str] = []  # logged between iterations, because a handler may interrupt the logger itself

    def log_pending(solver: Solver) -> None:
        while pending_messages:
            log.info(pending_messages.pop(0))

    def handle_signal(signal_number: int, frame: FrameType | None) -> None:
        effect = effects[signal.Signals(signal_number)]
        now = time.monotonic()
        is_repeated = now - first_times.setdefault(signal_number, now) > _DUPLICATE_SECONDS
        if signal_number == signal.SIGINT and effect == "stop" and is_repeated:
            raise KeyboardInterrupt
        if effect != "none":
            solver.request(effect)
        hint = "; a second Ctrl-C stops at once" if (signal_number, effect) == (signal.SIGINT, "stop") else ""
        pending_messages.append(f"{signal.Signals(signal_number).name}: {_MESSAGES[effect]}{hint}")

    vars(log_pending)["takes_several_steps"] = True
    solver.callbacks.append(log_pending)
    previous_handlers = {signal_number: signal.signal(signal_number, handle_signal) for signal_number in effects}
    try:
        with end_if_stuck(solver, first_times) if is_multiprocess(options) else nullcontext():
            yield
    finally:
        for signal_number, previous_handler in previous_handlers.items():
            signal.signal(signal_number, previous_handler)
        solver.callbacks.remove(log_pending)
        log_pending(solver)  # a signal after the last iteration's callbacks


_STUCK_SECONDS = 30.0  # after SIGTERM, in which a process that trains reaches the next iteration or Python code


@contextmanager
def end_if_stuck(solver: Solver, first_times: Mapping[int, float]) -> Iterator[None]:
    """Return a context in which SIGTERM ends all processes if this one waits for another that does not come.

    A handler of Python does not run while the main thread waits in compiled code, such as a sum over all devices.

    Args:
        solver: the solver that trains.
        first_times: the times at which signals were handled first, by number. The handler of SIGTERM adds to it.
    """
    from ..core.parallel.coordination import current_progress, current_wait, end_all

    longest_step, last_step = 0.0, math.inf  # the first step, which is compiled, does not count

    def measure_step(solver: Solver) -> None:
        nonlocal longest_step, last_step
        now = time.monotonic()
        longest_step, last_step = max(longest_step, now - last_step), now

    def watch() -> None:
        while (number := os.read(read_fd, 1)) != b"\0":
            if number[0] != signal.SIGTERM:
                continue
            limit = max(_STUCK_SECONDS, 3 * longest_step)
            end_if_stuck_for(limit)

    def end_if_stuck_for(limit: float) -> None:
        """Look every second until training ends or another signal comes."""
        begin = time.monotonic()
        while not select.select([read_fd], [], [], 1.0)[0]:
            if time.monotonic() - begin < limit:
                continue
            wait = current_wait()
            is_waiting = wait is not None and wait[1] >= limit
            action, seconds = current_progress()
            is_stuck = action.startswith("runs ") and seconds >= limit  # the handler ran before the wait began
            if signal.SIGTERM not in first_times or is_waiting or is_stuck:
                subject = f"for {wait[0]}" if is_waiting and wait else "for other processes, in one operation"
                end_all(f"SIGTERM: waited {limit:.0f} s {subject}, so it ends without a snapshot")

    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    previous_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    solver.callbacks.append(measure_step)
    try:
        yield
    finally:
        solver.callbacks.remove(measure_step)
        signal.set_wakeup_fd(previous_fd)
        os.write(write_fd, b"\0")
        thread.join()
        os.close(read_fd)
        os.close(write_fd)


_MESSAGES = {
    "stop": "a snapshot will be written after this iteration, then training stops",
    "snapshot": "a snapshot will be written after this iteration",
    "none": "ignored",
}


_RETRY_SECONDS = 0.02  # seconds between tries to raise a delayed interrupt


@contextmanager
def handle_ctrl_c() -> Iterator[None]:
    """Return a context in which Ctrl-C raises KeyboardInterrupt. After the context, Ctrl-C ends the process silently.

    The interrupt is delayed, and retried every 20 ms, in two cases: during an import, because some libraries crash if
    their import is interrupted, and in functions whose exceptions Python prints but does not raise, such as callbacks
    of the garbage collector.
    """
    previous_hook = sys.unraisablehook

    def retry(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
        else:
            previous_hook(unraisable)

    sys.unraisablehook = retry
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):  # nohup ignores the signal
        signal.signal(signal.SIGINT, _raise_interrupt)
    signal.signal(signal.SIGALRM, _raise_interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGINT) is _raise_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _raise_interrupt(signal_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise, files that are opened later would get the numbers of these streams, and text for the streams would be
    written to the files. Call this before any file is opened.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is the closed stream's
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
