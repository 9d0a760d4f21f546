"""How fast training goes, and how much of the time it waits for data: measured here, whoever shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import jax

_SLOW = 1e-3  # seconds; a read that takes longer can delay training


class Pace(NamedTuple):
    """How fast training went for a while; tests and snapshots in between count as time, as in Caffe.

    Attributes:
        seconds: how long it was.
        iterations_per_second: updates.
        images_per_second: examples, those of all devices.
        waiting: the share of the time, 0 to 1, in which devices waited for data.
    """

    seconds: float
    iterations_per_second: float
    images_per_second: float
    waiting: float


class Stopwatch:
    """The pace since the last lap.

    Args:
        iteration: how many updates there have been.
        batch_size: examples in each.
        waited: gives the seconds for which devices have waited for data so far.
    """

    def __init__(self, iteration: int, batch_size: int, waited: Callable[[], float]) -> None:
        self._batch_size, self._waited = batch_size, waited
        self._iteration, self._time, self._wait = iteration, time.perf_counter(), waited()

    @property
    def seconds(self) -> float:
        """The seconds since the last lap."""
        return time.perf_counter() - self._time

    def lap(self, iteration: int) -> Pace:
        """Return the pace since the last call."""
        seconds, wait = self.seconds, self._waited()
        done, waited = iteration - self._iteration, wait - self._wait
        self._iteration, self._time, self._wait = iteration, self._time + seconds, wait
        if not seconds:
            return Pace(0.0, 0.0, 0.0, 0.0)
        speed = done / seconds
        return Pace(seconds, speed, speed * self._batch_size, min(1.0, waited / seconds))


class DataWait:
    """The time that a device stood idle because its batches were still being read.

    The host runs ahead of an accelerator, so a read that takes long need not delay anything: it counts from when the
    device had nothing more to do. When that was is looked at where reads are slow; of quick ones half is counted.

    Attributes:
        seconds: the time so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: jax.Array | None = None
        self._slow = False
        self._watcher: ThreadPoolExecutor | None = None

    def note(self, result: jax.Array) -> None:
        """Take in an array that is ready when all that was started is."""
        self._last = result

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count the time inside as a read; never wait for the device."""
        idle, began = self._idle(), time.perf_counter()
        ready_at = self._watched() if self._slow and not idle else None
        yield
        ended = time.perf_counter()
        took = ended - began
        self._slow = took > _SLOW
        if idle:
            self.seconds += took
        elif self._idle():
            self.seconds += took / 2 if ready_at is None else max(0.0, ended - ready_at.result())

    def _idle(self) -> bool:
        return self._last is None or self._last.is_ready()  # type: ignore[attr-defined]

    def _watched(self) -> Future[float]:
        """Return when the last result is ready, as another thread sees it."""
        if self._watcher is None:
            self._watcher = ThreadPoolExecutor(1, thread_name_prefix="caffejax-data-wait")
        return self._watcher.submit(_when_ready, self._last)


def _when_ready(result: jax.Array | None) -> float:
    with suppress(Exception):  # what failed on the device is reported by whoever reads it
        jax.block_until_ready(result)
    return time.perf_counter()
