"""Maps of boxes: every place has a field, a box of a given size round it, that deltas move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .regression import Bounds, Normalization

_SMALLEST = 2  # ground truth with a shorter side is taken to have this one


@dataclass(frozen=True)
class Fields:
    """The fields of a map.

    Attributes:
        width, height: of the field of each item of a group; the items of the batch axis go through the group in turn.
        stride: pixels of the image between neighbouring places.
    """

    width: tuple[int, ...]
    height: tuple[int, ...]
    stride: int

    def decoded(self, deltas: jax.Array, norm: Normalization, bounds: Bounds) -> jax.Array:
        """Return normalized deltas (batch, 4, height, width) as left, top, width and height of boxes."""
        deltas = bounds.held(norm.undone(deltas, 1), 1)
        size, centre = self._sizes(deltas), self._centres(deltas)
        sides = size * jnp.exp(deltas[:, 2:])
        return jnp.concatenate([deltas[:, :2] * size + centre - sides / 2, sides], axis=1)

    def encoded(self, boxes: jax.Array, norm: Normalization) -> jax.Array:
        """Return centres, widths and heights (batch, 4, height, width) as normalized deltas."""
        size = self._sizes(boxes)
        sides = jnp.log(jnp.maximum(boxes[:, 2:], _SMALLEST) / size)
        return norm.done(jnp.concatenate([(boxes[:, :2] - self._centres(boxes)) / size, sides], axis=1), 1)

    def _sizes(self, like: jax.Array) -> jax.Array:
        """Return width and height of each item's field, (batch or 1, 2, 1, 1)."""
        sizes = jnp.asarray([self.width, self.height], like.dtype).T  # (group, 2)
        if len(self.width) > 1:
            sizes = sizes[jnp.arange(like.shape[0]) % len(self.width)]
        return sizes[:, :, None, None]

    def _centres(self, like: jax.Array) -> jax.Array:
        """Return the middle of each place in the image, (1, 2, height, width)."""
        height, width = like.shape[2:]
        x, y = ((jnp.arange(n, dtype=like.dtype) + 0.5) * self.stride for n in (width, height))
        return jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]))[None]


def fields(widths: Any, heights: Any, stride: int, stride_name: str = "stride") -> Fields:
    """Return the fields of these sizes.

    Raises:
        LayerError: if they make no sense.
    """
    require(
        len(widths) == len(heights) > 0,
        f"needs field_w and field_h, as many of one as of the other: {len(widths)} and {len(heights)}",
    )
    require(min(*widths, *heights) > 0, f"fields must have sides: field_w {list(widths)}, field_h {list(heights)}")
    require(stride > 0, f"{stride_name} must be above 0, not {stride}")
    return Fields(tuple(widths), tuple(heights), stride)
