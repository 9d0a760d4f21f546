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

PEER_LOST_MESSAGE = (
    "another process has ended, or cannot be reached; see its log. Start all processes again, with --snapshot "
    "to continue from the last checkpoint"
)
_PIPE_VARIABLE = "CAFFEJAX_WATCHED"  # number of a pipe's read end in the child; the pipe is closed when the parent ends
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_POLL_SECONDS = 1  # second between checks of the child
_JOIN_SECONDS = 5  # seconds to wait for the child's last output after its end
# lines with glog's prefix; one line replaces the long messages of JAX's coordination service
_GLOG_PREFIX = re.compile(r"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<file>[\w.]+):\d+\] ")
_COORDINATION_FILES = ("client.h", "coordination_service_agent.cc", "coordination_service.cc")
_REGISTRATION = "RPC: /xla.coordination.CoordinationService/RegisterTask"
_STATUS_PATTERN = re.compile(r"absl::Status: (.{1,300})")


def is_supervised() -> bool:
    """Return whether a supervisor started this process. After the first call, this process ends with its supervisor."""
    if (fd := os.environ.pop(_PIPE_VARIABLE, None)) is None:
        return False
    threading.Thread(target=_end_with_parent, args=(int(fd),), daemon=True).start()
    return True


def _end_with_parent(read_fd: int) -> None:
    os.read(read_fd, 1)  # nothing is written to the pipe, so read returns when the parent's end is closed
    os._exit(1)


def supervise(process_id: int | None, start_timeout: int) -> int:
    """Run this process's command line again in a child process and return its exit code.

    Args:
        process_id: the index of this process among the processes that train together, or None if it is unknown.
        start_timeout: the longest time that processes wait for each other at the start, in seconds.
    """
    read_fd, write_fd = os.pipe()
    pending_signals: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def forward_signal(signal_number: int, frame: FrameType | None) -> None:
        pending_signals.append(signal_number) if child is None else child.send_signal(signal_number)

    signals = [signal_number for signal_number in _SIGNALS if signal.getsignal(signal_number) != signal.SIG_IGN]
    previous_handlers = {signal_number: signal.signal(signal_number, forward_signal) for signal_number in signals}
    try:
        child = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env={**os.environ, _PIPE_VARIABLE: str(read_fd)},
            pass_fds=(read_fd,),
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches the child once, through this process
        )
        os.close(read_fd)
        for signal_number in pending_signals:
            child.send_signal(signal_number)
        stderr_filter = _StderrFilter(child.stderr)
        exit_code = None
        while exit_code is None:  # short waits: a signal that comes just before a wait is forwarded only after it
            with contextlib.suppress(subprocess.TimeoutExpired):
                exit_code = child.wait(_POLL_SECONDS)
        stderr_filter.join()
    finally:
        os.close(write_fd)
        for signal_number, handler in previous_handlers.items():
            signal.signal(signal_number, handler)
    if exit_code >= 0:
        return exit_code
    if not stderr_filter.has_explanation:
        failed_start = start_timeout if stderr_filter.has_failed_to_start else None
        message = _format_abort_message(-exit_code, stderr_filter.status, failed_start)
        prefix = "" if process_id is None else f"[process {process_id}] "
        print(
            f"caffejax: {prefix}{message}",
            file=sys.stderr,
            flush=True,
        )
    return 1


def _format_abort_message(signal_number: int, status: str, start_timeout: int | None) -> str:
    """Return a message that explains why the signal `signal_number` ended the process.

    `status` is JAX's last status line, or "". `start_timeout` is None if all processes had started.
    """
    if not status and signal_number in _SIGNALS:
        name = signal.Signals(signal_number).name
        return f"stopped by {name} before training began, or after it had ended, so no snapshot was written"
    if not status:
        return f"ended by {signal.Signals(signal_number).name}; see the last lines of its log"
    if "ALREADY_EXISTS" in status or "incarnation" in status:  # "incarnation" if all processes had started
        return f"another process has the same --process_id, or one process was restarted alone ({status})"
    if start_timeout is not None:
        return f"not all processes started within {start_timeout} s ({status})"
    return f"{PEER_LOST_MESSAGE} ({status})"


class _StderrFilter:
    """A thread that copies a child's stderr line by line, without the messages of JAX's coordination service.

    Attributes:
        status: JAX's reason for ending the process, or "".
        has_explanation: True if the child has printed the reason.
        has_failed_to_start: True if JAX has reported that the child could not register with the others.
    """

    def __init__(self, stderr: IO[bytes] | None) -> None:
        self.status, self.has_explanation, self.has_failed_to_start = "", False, False
        self._thread = threading.Thread(target=self._run, args=(stderr,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until all output is copied, at most 5 s, because the child's child processes may keep stderr open."""
        self._thread.join(_JOIN_SECONDS)

    def _run(self, stderr: IO[bytes] | None) -> None:
        is_in_hidden_message = False  # True inside a hidden message, whose other lines have no prefix
        for line in stderr or ():
            text = line.decode(errors="replace")
            prefix = _GLOG_PREFIX.match(text)
            self.has_failed_to_start |= text.startswith(_REGISTRATION)
            # a Traceback inside a hidden message is from a thread that waited for the lost process, such as orbax's
            if text.startswith(("caffejax: ",) if is_in_hidden_message else ("caffejax: ", "Traceback ")):
                is_in_hidden_message, self.has_explanation = False, True
            is_hidden = is_in_hidden_message if prefix is None else prefix["file"] in _COORDINATION_FILES
            if prefix is not None:
                is_in_hidden_message = is_hidden and prefix["level"] in "EF"
            if not is_hidden:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            elif status := _STATUS_PATTERN.search(text):
                self.status = status[1].strip()
