"""What a solver says while it works: Caffe's own log lines, so that scripts which parse them go on working."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import jax
import numpy as np

log = logging.getLogger("caffejax.solver")

_READ_BEHIND = 200  # iterations, after which the device has long finished


class Display(NamedTuple):
    """What a solver displays.

    Attributes:
        iteration: the number of the iteration whose outputs these are.
        loss: the mean over the last `average_loss` iterations.
        rate: its learning rate.
        outputs: the train net's; empty after the last iteration, where Caffe states the loss only.
        pace: how fast training went since the last display; None likewise.
    """

    iteration: int
    loss: float
    rate: float
    outputs: Mapping[str, np.ndarray]
    pace: Pace | None


class SmoothedLoss:
    """The running mean of the last `window` losses, as Caffe computes it.

    Losses are read from the device when they are asked for, or so late that reading them does not wait.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._unread: list[jax.Array] = []
        self._losses: list[float] = []
        self._oldest = 0
        self._mean = 0.0

    def note(self, losses: jax.Array) -> None:
        """Take in the loss of an iteration, or those of several."""
        self._unread.append(losses)
        if len(self._unread) > _READ_BEHIND:
            self._read(1)

    @property
    def noted(self) -> bool:
        """Whether there was a loss."""
        return bool(self._unread or self._losses)

    @property
    def value(self) -> float:
        """The mean, up to the last iteration; 0 before the first."""
        self._read(len(self._unread))
        return self._mean

    def _read(self, n: int) -> None:
        for _ in range(n):
            for loss in np.ravel(self._unread.pop(0)).tolist():
                self._add(loss)

    def _add(self, loss: float) -> None:
        n = len(self._losses)
        if n < self._window:
            self._losses.append(loss)
            self._mean = (self._mean * n + loss) / (n + 1)
        else:
            self._mean += (loss - self._losses[self._oldest]) / self._window
            self._losses[self._oldest] = loss
            self._oldest = (self._oldest + 1) % self._window


def score_lines(outputs: Mapping[str, np.ndarray], loss_weights: Mapping[str, float] | None = None) -> Iterator[str]:
    """Yield `name = value` for each number of each output blob, with its share of the loss where it has one."""
    for name, values in outputs.items():
        weight = (loss_weights or {}).get(name, 0)
        for value in np.ravel(values):
            share = f" (* {weight:g} = {weight * value:g} loss)" if weight else ""
            yield f"{name} = {value:g}{share}"


def output_lines(prefix: str, outputs: Mapping[str, np.ndarray], loss_weights: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of the train net's or a test net's outputs."""
    for index, line in enumerate(score_lines(outputs, loss_weights)):
        yield f"    {prefix} net output #{index}: {line}"


def display_lines(display: Display, interval: int, loss_weights: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of what is displayed every `interval` iterations, and of the last loss."""
    if display.pace is None:
        yield f"Iteration {display.iteration}, loss = {display.loss:g}"
        return
    speed = f"{display.pace.iterations_per_second:g} iter/s, {display.pace.seconds:g}s/{interval} iters"
    yield f"Iteration {display.iteration} ({speed}), loss = {display.loss:g}"
    yield from output_lines("Train", display.outputs, loss_weights)
    yield f"Iteration {display.iteration}, lr = {display.rate:g}"


def precision_lines(precisions: Mapping[str, Mapping[int, float]]) -> Iterator[str]:
    """Yield a line for each class of each output, as the SSD fork does."""
    for by_class in precisions.values():
        for label, value in by_class.items():
            yield f"class{label}: {value:g}"


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
