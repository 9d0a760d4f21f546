"""Progress of training: the smoothed loss, the speed, and log lines in Caffe's format, which scripts can parse."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

log = logging.getLogger("caffejax.solver")

_MAX_UNREAD = 200  # the number of newest losses that stay unread; older ones are complete, so reading does not wait


Precisions = dict[int, float]
"""A score of each class, such as its average precision."""


class Scores(NamedTuple):
    """The scores of a test.

    Attributes:
        loss: the mean of the total loss over the batches.
        outputs: for each output blob, its mean over the batches, in the blob's shape. For detections, it is the mean
            average precision, and for segmentations the mean IoU of the classes, a scalar.
        precisions: for detections, the average precision of each class, `{output: {class: precision}}`. It is empty for
            other outputs.
        ious: for segmentations, the mean intersection over union (IoU) of each class, likewise.
    """

    loss: float
    outputs: dict[str, np.ndarray]
    precisions: Mapping[str, Precisions] = MappingProxyType({})
    ious: Mapping[str, Precisions] = MappingProxyType({})


class Display(NamedTuple):
    """The values that a solver displays every `display` iterations.

    Attributes:
        iteration: the number of the iteration, from 0.
        loss: the mean loss of the last `average_loss` iterations.
        rate: the learning rate of the iteration, or NaN with the option `optimizer`.
        outputs: the output blobs of the train net by name. After the last iteration it is empty, because Caffe then
            displays only the loss.
        pace: the speed of training since the last display, or None after the last iteration.
    """

    iteration: int
    loss: float
    rate: float
    outputs: Mapping[str, np.ndarray]
    pace: Pace | None


class SmoothedLoss:
    """The running mean of the last `window` losses, computed as in Caffe.

    A loss is read from the device when `value` is accessed, or after 200 newer losses, so that `record_losses` never
    waits for the device.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._unread: list[jax.Array] = []
        self._losses: deque[float] = deque()
        self._mean = 0.0

    def record_losses(self, losses: jax.Array) -> None:
        """Add the loss of an iteration as a scalar, or the losses of consecutive iterations as an (n,) array."""
        self._unread.append(losses)
        if len(self._unread) > _MAX_UNREAD:
            self._read(1)

    @property
    def has_losses(self) -> bool:
        """True if `record_losses` has been called."""
        return bool(self._unread or self._losses)

    @property
    def value(self) -> float:
        """The mean of the last `window` losses, or 0 before the first iteration."""
        self._read(len(self._unread))
        return self._mean

    def _read(self, n: int) -> None:
        for _ in range(n):
            for loss in np.ravel(self._unread.pop(0)).tolist():
                n = len(self._losses)
                if n < self._window:
                    self._mean = (self._mean * n + loss) / (n + 1)
                else:  # not a new sum, whose last digits differ
                    self._mean += (loss - self._losses.popleft()) / self._window
                self._losses.append(loss)


class ClippingLog:
    """Writes Caffe's line for each iteration whose gradients are clipped.

    The norms are read from the device when they are ready, so that `write` waits only where it is told to.

    Args:
        limit: the solver's setting `clip_gradients`.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._unread: list[Any] = []

    def record_norms(self, norms: jax.Array | np.ndarray) -> None:
        """Add the norm of an iteration as a scalar, or the norms of consecutive iterations as an (n,) array."""
        self._unread.append(norms)

    def write(self, wait: bool) -> None:
        """Write the lines of all iterations, or, if `wait` is false, of those whose norms are ready."""
        while self._unread and (wait or self._unread[0].is_ready()):
            for norm in np.ravel(self._unread.pop(0)).tolist():
                if norm > self._limit:
                    log.info(
                        "Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g",
                        *(norm, self._limit, self._limit / norm),
                    )


def format_score_lines(
    outputs: Mapping[str, np.ndarray], loss_weights: Mapping[str, float] | None = None
) -> Iterator[str]:
    """Yield "name = value" for each element of each output blob. For loss blobs, the weighted loss is appended."""
    for name, values in outputs.items():
        weight = (loss_weights or {}).get(name, 0)
        for value in np.ravel(values):
            loss = f" (* {weight:g} = {weight * value:g} loss)" if weight else ""
            yield f"{name} = {value:g}{loss}"


def format_output_lines(
    prefix: str, outputs: Mapping[str, np.ndarray], loss_weights: Mapping[str, float]
) -> Iterator[str]:
    """Yield Caffe's log lines for the outputs of a net; `prefix` is "Train" or "Test"."""
    for index, line in enumerate(format_score_lines(outputs, loss_weights)):
        yield f"    {prefix} net output #{index}: {line}"


def format_display_lines(
    display: Display, interval: int, loss_weights: Mapping[str, float], logs_rate: bool = True
) -> Iterator[str]:
    """Yield Caffe's log lines for a display; `interval` is the number of iterations between displays.

    If the display has no pace, only the loss is logged. `logs_rate` is whether there is a line for the learning rate.
    """
    if display.pace is None:
        yield f"Iteration {display.iteration}, loss = {display.loss:g}"
        return
    speed = f"{display.pace.iterations_per_second:g} iter/s, {display.pace.seconds:g}s/{interval} iters"
    yield f"Iteration {display.iteration} ({speed}), loss = {display.loss:g}"
    yield from format_output_lines("Train", display.outputs, loss_weights)
    if logs_rate:
        yield f"Iteration {display.iteration}, lr = {display.rate:g}"


def format_class_lines(scores: Scores, shows_precisions: bool) -> Iterator[str]:
    """Yield the log lines of MobileNet-YOLO for the IoU of classes, and, if wanted, of SSD for their precision."""
    for class_ious in scores.ious.values():
        yield from (f"Seg Classes {label} IOU : {value:g}" for label, value in class_ious.items())
        yield f"Seg mIOU : {np.mean(list(class_ious.values())):g}"
    for class_precisions in scores.precisions.values() if shows_precisions else ():
        yield from (f"class{label}: {value:g}" for label, value in class_precisions.items())


_SLOW_READ_SECONDS = 1e-3  # a read that takes longer can delay training


class Pace(NamedTuple):
    """The speed of training in a period. As in Caffe, the time of tests and snapshots is included.

    Attributes:
        seconds: the length of the period, in seconds.
        iterations_per_second: updates per second.
        images_per_second: examples per second, on all devices together.
        waiting: the fraction of the time, from 0 to 1, in which devices waited for data.
    """

    seconds: float
    iterations_per_second: float
    images_per_second: float
    waiting: float


class Stopwatch:
    """Measures the speed of training since the last lap.

    Args:
        iteration: the number of updates so far.
        batch_size: the number of examples per update.
        waited: a function that returns the total time for which devices have waited for data, in seconds.
    """

    def __init__(self, iteration: int, batch_size: int, total_wait: Callable[[], float]) -> None:
        self._batch_size, self._total_wait = batch_size, total_wait
        self._iteration, self._time, self._wait = iteration, time.perf_counter(), total_wait()
        self._stopped_at = self._time

    @property
    def seconds(self) -> float:
        """The time since the last lap, in seconds."""
        return time.perf_counter() - self._time

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context manager for a period of training; the time between two such periods does not count."""
        self._time += time.perf_counter() - self._stopped_at
        try:
            yield
        finally:
            self._stopped_at = time.perf_counter()

    def lap(self, iteration: int) -> Pace:
        """Return the speed since the last lap, and start a new lap.

        Args:
            iteration: the number of updates so far.
        """
        seconds, wait = self.seconds, self._total_wait()
        n_iterations, lap_wait = iteration - self._iteration, wait - self._wait
        self._iteration, self._time, self._wait = iteration, self._time + seconds, wait
        if not seconds:
            return Pace(0.0, 0.0, 0.0, 0.0)
        speed = n_iterations / seconds
        return Pace(seconds, speed, speed * self._batch_size, min(1.0, lap_wait / seconds))


class DataWait:
    """Measures the time in which a device was idle because its batches were still being read.

    The host runs ahead of an accelerator, so a slow read does not always delay training. Only the part of a read after
    the device became idle is counted. If the previous read took over 1 ms, a thread records when the device becomes
    idle. Otherwise, half of the read's time is counted if the device becomes idle during the read.

    Attributes:
        seconds: the total idle time, in seconds.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last_result: jax.Array | None = None
        self._is_slow = False
        self._watcher_pool: ThreadPoolExecutor | None = None

    def record_result(self, result: jax.Array) -> None:
        """Store a result of the last step that was sent to the device. The device is idle when this result is ready."""
        self._last_result = result

    @contextmanager
    def measure_read(self) -> Iterator[None]:
        """Return a context manager that measures the `with` block as a read of batches."""
        was_idle, start = self._is_idle(), time.perf_counter()
        ready_at = self._watch_result() if self._is_slow and not was_idle else None
        yield
        end = time.perf_counter()
        duration = end - start
        self._is_slow = duration > _SLOW_READ_SECONDS
        if was_idle:
            self.seconds += duration
        elif self._is_idle():
            self.seconds += duration / 2 if ready_at is None else max(0.0, end - ready_at.result())

    def _is_idle(self) -> bool:
        return self._last_result is None or self._last_result.is_ready()  # type: ignore[attr-defined]

    def _watch_result(self) -> Future[float]:
        if self._watcher_pool is None:
            self._watcher_pool = ThreadPoolExecutor(1, thread_name_prefix="caffejax-data-wait")
        return self._watcher_pool.submit(_wait_until_ready, self._last_result)


def _wait_until_ready(result: jax.Array | None) -> float:
    with suppress(Exception):  # errors of the device are raised when results are read
        jax.block_until_ready(result)
    return time.perf_counter()


_WAITING = 0.1  # the fraction of the time from which on the warning comes
_MIN_WAIT = 1e-3  # seconds per iteration; shorter reads are those of nets that are too small to keep a device busy
_MIN_ITERATIONS, _MIN_SECONDS = 50, 20.0  # of a period that is measured


class SlowDataWarning:
    """Warns once if devices wait for data for a tenth of the time or more, over at least 50 iterations and 20 seconds.

    Args:
        workers: the number of processes that read the data, 0 for threads.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._is_logged = workers, False
        self._start: tuple[int, float, float] | None = None

    def check(self, iteration: int, wait_seconds: float) -> None:
        """Look at the time after an iteration. Compilation, before the first call, does not count.

        Args:
            iteration: the number of updates so far.
            wait_seconds: the total time for which devices have waited for data.
        """
        if self._is_logged:
            return
        now = iteration, time.perf_counter(), wait_seconds
        if self._start is None or iteration < self._start[0]:
            self._start = now
        iterations, seconds, wait = (end - start for end, start in zip(now, self._start, strict=True))
        if iterations < _MIN_ITERATIONS or seconds < _MIN_SECONDS:
            return
        self._start = now
        if wait >= max(_WAITING * seconds, _MIN_WAIT * iterations):
            self._is_logged = True
            more = "processes" if self._workers == 0 else f"processes than {self._workers}"
            log.warning(
                "Devices waited for data for %.0f %% of the last %d iterations: read it in %s (--workers, as many as "
                "there are cores), or store images in the size that the net reads (caffejax convert_imageset "
                "--resize_width, --resize_height)",
                *(100 * wait / seconds, iterations, f"more {more}" if self._workers else more),
            )
