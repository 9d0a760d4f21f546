"""A command under a supervisor process: exit codes, messages, and that neither process outlives the other."""

import signal
import subprocess
import sys

import pytest

from subprocesses import Program

SUPERVISE = """
import os, signal, sys, time
from caffejax.cli import supervisor
if not supervisor.is_supervised():
    sys.exit(supervisor.supervise(1, 7))
"""
LOG_LINES = """
print("I1122 22:10:31.306206   12 other.cc:1] before", file=sys.stderr)
print("W1122 22:10:31.306206   12 coordination_service.cc:388] hidden", file=sys.stderr)
print("after", file=sys.stderr)
"""
ABORT = """
print("F1122 22:10:31.306242   12 client.h:80] hidden absl::Status: {status}", file=sys.stderr)
print("hidden, as it goes on", file=sys.stderr)
print("Traceback (most recent call last), of a thread that waited: hidden", file=sys.stderr, flush=True)
os.abort()
"""
REGISTRATION = "RPC: /xla.coordination.CoordinationService/RegisterTask"


@pytest.mark.parametrize(
    ("child_code", "exit_code", "expected_stderr"),
    [
        ("sys.exit(0)", 0, ""),
        ("print('x', file=sys.stderr); sys.exit(3)", 3, "x\n"),
        (
            LOG_LINES + ABORT.format(status="UNAVAILABLE: gone"),
            1,
            "I1122 22:10:31.306206   12 other.cc:1] before\nafter\ncaffejax: [process 1] another process has ended, or "
            "cannot be reached; see its log. Start all processes again, with --snapshot to continue from the last "
            "checkpoint (UNAVAILABLE: gone)\n",
        ),
        (
            ABORT.format(status="ALREADY_EXISTS: newer"),
            1,
            "caffejax: [process 1] another process has the same --process_id, or one process was restarted alone "
            "(ALREADY_EXISTS: newer)\n",
        ),
        (
            ABORT.format(status="DEADLINE_EXCEEDED: late").replace("hidden, as it goes on", REGISTRATION),
            1,
            "caffejax: [process 1] not all processes started within 7 s (DEADLINE_EXCEEDED: late)\n",
        ),
        (
            ABORT.format(status="DEADLINE_EXCEEDED: frozen"),
            1,
            "caffejax: [process 1] another process has ended, or cannot be reached; see its log. Start all processes "
            "again, with --snapshot to continue from the last checkpoint (DEADLINE_EXCEEDED: frozen)\n",
        ),
        (
            "os.kill(os.getpid(), signal.SIGTERM)",
            1,
            "caffejax: [process 1] stopped by SIGTERM before training began, or after it had ended, so no snapshot was "
            "written\n",
        ),
        ("print('caffejax: explained', file=sys.stderr, flush=True); os.abort()", 1, "caffejax: explained\n"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            1,
            "caffejax: [process 1] ended by SIGKILL; see the last lines of its log\n",
        ),
    ],
    ids=[
        *("success", "failure", "lost peer", "duplicate process id", "late peer", "frozen peer", "stopped"),
        *("explained by the child", "killed"),
    ],
)
def test_the_supervisor_reports_how_the_child_ends(child_code: str, exit_code: int, expected_stderr: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SUPERVISE + child_code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (exit_code, expected_stderr)


def start_supervised(child_code: str) -> Program:
    """A watching process, when the one that it watches is ready, and sleeps."""
    # short waits: Python handles a signal that comes just before a wait only after it
    code = f"{SUPERVISE}{child_code}\nprint('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    command = [sys.executable, "-c", code]
    process = Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_forwarded(signal_number: signal.Signals) -> None:
    with start_supervised(f"signal.signal({int(signal_number)}, lambda *_: sys.exit(5))") as process:
        process.send_signal(signal_number)
        process.communicate(timeout=30)
    assert process.returncode == 5


def test_the_child_ends_with_its_supervisor() -> None:
    with start_supervised("") as process:
        process.kill()
        process.communicate(timeout=30)  # its output is closed when the watched one has ended, too
    assert process.returncode == -signal.SIGKILL
