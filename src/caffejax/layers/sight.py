"""What of the bottom's pixels a pixel of the top sees, for types where the planes are as large ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernels.window import Window
from .axes import canonical_axis
from .context import Context

_CHANNELS = 1


def own_pixel(ctx: Context, bottom: Any) -> Window:
    """Return the window of the pixel at the same place, and of no other."""
    n = len(bottom.shape) - _CHANNELS - 1
    return Window.symmetric((1,) * n, (1,) * n, (0,) * n)


def whole_plane(ctx: Context, bottom: Any) -> None:
    """Say that each pixel sees all others."""


def own_pixel_along(axis: Callable[[Context], int]) -> Callable[[Context, Any], Window | None]:
    """Return what sees the own pixel where an axis of the settings is that of the channels or the batch."""

    def sees(ctx: Context, bottom: Any) -> Window | None:
        return own_pixel(ctx, bottom) if canonical_axis(axis(ctx), bottom.shape) <= _CHANNELS else None

    return sees
