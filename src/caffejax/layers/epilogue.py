"""A layer that may be fused with the one before it, as that one sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .context import Context


@dataclass(frozen=True)
class Epilogue:
    """A layer that works in place on the top of the one before it.

    Attributes:
        ctx: its context.
        blobs: its blobs, or what has their shapes.
    """

    ctx: Context
    blobs: tuple[Any, ...]

    def is_by_channel(self, axis: int, channels: int) -> bool:
        """Return whether it is no more than a factor and a bias for each channel."""
        known = self.ctx.type.traits.by_channel
        return known is not None and known.applies(self.ctx, [tuple(b.shape) for b in self.blobs], axis, channels)

    def factor_and_bias(self) -> tuple[Any, Any]:
        """Return these, (channels,) each, of a layer that is no more."""
        known = self.ctx.type.traits.by_channel
        assert known is not None
        found: tuple[Any, Any] = known.factor_and_bias(self.ctx, self.blobs)
        return found

    @property
    def is_relu(self) -> bool:
        """Whether it is max(x, 0) and no more."""
        known = self.ctx.type.traits.is_relu
        return known is not None and known(self.ctx)
