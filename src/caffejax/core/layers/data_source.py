"""Interfaces of the data sources that data layers read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax import Array

TopSpecs = tuple[jax.ShapeDtypeStruct, ...]


class Position(Protocol):
    """A position in a data set that can be saved and restored."""

    def get_state(self) -> Any:
        """Return the position of the next unread example, as plain values."""

    def set_state(self, state: Any) -> None:
        """Move to a position that `get_state` returned."""


class Source(Position, Protocol):
    """An iterator over the batches of a data layer, whose position can be saved and restored."""

    @property
    def tops(self) -> TopSpecs:
        """The shape and dtype of each top."""

    def __next__(self) -> tuple[np.ndarray, ...]:
        """Return the next batch, an array for each top. After the last example the data start again, as in Caffe.

        If `SourceSpec.device_transform` is set, it computes the tops from these arrays."""

    def close(self) -> None:
        """Close files and stop workers."""


@runtime_checkable
class ShardedSource(Source, Protocol):
    """A source that can restrict its reading to the shard of one process, `NetConfig.shard`.

    `next` returns the next batch of the shard. The position refers to the data of all processes, regardless of the
    shard. A source without these methods is read completely by every process, and the loader drops the batches of other
    shards.
    """

    @property
    def next_index(self) -> int:
        """The index of the next batch in the data of all processes, according to the position."""

    def take(self, batch_index: int) -> tuple[np.ndarray, ...] | None:
        """Advance by one batch; return the batch if it belongs to the shard that this process reads, else None.

        `batch_index` is the index of the batch in this source, or its index among the batches of several sources. It
        increases by 1 with each call.
        """


class SourceSpec(NamedTuple):
    """The tops and arrays of a source, found by inspecting it when the graph is built.

    Attributes:
        tops: the shape and dtype of each top.
        device_transform: a traced function `device_transform(*arrays) -> tops` that computes the tops from the source's
            arrays on the device, or None if the arrays are the tops.
        arrays: the shape and dtype of each of the source's arrays, or None if they equal `tops`.
        padded_tops: the indices of the tops that end with padding, because their number of rows differs between
            batches; see `layers.row_padding`.
    """

    tops: TopSpecs
    device_transform: Callable[..., tuple[Array, ...]] | None = None
    arrays: TopSpecs | None = None
    padded_tops: tuple[int, ...] = ()
