"""From batches by number to a source: read ahead in order, by threads or by worker processes, through Grain.

Grain is the data loader of the JAX world; its datasets are random access, and so are all of our batches: what
example n is, and how it is cropped and mirrored, follows from n and the seed alone. So threads and processes may
share the work and the order stays Caffe's; and of several processes that train together, each may read its share of
the batches and no others.
"""

from __future__ import annotations

import logging
import os
import signal
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import jax
import numpy as np

from ..errors import CaffejaxError, DataError
from ..options import Share
from .common import decode_position, encode_position

if TYPE_CHECKING:
    import grain  # imported when reading begins: that takes a third of a second


log = logging.getLogger("caffejax.data")

_ENDLESS = 2**62  # batches; a source wraps round for ever


class Batch(NamedTuple):
    """What a data layer has read.

    Attributes:
        arrays: one for each top.
        warnings: what to tell the user, once: also if several processes, or rounds, say the same.
    """

    arrays: tuple[np.ndarray, ...]
    warnings: tuple[str, ...] = ()


class Batches(Protocol):
    """What a data layer reads: the batch that starts at any example. Several threads may read at once.

    Attributes:
        tops: what the net sees, one for each top.
        batch_size: examples in a batch.
    """

    tops: tuple[jax.ShapeDtypeStruct, ...]
    batch_size: int

    @property
    def threads(self) -> int:
        """How many threads can read faster than one; asked for when reading begins."""
        ...

    @property
    def examples(self) -> int | None:
        """How many examples there are before they come again; None where they are drawn without end."""
        ...

    def read(self, start: int) -> Batch:
        """Read the examples from number `start` on, counted from the start of training, wrapping round."""
        ...

    def close(self) -> None:
        """Let go of files. Reading on opens them again."""
        ...


class Pipeline:
    """A source that reads batches ahead of time.

    Reading starts with the first batch asked for. What goes wrong with a batch is raised where it is taken, each
    time it is. A batch that is not the share's is never read.

    Args:
        batches: what to read.
        depth: how many batches to keep ready, at least 1.
        workers: how many processes read them; 0 reads in threads of this one.
        share: which of them to read.

    Raises:
        DataError: if `depth` is 0.
    """

    def __init__(self, batches: Batches, depth: int, workers: int = 0, share: Share = Share()) -> None:
        import grain  # noqa: F401  before what is to be done at the program's end: its own end comes after that

        if depth < 1:
            raise DataError(f"prefetch is {depth}; at least 1 batch must be kept ready")
        self.tops = batches.tops
        self._batches = batches
        self._depth = depth
        self._workers = workers
        self._share = share
        self._examples = 0  # of the whole, before the next batch
        self._expected = 0  # the number of the next batch, as far as what is read ahead goes
        self._warned: set[str] = set()
        self._ahead: list[grain.DatasetIterator[Batch]] = []  # one, or none
        weakref.finalize(self, _stop_reading_ahead, self._ahead)  # at the program's end before the modules it needs go

    def __iter__(self) -> Pipeline:
        return self

    def __next__(self) -> tuple[np.ndarray, ...]:
        """Return the arrays of the share's next batch, and wait for it if need be.

        Raises:
            DataError: naming the record that cannot be read, or a worker process that has ended.
        """
        while True:
            if (arrays := self.take(self.number)) is not None:
                return arrays

    @property
    def examples(self) -> int | None:
        """How many examples there are before they come again; None where they are drawn without end."""
        return self._batches.examples

    @property
    def number(self) -> int:
        """The number of the next batch: how many whole batches lie before it."""
        return self._examples // self._batches.batch_size

    def take(self, number: int) -> tuple[np.ndarray, ...] | None:
        """Go past the next batch; return its arrays if this number is one of the share's. Raises as `next` does.

        Args:
            number: of the batch. Any will do; but reading ahead has to start anew where numbers do not go up by 1.
        """
        if (number - self._expected) % self._share.of:
            _stop_reading_ahead(self._ahead)
        arrays = self._read(number) if self._share.owns(number) else None
        self._examples += self._batches.batch_size
        self._expected = number + 1
        return arrays

    def _read(self, number: int) -> tuple[np.ndarray, ...]:
        if not self._ahead:
            self._ahead.append(iter(self._dataset(number)))
        try:
            batch: Batch = next(self._ahead[0])
        except BaseException as error:
            _stop_reading_ahead(self._ahead)
            if self._workers and isinstance(error, RuntimeError) and not isinstance(error, CaffejaxError):
                raise DataError(f"a process that reads the data has ended: {error}") from error
            raise
        for warning in batch.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning(warning)
        return batch.arrays

    def get_state(self) -> Mapping[str, int]:
        """Return the position of the next batch of the whole, however much has been read ahead."""
        return encode_position(self._examples)

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go to a position that `get_state` gave. What was read ahead is dropped."""
        examples = decode_position(state)
        _stop_reading_ahead(self._ahead)
        self._examples = examples

    def close(self) -> None:
        """Stop reading ahead and close the files. Reading again goes on where the consumer stood."""
        _stop_reading_ahead(self._ahead)
        self._batches.close()

    def _dataset(self, number: int) -> grain.IterDataset[Batch]:
        import grain
        from grain.experimental import ThreadPrefetchIterDataset

        own = _OwnBatches(self._batches, self._share, number, self._examples)
        batches = grain.MapDataset.source(own)
        if self._workers:
            _mark_grain_flags_parsed()
            # each worker keeps its part ready in a queue, and reads one batch at a time
            part = max(1, self._depth // self._workers)
            options = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=part)
            alone = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
            by_workers = batches.to_iter_dataset(alone).mp_prefetch(options, worker_init_fn=_ignore_sigint)
            # In a thread, for a KeyboardInterrupt within the `__del__` of a shared array would be lost.
            return ThreadPrefetchIterDataset(by_workers.map(_out_of_shared_memory), prefetch_buffer_size=1)
        threads = min(self._batches.threads, self._depth)
        return batches.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=self._depth))


def _mark_grain_flags_parsed() -> None:
    """Mark grain's own flags as parsed: absl gives none before all are. Those of others stay as they are."""
    from absl import flags

    for name in flags.FLAGS:
        if name.startswith("grain_"):
            flags.FLAGS[name].present = True


def _out_of_shared_memory(batch: Batch) -> Batch:
    """Copy what a worker has read, so that the memory shared with it is given back at once."""
    return batch._replace(arrays=tuple(map(np.array, batch.arrays)))


def _stop_reading_ahead(ahead: list[grain.DatasetIterator[Batch]]) -> None:
    while ahead:
        ahead.pop().close()


class _OwnBatches:
    """The batches of a share from number `first` on, which starts at example `start`."""

    def __init__(self, batches: Batches, share: Share, first: int, start: int) -> None:
        self._batches, self._share, self._first, self._start = batches, share, first, start

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, n: int) -> Batch:
        further = self._share.nth(n, self._first) - self._first
        return self._batches.read(self._start + further * self._batches.batch_size)


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ignore_sigint(worker: int, workers: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
