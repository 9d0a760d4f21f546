"""Windows over time and the plane, in both spellings of C3D: version 1.1 has messages of its own, 1.0 adds fields."""

from __future__ import annotations

from typing import Any

from ...errors import require
from ...kernels.window import Window
from ..context import Context, Shape

TEMPORAL = ("kernel_depth", "temporal_stride", "temporal_pad")  # what C3D 1.0 adds to the messages of the plane

_BY_AXIS = tuple(f"{what}_{axis}" for what in ("kernel", "stride", "pad") for axis in ("h", "w", "d"))
_NOT_READ = (*_BY_AXIS, "dilation", "global_pooling")


def volume_param(ctx: Context, own: str) -> Any:
    """Return the message with the window: the layer's own one if it is there, else that of the type of the plane."""
    return getattr(ctx.layer, own) if ctx.layer.HasField(own) else ctx.param


def volume_window(p: Any) -> Window:
    """Read the window over (length, height, width) of a message.

    Raises:
        LayerError: for numbers that are missing, zero, or for windows of other kinds.
    """
    for name in _NOT_READ:
        require(not _is_set(p, name), f"{name} is not for windows over time: kernel_size, stride and pad are for both")
    depth, size = _number(p, "kernel_depth"), _number(p, "kernel_size")
    stride, pad = _number(p, "stride", 1), _number(p, "pad", 0)
    times = _number(p, "temporal_stride", 1)
    rest = _number(p, "temporal_pad", 0) if "temporal_pad" in p.DESCRIPTOR.fields_by_name else 0
    window = Window.symmetric((depth, size, size), (times, stride, stride), (rest, pad, pad))
    for name in ("kernel", "stride"):
        require(all(v > 0 for v in getattr(window, name)), f"{name} must be positive: {getattr(window, name)}")
    return window


def volume_size(x: Any) -> Shape:
    """Return length, height and width of a bottom's shape.

    Raises:
        LayerError: if it has not five axes.
    """
    require(
        len(x.shape) == 5, f"needs a bottom with 5 axes (number, channels, length, height, width), not shape {x.shape}"
    )
    return tuple(x.shape[2:])


def _number(p: Any, name: str, default: int | None = None) -> int:
    given = getattr(p, name)
    if not isinstance(given, int):  # repeated, in the messages of the plane
        require(len(given) <= 1, f"{name} must be given once, not {len(given)} times")
        given = given[0] if given else None
    elif not p.HasField(name):
        given = None
    if given is None:
        require(default is not None, f"{name} must be given")
        return default or 0
    return int(given)


def _is_set(p: Any, name: str) -> bool:
    if name not in p.DESCRIPTOR.fields_by_name:
        return False
    value = getattr(p, name)
    return bool(value) and (hasattr(value, "__len__") or p.HasField(name))
