"""A number's place in the model: a value of the graph, or an array known already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Shape = tuple[Any, ...]  # sizes, and of the batch what `jax.export.symbolic_shape` gives


@dataclass(frozen=True, eq=False)
class Value:
    """An array of JAX's, as the model has it.

    It is held as small as broadcasting makes it: along some axes once, where the array repeats itself. Operators that
    broadcast take it as it is; the rest ask `Builder.whole` for all of it.

    Attributes:
        shape: the array's shape.
        dtype: its dtype.
        what: the name of a value in the model, or an array known already, of the held shape.
        held: the shape in which it is held: of as many axes, each as long as in `shape`, or 1.
    """

    shape: Shape
    dtype: np.dtype[Any]
    what: str | np.ndarray
    held: Shape

    @property
    def array(self) -> np.ndarray | None:
        """The array in its held shape, if it is known already."""
        return self.what if isinstance(self.what, np.ndarray) else None

    @property
    def number(self) -> Any:
        """The one number that it holds throughout, if that is known already."""
        return self.what.ravel()[0] if isinstance(self.what, np.ndarray) and self.what.size == 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether it is held in its whole shape."""
        return self.held == self.shape

    def named(self, name: str) -> Value:
        """Return the same under another name."""
        return replace(self, what=name)


def known(array: Any, shape: Shape | None = None) -> Value:
    """Return the value of an array; of a shape that it broadcasts to, if one is given."""
    held = np.asarray(array)
    return Value(held.shape if shape is None else shape, held.dtype, held, held.shape)


def computed(name: str, shape: Sequence[Any], dtype: Any) -> Value:
    """Return the value of that name, held whole."""
    return Value(tuple(shape), np.dtype(dtype), name, tuple(shape))
