"""How layer types are put into programs, by Caffe's type name: those that oneDNN computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...layers import Context
from ..program import Value, Writer

Tops = Value | Sequence[Value] | None
Lowering = Callable[["Call"], Tops]


@dataclass(frozen=True)
class Call:
    """A layer to be put into a program.

    Attributes:
        writer: the program.
        context: what the layer computes with.
        blobs: its params and state.
        bottoms: its bottoms.
        shapes: its tops' shapes.
    """

    writer: Writer
    context: Context
    blobs: Sequence[Any]
    bottoms: Sequence[Value]
    shapes: Sequence[tuple[int, ...]]

    @property
    def out(self) -> tuple[int, ...]:
        """The first top's shape."""
        return self.shapes[0]

    @property
    def param(self) -> Any:
        """The type's own parameter message."""
        return self.context.param

    @property
    def x(self) -> Value:
        """The first bottom."""
        return self.bottoms[0]

    @property
    def like(self) -> jax.ShapeDtypeStruct:
        """What has the first bottom's shape and dtype."""
        return jax.ShapeDtypeStruct(self.x.shape, np.float32)

    def weight(self, i: int) -> int:
        """Put one of its blobs into the program; return the weight's number."""
        return self.writer.weight(self.blobs[i])


LOWERINGS: dict[str, Lowering] = {}


def lowers(*types: str) -> Callable[[Lowering], Lowering]:
    """Register what puts layers of some types into a program; it gives None where it cannot."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(types, lowering))
        return lowering

    return register
