"""Supervision of a training command. The command runs in a child process, and the parent reports if JAX aborts it.

When several processes train together and one is lost, JAX may abort the others at any moment from one of its threads,
with a C++ stack trace, before Python can react. The parent process does not use JAX. It replaces the stack trace by one
line, forwards signals, and exits when the child exits.
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
    "another process has ended, or cannot be reached; see its log. Start all processes again, with --snapshot "
    "to continue from the last checkpoint"
)
_VARIABLE = "CAFFEJAX_WATCHED"  # number of a pipe's read end in the child; the pipe is closed when the parent ends
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_POLL = 1  # second between checks of the child
_JOIN_TIMEOUT = 5  # seconds to wait for the child's last output after its end
# lines with glog's prefix; one line replaces the long messages of JAX's coordination service
_PREFIX = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<file>[\w.]+):\d+\] ")
_COORDINATION = ("client.h", "coordination_service_agent.cc", "coordination_service.cc")
_STATUS = re.compile(r"absl::Status: (.{1,300})")


def is_supervised() -> bool:
    """Return whether a supervisor started this process. After the first call, this process ends with its supervisor."""
    if (number := os.environ.pop(_VARIABLE, None)) is None:
        return False
    threading.Thread(target=_end_with_parent, args=(int(number),), daemon=True).start()
    return True


def _end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is written to the pipe, so read returns when the parent's end is closed
    os._exit(1)


def supervise(process_id: int | None, start_timeout: int) -> int:
    """Run this process's command line again in a child process and return its exit code.

    Args:
        process_id: the index of this process among the processes that train together, or None if it is unknown.
        start_timeout: the longest time that processes wait for each other at the start, in seconds.
    """
    read_end, write_end = os.pipe()
    pending: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def forward_signal(number: int, frame: FrameType | None) -> None:
        pending.append(number) if child is None else child.send_signal(number)

    signals = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, forward_signal) for number in signals}
    try:
        child = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env={**os.environ, _VARIABLE: str(read_end)},
            pass_fds=(read_end,),
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches the child once, through this process
        )
        os.close(read_end)
        for number in pending:
            child.send_signal(number)
        relay = _Relay(child.stderr)
        code = None
        while code is None:  # short waits: a signal that comes just before a wait is forwarded only after it
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_POLL)
        relay.join()
    finally:
        os.close(write_end)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if code >= 0:
        return code
    if not relay.explained:
        prefix = "" if process_id is None else f"[process {process_id}] "
        print(f"caffejax: {prefix}{_abort_message(-code, relay.status, start_timeout)}", file=sys.stderr, flush=True)
    return 1


def _abort_message(number: int, status: str, start_timeout: int) -> str:
    """Return a message that explains why the signal `number` ended the process.

    `status` is JAX's last status line, or "".
    """
    if not status:
        return f"ended by {signal.Signals(number).name}; see the last lines of its log"
    if "ALREADY_EXISTS" in status or "incarnation" in status:  # "incarnation" if all processes had started
        return f"another process has the same --process_id, or one process was restarted alone ({status})"
    if "DEADLINE_EXCEEDED" in status:
        return f"not all processes started within {start_timeout} s, or some have ended since ({status})"
    return f"{LOST} ({status})"


class _Relay:
    """A thread that copies a child's stderr line by line, without the messages of JAX's coordination service.

    Attributes:
        status: JAX's reason for ending the process, or "".
        explained: True if the child has printed the reason.
    """

    def __init__(self, stderr: IO[bytes] | None) -> None:
        self.status, self.explained = "", False
        self._thread = threading.Thread(target=self._run, args=(stderr,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until all output is copied, at most 5 s, because the child's child processes may keep stderr open."""
        self._thread.join(_JOIN_TIMEOUT)

    def _run(self, stderr: IO[bytes] | None) -> None:
        in_hidden = False  # True inside a hidden message, whose other lines have no prefix
        for line in stderr or ():
            text = line.decode(errors="replace")
            prefix = _PREFIX.match(text)
            # a Traceback inside a hidden message is from a thread that waited for the lost process, such as orbax's
            if text.startswith(("caffejax: ",) if in_hidden else ("caffejax: ", "Traceback ")):
                in_hidden, self.explained = False, True
            is_hidden = in_hidden if prefix is None else prefix["file"] in _COORDINATION
            if prefix is not None:
                in_hidden = is_hidden and prefix["level"] in "EF"
            if not is_hidden:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            elif status := _STATUS.search(text):
                self.status = status[1].strip()
