"""Messages between processes that train together: texts to compare, and the end of a process with its reason.

They pass through the store of JAX's coordination service, so nothing is compiled, busy devices do not delay them, and a
wait can be interrupted.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn

import jax

from ...base.errors import CaffejaxError, raise_if_any
from ..ops.jax_private import find_private

WAIT_LIMIT = 600  # seconds that a process waits for another that is alive
_POLL_SECONDS = 0.5  # seconds after which a wait lets signal handlers run
_WATCH_SECONDS = 1.0  # seconds between looks at messages of other processes
_FAREWELL_SECONDS = 8.0  # for which the end of a process waits until the others have heard of it
_MAX_SHOWN = 60  # characters of a value in a message; longer values are shown by their checksum
_MAX_LISTED = 8  # processes in a message
_exchange_numbers, _note_numbers = itertools.count(), itertools.count()
_notes: dict[int, tuple[str, str]] = {}  # by number: of this process, not yet compared with process 0
_notes_lock = threading.Lock()
_wait: tuple[str, float] | None = None  # the subject of the present wait, and its start
_progress = 0, "starts", time.monotonic()  # the number of calls of `note_progress`, the last action, and its start
_ending = threading.Event()


def _get_client() -> Any:
    """Return the client of JAX's coordination service, whose store is not in JAX's public interface."""
    if not jax.distributed.is_initialized():
        message = "several processes train, but are not connected; call caffejax.initialize_distributed first"
        raise CaffejaxError(message)
    return find_private("store of texts") or _make_store()


@functools.cache
def _make_store() -> Any:
    from .text_store import TextStore  # which imports servers and clients that are hardly ever needed

    return TextStore()


def exchange(purpose: str, text: str = "") -> list[str]:
    """Return the texts of all processes, in their order; all processes must call it together.

    Args:
        purpose: the common action, for messages, such as "compare the job".
        text: this process's text.

    Raises:
        CaffejaxError: if another process does something else, or does not come within ten minutes, or if the processes
            have noted different data; see `note`.
    """
    if jax.process_count() == 1:
        return [text]
    key, entry = f"caffejax/exchange/{next(_exchange_numbers)}", json.dumps([purpose, text])
    client = _get_client()
    if jax.process_index() == 0:
        entries = [entry, *(_wait_for(f"{key}/{i}", i, purpose) for i in range(1, jax.process_count()))]
        client.key_value_set(f"{key}/all", json.dumps(entries))
    else:
        client.key_value_set(f"{key}/{jax.process_index()}", entry)
        entries = json.loads(_wait_for(f"{key}/all", 0, purpose))
    purposes, texts = zip(*map(json.loads, entries), strict=True)
    if len(set(purposes)) > 1:
        actions = format_by_process(purposes)
        raise CaffejaxError(f"the processes do different things: {actions}; run the same program in all of them")
    if problem := _find_differing_note(is_complete=True):
        raise CaffejaxError(problem)
    return list(texts)


def _wait_for(key: str, process: int, purpose: str) -> str:
    global _wait
    subject, start = f"process {process} to {purpose}", time.monotonic()
    _wait = subject, start
    try:
        while time.monotonic() < start + WAIT_LIMIT:
            try:
                return str(_get_client().blocking_key_value_get(key, int(1000 * _POLL_SECONDS)))
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith("DEADLINE_EXCEEDED"):
                    raise
    finally:
        _wait = None
    raise CaffejaxError(f"waited {WAIT_LIMIT} s for {subject}; it is alive, but does something else: see its log")


def current_wait() -> tuple[str, float] | None:
    """Return the subject of this process's wait, such as "process 1 to compare the job", and its seconds so far."""
    wait = _wait
    return wait and (wait[0], time.monotonic() - wait[1])


def barrier(purpose: str = "reach the same point") -> None:
    """Wait until all processes have called this function. If there is only one process, return at once."""
    exchange(purpose)


def is_true_in_all_processes(condition: bool) -> bool:
    """Return whether a condition is true in all processes; all processes must call it together."""
    return all(exchange("agree on a condition", "1" if condition else ""))


def broadcast_from_first(number: int) -> int:
    """Return process 0's `number` in all processes; all processes must call it together."""
    return int(exchange("choose a number", str(number))[0])


def check_equal(purpose: str, parts: Mapping[str, tuple[str, str]]) -> None:
    """Check that each part is the same in all processes, in one exchange; all processes must call it together.

    Args:
        purpose: see `exchange`.
        parts: `(value, remedy)` by the part's name, such as "the solver's base_lr". Messages show short values, and the
            checksums of long ones.

    Raises:
        CaffejaxError: in all processes, with a problem for each part that differs. It names the processes, their
            values, and the remedy.
    """
    if jax.process_count() == 1:
        return
    values = {name: _abbreviate(value) for name, (value, _) in parts.items()}
    all_values = [json.loads(text) for text in exchange(purpose, json.dumps(values))]
    problems = []
    for name in dict.fromkeys(itertools.chain(*all_values)):
        by_process = [process_values.get(name, "nothing") for process_values in all_values]
        if len(set(by_process)) > 1:
            _, remedy = parts.get(name, ("", "start all processes with the same settings"))
            problems.append(f"the processes differ in {name}: {format_by_process(by_process)}; {remedy}")
    raise_if_any(CaffejaxError, problems)


def _abbreviate(value: str) -> str:
    is_short = len(value) <= _MAX_SHOWN and value.isprintable()
    return value if is_short else f"checksum {zlib.crc32(value.encode()):08x}"


def format_by_process(values: Sequence[str]) -> str:
    """Return a text such as "2 in process 0, 1 in processes 1 and 2" for the values of the processes."""
    texts = []
    for value in dict.fromkeys(values):
        numbers = [str(i) for i, other in enumerate(values) if other == value]
        hidden = len(numbers) - _MAX_LISTED
        *first, last = [*numbers[:_MAX_LISTED], f"{hidden} more"] if hidden > 0 else numbers
        texts.append(f"{value} in processes {', '.join(first)} and {last}" if first else f"{value} in process {last}")
    return ", ".join(texts)


def note(name: str, text: str) -> None:
    """Compare a text with process 0's, without waiting; all processes must call it in the same order.

    If the texts differ, the job ends within seconds, at the latest at the next `exchange`.
    """
    if jax.process_count() == 1:
        return
    number = next(_note_numbers)
    if jax.process_index() == 0:
        _get_client().key_value_set(f"caffejax/notes/{number}/text", json.dumps([name, text]))
    else:
        with _notes_lock:
            _notes[number] = name, text


def _find_differing_note(is_complete: bool) -> str | None:
    """Return a message if a note differs from process 0's, or if process 0 lacks it and `is_complete` is set."""
    with _notes_lock:
        for number, (name, text) in sorted(_notes.items()):
            found = _get_client().key_value_dir_get(f"caffejax/notes/{number}/")
            if not found and not is_complete:
                return None
            del _notes[number]
            if not found or json.loads(found[0][1]) != [name, text]:
                first = ": ".join(json.loads(found[0][1])) if found else "nothing"
                return (
                    f"the processes read different data: {first} in process 0, {name}: {text} in process "
                    f"{jax.process_index()}; pass the same data to all processes"
                )
    return None


def note_progress(action: str) -> None:
    """Announce an action of this process, such as "runs iteration 7"; all must call it in the same order.

    A process that waits in compiled code, such as a sum over devices, for a process that is behind ends all processes
    after ten minutes, and names the other one's action.
    """
    global _progress
    if jax.process_count() > 1:
        _progress = _progress[0] + 1, action, time.monotonic()


def current_progress() -> tuple[str, float]:
    """Return the action of the last call of `note_progress`, and the seconds since then."""
    _, action, start = _progress
    return action, time.monotonic() - start


def _find_late_process() -> str | None:
    """Publish the progress of this process, and return a message if it has waited too long for one that is behind."""
    number, action, start = _progress
    client = _get_client()
    client.key_value_set(f"caffejax/progress/{jax.process_index()}", json.dumps([number, action]), True)
    if time.monotonic() - start < WAIT_LIMIT:
        return None
    for key, text in client.key_value_dir_get("caffejax/progress/"):
        other_number, other_action = json.loads(text)
        if other_number < number:
            return f"waited {WAIT_LIMIT} s for process {key.rpartition('/')[2]}, which {other_action}; see its log"
    return None


def end_all(*problems: str, is_lost: bool = False) -> NoReturn:
    """Print problems, and end all processes at once with exit code 1 and the last problem as the reason.

    A normal exit would wait for the other processes, which wait for this one.

    Args:
        problems: the problems.
        is_lost: whether other processes cannot be reached, so that only this process ends.
    """
    if _ending.is_set():  # in another thread; these problems only follow from that
        time.sleep(2 * _FAREWELL_SECONDS)
    for problem in problems:
        print(f"caffejax: [process {jax.process_index()}] {problem}", file=sys.stderr)
    _end(None if is_lost else problems[-1].strip())


def _end(reason: str | None) -> NoReturn:
    _ending.set()
    if reason is not None:
        teller = threading.Thread(target=_tell_end, args=(reason,), daemon=True)  # the connection may be lost
        teller.start()
        teller.join(_FAREWELL_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(1)


def _tell_end(reason: str) -> None:
    client, process = _get_client(), jax.process_index()
    with suppress(jax.errors.JaxRuntimeError):  # another process has ended before
        client.key_value_set("caffejax/end/first", json.dumps([process, reason]))
    with suppress(jax.errors.JaxRuntimeError):
        client.key_value_set(f"caffejax/heard/{process}", "")
        # connections that break would hide the reason from the others
        while len(client.key_value_dir_get("caffejax/heard/")) < jax.process_count():
            time.sleep(0.05)
        if process == 0:
            time.sleep(0.3)  # the coordinator ends with process 0: the others go first


def watch_processes() -> None:
    """From now on, end this process once another has ended with an error, and all if it does not catch an exception.

    All processes must call it together.
    """
    _get_client()  # not first in the thread, because all must make their store together
    stopped = threading.Event()
    thread = threading.Thread(target=_watch, args=(stopped,), daemon=True, name="caffejax-watch")
    previous_hook = sys.excepthook

    def end_after_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not _ending.is_set():
            previous_hook(kind, error, trace)
        name = "" if isinstance(error, CaffejaxError) else f"{kind.__name__}: "
        _end(name + next(iter(str(error).splitlines()), ""))

    def stop() -> None:
        stopped.set()
        thread.join()

    sys.excepthook = end_after_error
    atexit.register(stop)
    thread.start()


def _watch(stopped: threading.Event) -> None:
    while not stopped.wait(_WATCH_SECONDS):
        try:
            ended = _get_client().key_value_dir_get("caffejax/end/")
            problem = _find_differing_note(is_complete=False) or _find_late_process()
        except (CaffejaxError, jax.errors.JaxRuntimeError):
            return  # JAX reports a lost connection
        if ended and not _ending.is_set():
            first, reason = json.loads(ended[0][1])
            restart = "start all processes again, with --snapshot to continue from the last checkpoint"
            end_all(f"process {first} has ended: {reason}; {restart}")
        if problem:
            end_all(problem)
