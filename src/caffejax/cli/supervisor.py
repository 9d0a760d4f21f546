"""A command in a process of its own, watched by the one that was started: however JAX ends it, one line says why.

Where processes train together and one is lost, JAX may abort the others at any moment, from a thread of its own, with
a C++ stack and before Python hears of it. The watching process uses no JAX, hands on signals, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import IO

LOST = (
    "another process has ended, or cannot be reached; its own log says why. Start all of them again, with --snapshot "
    "to go on from the last checkpoint"
)
_VARIABLE = "CAFFEJAX_WATCHED"  # for the watched process: what it reads to learn that the other is gone
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_UP = 1  # second
_PATIENCE = 5  # seconds for what is left to be said after the end
# lines with glog's head; those of JAX's coordination say at length what is said here in one line, errors in several
_HEAD = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<file>[\w.]+):\d+\] ")
_COORDINATION = ("client.h", "coordination_service_agent.cc", "coordination_service.cc")
_STATUS = re.compile(r"absl::Status: (.{1,300})")


def is_supervised() -> bool:
    """Return whether this process is watched by another; from the first call on it ends with that one."""
    if (number := os.environ.pop(_VARIABLE, None)) is None:
        return False
    threading.Thread(target=_end_with, args=(int(number),), daemon=True).start()
    return True


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody writes: it returns when the other end is closed
    os._exit(1)


def supervise(process_id: int | None, start_timeout: int) -> int:
    """Run this process's own command line again, in a process of its own; return its exit code.

    Args:
        process_id: which of the processes that train together it is, where that is known.
        start_timeout: seconds that processes wait for each other at the start.
    """
    theirs, ours = os.pipe()
    pending: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, frame: FrameType | None) -> None:
        pending.append(number) if child is None else child.send_signal(number)

    heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, hand_on) for number in heeded}
    try:
        child = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env={**os.environ, _VARIABLE: str(theirs)},
            pass_fds=(theirs,),
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches it once, from here
        )
        os.close(theirs)
        for number in pending:
            child.send_signal(number)
        relay = _Relay(child.stderr)
        code = None
        while code is None:  # with an end to each wait: a signal just before one would be handed on only after it
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_LOOK_UP)
        relay.join()
    finally:
        os.close(ours)
        for number, handler in before.items():
            signal.signal(number, handler)
    if code >= 0:
        return code
    if not relay.explained:
        named = "" if process_id is None else f"[process {process_id}] "
        print(f"caffejax: {named}{_why(-code, relay.status, start_timeout)}", file=sys.stderr, flush=True)
    return 1


def _why(number: int, status: str, start_timeout: int) -> str:
    """Say why a signal of this number ended the process, of which JAX has said a status."""
    if not status:
        return f"ended by {signal.Signals(number).name}; what was said last says why, if anything does"
    if "ALREADY_EXISTS" in status or "incarnation" in status:  # the latter where all had come already
        return f"another process has the same --process_id, or one was started again alone ({status})"
    if "DEADLINE_EXCEEDED" in status:
        return f"not all processes have come within {start_timeout} s, or some have ended since ({status})"
    return f"{LOST} ({status})"


class _Relay:
    """Hands on what a process says, line by line, but for what JAX's coordination says.

    Attributes:
        status: the reason that JAX gave for ending the process; empty if it gave none.
        explained: whether the process said itself why it ends.
    """

    def __init__(self, said: IO[bytes] | None) -> None:
        self.status, self.explained = "", False
        self._thread = threading.Thread(target=self._run, args=(said,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until all has been said; not for processes that outlive the one that was watched."""
        self._thread.join(_PATIENCE)

    def _run(self, said: IO[bytes] | None) -> None:
        goes_on = False  # a hidden message, on lines without a head
        for line in said or ():
            text = line.decode(errors="replace")
            head = _HEAD.match(text)
            # a Traceback that follows is of a thread that waited for the process that is lost, as orbax's do
            if text.startswith(("caffejax: ",) if goes_on else ("caffejax: ", "Traceback ")):
                goes_on, self.explained = False, True
            hidden = goes_on if head is None else head["file"] in _COORDINATION
            if head is not None:
                goes_on = hidden and head["level"] in "EF"
            if not hidden:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            elif found := _STATUS.search(text):
                self.status = found[1].strip()
