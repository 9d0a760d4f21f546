"""Layers that move numbers: other shapes, and planes made larger."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Call, Tops, emits


@emits("Flatten", operators="Flatten", unless="it keeps axes beside the first: then Reshape")
def flatten(call: Call) -> Tops | None:
    """All axes from the second on as one."""
    p, rank = call.param, len(call.x.shape)
    return call.emit("Flatten", axis=1) if p.axis % rank == 1 and p.end_axis % rank == rank - 1 else None


@emits("Tile", operators="Tile")
def tile(call: Call) -> Tops:
    """Several times in a row along an axis."""
    times = np.ones(len(call.x.shape), np.int64)
    times[call.param.axis] = call.param.tiles
    return call.emit("Tile", call.array(times, "tiles"))


@emits("Interp", operators="Resize", unless="it cuts off rows or columns")
def interp(call: Call) -> Tops | None:
    """Linear, corners on corners."""
    if call.param.pad_beg or call.param.pad_end:
        return None
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return call.emit("Resize", "", "", call.builder.sizes.vector(call.shapes[0]), **how)


@emits("Upsample", operators="Resize", unless="it places maxima (SegNet's): then ScatterElements")
def upsample(call: Call) -> Tops | None:
    """Each number several times along height and width."""
    if len(call.bottoms) > 1:
        return None
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return call.emit("Resize", "", "", call.builder.sizes.vector(call.shapes[0]), **how)
