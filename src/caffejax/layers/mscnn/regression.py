"""Box regression: what bbox_reg_param says of deltas, and boxes that deltas move."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...errors import require
from ..context import Context

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Normalization:
    """Deltas (x, y, w, h) are kept less their means, over their deviations.

    Attributes:
        mean, std: four each.
    """

    mean: Floats
    std: Floats

    def undone(self, deltas: Any, axis: int = -1, xp: Any = jnp) -> Any:
        """Return normalized deltas, four along the axis, as they are used."""
        mean, std = (_along(v, deltas, axis, xp) for v in (self.mean, self.std))
        return deltas * std + mean

    def done(self, deltas: Any, axis: int = -1, xp: Any = jnp) -> Any:
        """Return deltas, four along the axis, normalized."""
        mean, std = (_along(v, deltas, axis, xp) for v in (self.mean, self.std))
        return (deltas - mean) / std


def normalization(ctx: Context) -> Normalization:
    """Return what bbox_reg_param says: deltas are as they are without means or without deviations."""
    p = ctx.layer.bbox_reg_param
    if not p.bbox_mean or not p.bbox_std:
        return Normalization((0.0,) * 4, (1.0,) * 4)
    for name in ("bbox_mean", "bbox_std"):
        given = len(getattr(p, name))
        require(given == 4, f"bbox_reg_param needs {name} four times, for x, y, w, h, not {given} times")
    require(min(p.bbox_std) > 0, f"bbox_std must be above 0, not {list(p.bbox_std)}")
    return Normalization(tuple(p.bbox_mean), tuple(p.bbox_std))


@dataclass(frozen=True)
class Bounds:
    """How far deltas may go: centres by `xy` sides of the field, sides to factors up to exp(`wh`)."""

    xy: float
    wh: float

    def held(self, deltas: Any, axis: int) -> Any:
        """Return deltas, four along the axis, within the bounds."""
        most = _along((self.xy, self.xy, self.wh, self.wh), deltas, axis, jnp)
        return jnp.clip(deltas, -most, most)

    def normalized_held(self, deltas: Any, axis: int, norm: Normalization) -> Any:
        """Return normalized deltas within the bounds, for which x and y share a mean and a deviation, so do w and h."""
        low, high = [], []
        for bound, first in ((self.xy, 0), (self.wh, 2)):
            mean = sum(norm.mean[first : first + 2]) / 2
            std = math.sqrt(math.prod(norm.std[first : first + 2]))
            low += [(-bound - mean) / std] * 2
            high += [(bound - mean) / std] * 2
        return jnp.clip(deltas, _along(tuple(low), deltas, axis, jnp), _along(tuple(high), deltas, axis, jnp))


def bounds(p: Any) -> Bounds:
    """Return what field_xyr and field_whr say."""
    require(p.field_xyr > 0, f"field_xyr must be above 0, not {p.field_xyr}")
    require(p.field_whr >= 1, f"field_whr, the largest factor of a side, must be 1 or more, not {p.field_whr}")
    return Bounds(1 / p.field_xyr, math.log(p.field_whr))


def moved(boxes: Any, deltas: Any, xp: Any = jnp) -> Any:
    """Return boxes (..., 4), of sides x2 - x1 + 1, moved by deltas (..., 4): by 0 to themselves."""
    sides = boxes[..., 2:] - boxes[..., :2] + 1
    centres = (boxes[..., 2:] + boxes[..., :2]) / 2 + deltas[..., :2] * sides
    new = sides * xp.exp(deltas[..., 2:])
    corners = centres - (new - 1) / 2
    return xp.concatenate([corners, corners + new - 1], axis=-1)


def _along(values: Floats, like: Any, axis: int, xp: Any) -> Any:
    shape = [1] * like.ndim
    shape[axis] = 4
    return xp.asarray(np.asarray(values).reshape(shape), like.dtype)
