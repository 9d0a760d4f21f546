"""What processes that train together tell each other: texts to compare, and the end of a process.

All of it passes through the store of JAX's coordination service, so nothing is compiled, busy devices do not matter,
and a process that waits can be interrupted.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import jax

from ...base.errors import CaffejaxError

WAIT_LIMIT = 600  # seconds that a process waits for another that is alive
_POLL_SECONDS = 0.5  # seconds after which a wait lets signal handlers run
_WATCH_SECONDS = 1.0  # seconds between looks at what other processes have said
_FAREWELL_SECONDS = 8.0  # for which the end of a process waits until the others have heard of it
_MAX_SHOWN = 60  # characters of a value in a message; longer values are shown by their checksum
_MAX_LISTED = 8  # processes in a message
_RESTART = "start all processes again, with --snapshot to continue from the last checkpoint"
_exchange_numbers = itertools.count()


def _get_client() -> Any:
    """Return the client of JAX's coordination service, whose store is not in JAX's public interface."""
    from jax._src import distributed

    if distributed.global_state.client is None:
        message = "several processes train, but are not connected; call caffejax.initialize_distributed first"
        raise CaffejaxError(message)
    return distributed.global_state.client


def exchange(purpose: str, text: str = "") -> list[str]:
    """Return the texts of all processes, in their order; all processes must call it together.

    Args:
        purpose: what the processes do together, for messages, such as "compare the job".
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
    if problem := _notes.find_difference(is_complete=True):
        raise CaffejaxError(problem)
    return list(texts)


def _wait_for(key: str, process: int, purpose: str) -> str:
    with _announce_wait(f"process {process} to {purpose}"):
        end = time.monotonic() + WAIT_LIMIT
        while time.monotonic() < end:
            try:
                return str(_get_client().blocking_key_value_get(key, int(1000 * _POLL_SECONDS)))
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith("DEADLINE_EXCEEDED"):
                    raise
    raise CaffejaxError(
        f"waited {WAIT_LIMIT} s for process {process} to {purpose}; it is alive, but does something else: see its log"
    )


_wait: tuple[str, float] | None = None  # for whom and what this process waits, and since when


@contextmanager
def _announce_wait(subject: str) -> Iterator[None]:
    global _wait
    _wait = subject, time.monotonic()
    try:
        yield
    finally:
        _wait = None


def current_wait() -> tuple[str, float] | None:
    """Return for what this process waits, such as "process 1 to compare the job", and since how many seconds."""
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


class Part(NamedTuple):
    """A part of what must be equal in all processes.

    Attributes:
        value: the part as text. Messages show short texts, and the checksums of long ones.
        remedy: what to do if it differs.
    """

    value: str
    remedy: str


def check_equal(purpose: str, parts: Mapping[str, Part]) -> None:
    """Check that each part is the same in all processes, in one exchange; all processes must call it together.

    Args:
        purpose: see `exchange`.
        parts: the parts by name, such as "the solver's base_lr".

    Raises:
        CaffejaxError: in all processes, with a problem for each part that differs. It names the processes, and shows
            what each of them has.
    """
    if jax.process_count() == 1:
        return
    values = {name: _abbreviate(part.value) for name, part in parts.items()}
    all_values = [json.loads(text) for text in exchange(purpose, json.dumps(values))]
    problems = []
    for name in dict.fromkeys(itertools.chain(*all_values)):
        by_process = [process_values.get(name, "nothing") for process_values in all_values]
        if len(set(by_process)) > 1:
            remedy = parts[name].remedy if name in parts else "start all processes with the same settings"
            problems.append(f"the processes differ in {name}: {format_by_process(by_process)}; {remedy}")
    if problems:
        raise CaffejaxError(problems)


def _abbreviate(value: str) -> str:
    is_short = len(value) <= _MAX_SHOWN and value.isprintable()
    return value if is_short else f"checksum {zlib.crc32(value.encode()):08x}"


def format_by_process(values: Sequence[str]) -> str:
    """Return a text such as "2 in process 0, 1 in processes 1 and 2" for the values of the processes."""
    processes: dict[str, list[str]] = {}
    for i, value in enumerate(values):
        processes.setdefault(value, []).append(str(i))
    return ", ".join(f"{value} in {_format_processes(numbers)}" for value, numbers in processes.items())


def _format_processes(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    if len(numbers) > _MAX_LISTED:
        return f"processes {', '.join(numbers[:_MAX_LISTED])} and {len(numbers) - _MAX_LISTED} more"
    return f"processes {', '.join(numbers[:-1])} and {numbers[-1]}"


class _Notes:
    """Texts that are compared with those of process 0 without waiting for it."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, text: str) -> None:
        number = next(self._numbers)
        if jax.process_index() == 0:
            _get_client().key_value_set(f"caffejax/notes/{number}/text", json.dumps([name, text]))
        else:
            with self._lock:
                self._pending[number] = name, text

    def find_difference(self, is_complete: bool) -> str | None:
        """Return a message if a note differs from process 0's.

        Args:
            is_complete: whether process 0 has come as far as this process, so that a note that it lacks differs too.
        """
        with self._lock:
            for number, (name, text) in sorted(self._pending.items()):
                found = dict(_get_client().key_value_dir_get(f"caffejax/notes/{number}/"))
                if not found and not is_complete:
                    return None
                first_name, first_text = json.loads(next(iter(found.values()))) if found else ("", "")
                del self._pending[number]
                if (first_name, first_text) != (name, text):
                    first = f"{first_name}: {first_text}" if found else "nothing"
                    return (
                        f"the processes read different data: {first} in process 0, {name}: {text} in process "
                        f"{jax.process_index()}; pass the same data to all processes"
                    )
        return None


_notes = _Notes()


def note(name: str, text: str) -> None:
    """Compare a text with that of process 0, without waiting; all processes must call it in the same order.

    If the texts differ, the job ends within seconds, at the latest at the next `exchange`.
    """
    if jax.process_count() > 1:
        _notes.add(name, text)


_ending = threading.Event()


def _wait_if_ending() -> None:
    """If another thread ends this process, wait for it, because errors from here on only follow from that."""
    if _ending.is_set():
        time.sleep(2 * _FAREWELL_SECONDS)


def _abort(reason: str) -> NoReturn:
    """End this process with exit code 1 at once, and tell the others, which then end too.

    A normal exit would wait for the other processes, which wait for this one.

    Args:
        reason: one line.
    """
    _ending.set()
    teller = threading.Thread(target=_tell_end, args=(reason,), daemon=True)  # the connection may be lost
    teller.start()
    teller.join(_FAREWELL_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(1)


def report_and_abort(*problems: str) -> NoReturn:
    """Print problems, and end all processes with the last as the reason, unless another thread does already."""
    _wait_if_ending()
    for problem in problems:
        print(f"caffejax: [process {jax.process_index()}] {problem}", file=sys.stderr)
    _abort(problems[-1].strip())


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
    """From now on, end this process once another has ended with an error, and all if it does not catch an exception."""
    stopped = threading.Event()
    thread = threading.Thread(target=_watch, args=(stopped,), daemon=True, name="caffejax-watch")
    previous_hook = sys.excepthook

    def end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _wait_if_ending()
        previous_hook(kind, error, trace)
        _abort(_format_reason(error))

    def stop() -> None:
        stopped.set()
        thread.join()

    sys.excepthook = end_all
    atexit.register(stop)
    thread.start()


def _format_reason(error: BaseException) -> str:
    """Return an exception as one line."""
    text = next(iter(str(error).splitlines()), "")
    return text if isinstance(error, CaffejaxError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _watch(stopped: threading.Event) -> None:
    client, process = _get_client(), jax.process_index()
    while not stopped.wait(_WATCH_SECONDS):
        try:
            ended = client.key_value_dir_get("caffejax/end/")
            problem = _notes.find_difference(is_complete=False)
        except (CaffejaxError, jax.errors.JaxRuntimeError):
            return  # JAX reports a lost connection
        if problem:
            report_and_abort(problem)
        if ended:
            first, reason = json.loads(ended[0][1])
            if first != process:
                report_and_abort(f"process {first} has ended: {reason}; {_RESTART}")
