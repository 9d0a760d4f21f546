"""Reading ahead: a thread keeps batches ready while the net computes."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import DataError
from ..layers.context import Source

Batch = tuple[np.ndarray, ...]


@dataclass
class _Run:
    """What the consumer and one reading thread share. An exception stands last and stays there."""

    depth: int
    ready: deque[tuple[Batch, Mapping[str, int]] | BaseException] = field(default_factory=deque)
    stopped: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


def _read_ahead(source: Source, run: _Run) -> None:
    while True:
        with run.changed:
            run.changed.wait_for(lambda: run.stopped or len(run.ready) < run.depth)
            if run.stopped:
                return
        item: tuple[Batch, Mapping[str, int]] | BaseException
        try:
            item = next(source), source.get_state()
        except BaseException as error:
            item = error
        with run.changed:
            run.ready.append(item)
            run.changed.notify_all()
        if isinstance(item, BaseException):
            return


class Prefetcher:
    """A source that reads another one ahead of time.

    The thread starts with the first batch asked for. What goes wrong in it is raised where that batch is
    taken. Nothing keeps the interpreter from ending: the thread is told to stop when the prefetcher is
    closed, dropped, or the program ends.

    Args:
        source: what to read; from now on only through the prefetcher.
        depth: how many batches to keep ready, at least 1.
        patience: for how many seconds `close` waits for a batch that is being read.
    """

    def __init__(self, source: Source, depth: int, patience: float = 1.0) -> None:
        if depth < 1:
            raise DataError(f"prefetch is {depth}; at least 1 batch must be kept ready")
        self.tops = source.tops
        self._source = source
        self._depth = depth
        self._patience = patience
        self._state = source.get_state()
        self._thread: threading.Thread | None = None
        self._run = _Run(depth)

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Batch:
        """The next batch; waits for it if need be."""
        if self._thread is None:
            self._start()
        run = self._run
        with run.changed:
            run.changed.wait_for(lambda: run.ready or run.stopped)
            if run.stopped:
                raise DataError("the data source was closed while a batch was awaited")
            item = run.ready[0]
            if isinstance(item, BaseException):
                raise item
            run.ready.popleft()
            run.changed.notify_all()
        batch, self._state = item
        return batch

    def get_state(self) -> Mapping[str, int]:
        """The position of the batch that `next` gives next, however far the thread has read."""
        return self._state

    def set_state(self, state: Mapping[str, int]) -> None:
        """Goes to a position that `get_state` gave; what was read ahead is dropped."""
        self._stop(None)
        self._source.set_state(state)
        self._state = self._source.get_state()

    def close(self) -> None:
        """Ends the thread and closes the source. Reading again goes on where the consumer stood."""
        if self._stop(self._patience):
            self._source.set_state(self._state)
            self._source.close()

    def _start(self) -> None:
        self._run = _Run(self._depth)
        # The thread knows the run and the source, not the prefetcher, so that dropping this one ends it.
        # A daemon, because the interpreter waits for others before it calls the finalizer.
        self._thread = threading.Thread(
            target=_read_ahead, args=(self._source, self._run), name="caffejax-prefetch", daemon=True
        )
        self._finalizer = weakref.finalize(self, _end, self._run, self._thread, self._patience)
        self._thread.start()

    def _stop(self, patience: float | None) -> bool:
        """Whether the thread has ended, so that the source is ours."""
        if self._thread is None:
            return True
        self._finalizer.detach()
        if not _end(self._run, self._thread, patience):
            return False
        self._thread = None
        return True


def _end(run: _Run, thread: threading.Thread, patience: float | None) -> bool:
    run.stop()
    if thread is not threading.current_thread():  # the garbage collector may run in any thread
        thread.join(patience)
    return not thread.is_alive()
