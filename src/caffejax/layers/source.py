"""What a data layer reads from, as the rest of the house sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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
