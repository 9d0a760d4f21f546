"""What a data layer reads from, as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

Tops = tuple[jax.ShapeDtypeStruct, ...]


class Position(Protocol):
    """A place in some data, which can be kept and restored."""

    def get_state(self) -> Any:
        """Return the place of the next unread example, as plain values."""
        ...

    def set_state(self, state: Any) -> None:
        """Go to a place that `get_state` gave."""
        ...


class Source(Position, Protocol):
    """What feeds a data layer: batches in order, from a position that can be kept and restored."""

    @property
    def tops(self) -> Tops:
        """Shape and dtype of each top."""
        ...

    def __next__(self) -> tuple[np.ndarray, ...]:
        """Return the next batch, one array per top. A source never ends: it wraps round as Caffe's do.

        Where the look at it gave a `finish`, that makes the tops of them."""
        ...

    def close(self) -> None:
        """Let go of files and workers."""
        ...


@runtime_checkable
class SharedSource(Source, Protocol):
    """A source of which each of several processes may read its share, `Reading.share`, and no more.

    `next` gives the share's next batch. The position is of the whole data, the same whatever the share. Any other
    source is read whole by every process, and the loader drops what is not the share's.
    """

    @property
    def number(self) -> int:
        """The number of the next batch of the whole, as its position tells."""
        ...

    def take(self, number: int) -> tuple[np.ndarray, ...] | None:
        """Go past the next batch of the whole; return it if this number is one of the share's.

        The number is the batch's own, or what it counts as beside other sources' batches. Numbers go up by 1."""
        ...


class Look(NamedTuple):
    """What a look at a source shows.

    Attributes:
        tops: shape and dtype of each top.
        finish: `finish(*arrays) -> tops`, traced: what is left to do with the source's arrays on the device, if
            anything.
        given: shape and dtype of those arrays, where they are not the tops'.
    """

    tops: Tops
    finish: Callable[..., tuple[jax.Array, ...]] | None = None
    given: Tops | None = None
