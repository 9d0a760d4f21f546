"""Prefetching of batches in order, by threads or worker processes, with Grain.

Batches have random access: example n, its crop and its mirroring depend on n and the seed alone. Threads and processes
can therefore divide the work and keep Caffe's order, and each of several training processes reads only the batches of
its shard.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import jax
import numpy as np

from ...base.config import DataShard
from ...base.errors import CaffejaxError, DataError
from ..layers.position_values import decode_count

if TYPE_CHECKING:
    import grain  # imported when reading begins, as it takes a third of a second


log = logging.getLogger("caffejax.data")

_NUM_BATCHES = 2**62  # batches
_PARENT_CHECK_INTERVAL = 2.0  # seconds


class Batch(NamedTuple):
    """One batch of a data layer.

    Attributes:
        arrays: one for each top.
        warnings: messages for the user. Each is logged once, even if several processes or epochs repeat it.
    """

    arrays: tuple[np.ndarray, ...]
    warnings: tuple[str, ...] = ()


class Batches(Protocol):
    """The batches of a data layer, with random access. Several threads may read at once.

    Attributes:
        tops: shape and dtype of each top in the net.
        batch_size: the number of examples in a batch.
    """

    tops: tuple[jax.ShapeDtypeStruct, ...]
    batch_size: int

    @property
    def num_threads(self) -> int:
        """The number of threads to read with, or 0 to read batches on request. Evaluated when reading begins."""

    @property
    def num_examples(self) -> int | None:
        """The number of examples in an epoch, or None if examples are sampled at random without end."""

    def read(self, start: int) -> Batch:
        """Read the batch that begins at example `start`, counted from the start of training."""

    def checksum(self) -> int:
        """Return a checksum of a few examples, by which other data are recognized, or 0."""

    def close(self) -> None:
        """Close the files. The next read opens them again."""


class Pipeline(Iterator[tuple[np.ndarray, ...]]):
    """A source that prefetches batches.

    Reading starts with the first request for a batch. If a batch cannot be read, each request for it raises the error.
    Batches of other shards are not read.

    Args:
        batches: the batches to read.
        depth: the number of batches to keep ready, at least 1.
        workers: the number of worker processes, or 0 to read in threads of this process.
        shard: the shard to read.

    Raises:
        DataError: if `depth` is 0.
    """

    def __init__(self, batches: Batches, depth: int, workers: int = 0, shard: DataShard = DataShard()) -> None:
        import grain  # noqa: F401  before the finalizer below, which must run before Grain's

        if depth < 1:
            raise DataError(f"prefetch must be 1 batch or more, not {depth}")
        self.tops, self.batch_size = batches.tops, batches.batch_size
        self._batches = batches
        self._depth = depth
        self._workers = workers
        self._shard = shard
        self._position = 0  # the number of examples before the next batch
        self._prefetch_index = 0  # the number of the batch that is prefetched next
        self._logged_warnings: set[str] = set()
        self._iterators: list[grain.DatasetIterator[Batch]] = []  # at most one; the finalizer needs a list to empty
        weakref.finalize(self, _stop_prefetching, self._iterators)  # at exit, while Grain's modules still exist

    def __next__(self) -> tuple[np.ndarray, ...]:
        """Wait until the shard's next batch has been read, and return its arrays.

        Raises:
            DataError: if a record cannot be read (the message names it), or a worker process has ended.
        """
        while True:
            if (arrays := self.take(self.next_index)) is not None:
                return arrays

    @property
    def num_examples(self) -> int | None:
        """The number of examples in an epoch, or None if examples are sampled at random without end."""
        return self._batches.num_examples

    @property
    def num_threads(self) -> int:
        """The number of threads that each read a batch if there are no workers, or 0 to read batches on request."""
        return min(self._batches.num_threads, self._depth)

    def checksum(self) -> int:
        """Return a checksum of a few examples, by which other data are recognized, or 0."""
        return self._batches.checksum()

    @property
    def next_index(self) -> int:
        """The number of the next batch, counted over all shards from the start of training."""
        return self._position // self.batch_size

    def take(self, batch_index: int) -> tuple[np.ndarray, ...] | None:
        """Advance by one batch. Return its arrays if its number belongs to the shard, otherwise None.

        Args:
            batch_index: the number of the batch. If it does not follow the previous number, prefetching starts again.

        Raises:
            DataError: if a record cannot be read (the message names it), or a worker process has ended.
        """
        if (batch_index - self._prefetch_index) % self._shard.total:
            _stop_prefetching(self._iterators)
        arrays = self._read(batch_index) if self._shard.owns(batch_index) else None
        self._position += self.batch_size
        self._prefetch_index = batch_index + 1
        return arrays

    def _read(self, batch_index: int) -> tuple[np.ndarray, ...]:
        if not self._iterators:
            self._iterators.append(iter(self._make_dataset(batch_index)))
        try:
            batch: Batch = next(self._iterators[0])
        except BaseException as error:
            _stop_prefetching(self._iterators)
            if self._workers and isinstance(error, RuntimeError) and not isinstance(error, CaffejaxError):
                raise DataError(f"a process that reads the data has ended: {error}") from error
            raise
        for warning in batch.warnings:
            if warning not in self._logged_warnings:
                self._logged_warnings.add(warning)
                log.warning(warning)
        return batch.arrays

    def get_state(self) -> Mapping[str, int]:
        """Return the position of the next batch, counted over all shards. It does not depend on prefetching."""
        return {"examples": self._position}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Restore a position that `get_state` returned, and discard prefetched batches."""
        position = decode_count(state, "examples")
        _stop_prefetching(self._iterators)
        self._position = position

    def close(self) -> None:
        """Stop prefetching and close the files. The next request continues at the same position."""
        _stop_prefetching(self._iterators)
        self._batches.close()

    def _make_dataset(self, batch_index: int) -> grain.IterDataset[Batch]:
        import grain
        from grain.experimental import ThreadPrefetchIterDataset

        batches = grain.MapDataset.source(_ShardBatches(self._batches, self._shard, batch_index, self._position))
        if self._workers:
            _mark_grain_flags_parsed()
            _start_resource_tracker()
            # each worker reads one batch at a time, and keeps a part of the batches in a queue
            buffer_size = max(1, self._depth // self._workers)
            options = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=buffer_size)
            read_options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
            worker_batches = batches.to_iter_dataset(read_options).mp_prefetch(
                options, worker_init_fn=_initialize_worker
            )
            # In a thread, because a KeyboardInterrupt in the `__del__` of a shared array would be lost.
            return ThreadPrefetchIterDataset(worker_batches.map(_copy_from_shared_memory), prefetch_buffer_size=1)
        buffer_size = self._depth if self.num_threads else 0
        return batches.to_iter_dataset(
            grain.ReadOptions(num_threads=self.num_threads, prefetch_buffer_size=buffer_size)
        )


def _mark_grain_flags_parsed() -> None:
    """Mark Grain's flags as parsed; otherwise absl refuses to read them. Other flags are not changed."""
    from absl import flags

    for name in flags.FLAGS:
        if name.startswith("grain_"):
            flags.FLAGS[name].present = True


def _copy_from_shared_memory(batch: Batch) -> Batch:
    """Copy a worker's batch out of shared memory, so that the shared memory is released at once."""
    return batch._replace(arrays=tuple(map(np.array, batch.arrays)))


def _stop_prefetching(iterators: list[grain.DatasetIterator[Batch]]) -> None:
    while iterators:
        iterators.pop().close()


class _ShardBatches:
    """The batches of a shard, from a batch and its first example on, as a random-access source for Grain."""

    def __init__(self, batches: Batches, shard: DataShard, first_batch: int, first_example: int) -> None:
        self._batches, self._shard, self._first_batch, self._first_example = batches, shard, first_batch, first_example

    def __len__(self) -> int:
        return _NUM_BATCHES

    def __getitem__(self, n: int) -> Batch:
        offset = self._shard.nth(n, self._first_batch) - self._first_batch
        return self._batches.read(self._first_example + offset * self._batches.batch_size)


def _start_resource_tracker() -> None:
    """Start Python's process that removes shared memory when this process and its workers have ended.

    It would print a warning if a process was killed, although that has its own message. Processes inherit the filters
    of warnings on the command line.
    """
    if os.name != "posix":  # shared memory then ends with the processes
        return
    from multiprocessing import resource_tracker  # not needed without worker processes

    options = sys.warnoptions[:]
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions[:] = options


def _initialize_worker(worker_index: int, num_workers: int) -> None:
    """Make this process ignore interrupts, which its parent handles, and end when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent process has ended, which it cannot tell if it is killed, and end this process."""
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    assert parent is not None
    # a process that the parent has forked may keep the sentinel open
    while os.getppid() == parent.pid and not wait([parent.sentinel], _PARENT_CHECK_INTERVAL):
        pass
    os._exit(1)
