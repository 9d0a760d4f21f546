"""Coordinate maps between blobs, to crop one blob to the position of another, as in fully convolutional nets.

A map from a layer's bottom to its top is `(axis, scale, shift)`: along each spatial axis, beginning with `axis`,
position `x` in the bottom corresponds to position `scale * x + shift` in the top. Positions are in pixels, measured
from the center of the first pixel. A map with `axis=None` is valid for all axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import GraphError
from ..core.layers import layer_type, layer_types
from ..core.layers.types import SpatialMap
from ._arguments import as_instance
from ._fork_files import fall_back_to_fork
from .net_spec import Function, Top, layers

CoordMap: TypeAlias = tuple[int | None, Any, Any]

_IDENTITY: CoordMap = (None, 1, 0)

# scripts append their layer types to this list
PASS_THROUGH_LAYERS = [name for name, kind in layer_types().items() if kind.traits.keeps_pixels]


class UndefinedMapException(Exception):  # noqa: N818  Caffe's name
    """Error for a layer without a coordinate map from its bottom to its top."""


class AxisMismatchException(Exception):  # noqa: N818  Caffe's name
    """Error for maps with different axes, which cannot be composed."""


def conv_params(fn: Function) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the channel axis, and the strides, dilated kernel sizes and pads of a convolution or pooling layer.

    Strides, kernel sizes and pads are arrays with one value per spatial axis, or one value for all spatial axes.

    Raises:
        UndefinedMapException: if the layer has no kernel size, for example in global pooling.
    """
    settings = fn.params.get("convolution_param") or fn.params.get("pooling_param") or fn.params

    def read_setting(name: str, prefix: str, default: int | None) -> np.ndarray:
        pair: list[Any] = [settings.get(f"{prefix}_h"), settings.get(f"{prefix}_w")]
        value: Any = (
            settings.get(name, default) if pair == [None, None] else [default if n is None else n for n in pair]
        )
        if value is None or None in np.atleast_1d(value).tolist():
            raise UndefinedMapException(f"{fn.type_name} has no {name}")
        return np.atleast_1d(value)

    kernel = (read_setting("kernel_size", "kernel", None) - 1) * read_setting("dilation", "dilation", 1) + 1
    return settings.get("axis", 1), read_setting("stride", "stride", 1), kernel, read_setting("pad", "pad", 0)


def crop_params(fn: Function) -> tuple[int, np.ndarray]:
    """Return the first axis that a Crop layer crops, and an array of offsets for this axis and all later axes."""
    settings = fn.params.get("crop_param") or fn.params
    return settings.get("axis", 2), np.atleast_1d(settings.get("offset", 0))


def coord_map(fn: Function) -> CoordMap:
    """Return the map from a layer's bottom to its top.

    Raises:
        UndefinedMapException: if the layer's type has no coordinate map.
    """
    spatial_map = _get_spatial_map(fn)
    if spatial_map == "windows":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (kernel - 1) / 2) / stride
    if spatial_map == "transposed":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, stride, (kernel - 1) / 2 - pad
    if spatial_map == "same" or fn.type_name in PASS_THROUGH_LAYERS:
        return _IDENTITY
    if spatial_map == "cropped":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset  # the first spatial axis comes after a map's axis, the channels
    raise UndefinedMapException(f"there is no coordinate map for layers of type {fn.type_name}")


def _get_spatial_map(fn: Function) -> SpatialMap:
    """Return the `SpatialMap` of the layer's type, or "unknown" for an unregistered type."""
    try:
        traits = layer_type(fn.type_name).traits
    except GraphError:
        return "unknown"
    return "same" if traits.keeps_pixels else traits.spatial_map


def compose(base_map: CoordMap, next_map: CoordMap) -> CoordMap:
    """Return the composition of two maps: first `next_map`, then `base_map`.

    Raises:
        AxisMismatchException: if the maps begin at different axes, or have different numbers of axes.
    """
    (axis1, scale1, shift1), (axis2, scale2, shift2) = base_map, next_map
    if None not in (axis1, axis2) and axis1 != axis2:
        raise AxisMismatchException(
            f"maps of different axes cannot be combined: after axis {axis1} and after axis {axis2}"
        )
    if len({n for n in map(np.size, (scale1, shift1, scale2, shift2)) if n > 1}) > 1:
        sizes = [max(np.size(scale), np.size(shift)) for scale, shift in ((scale1, shift1), (scale2, shift2))]
        raise AxisMismatchException(
            f"both maps must have the same number of spatial axes, but they have {sizes[0]} and {sizes[1]}"
        )
    return axis2 if axis1 is None else axis1, scale1 * scale2, scale1 * shift2 + shift1


def inverse(coord_map: CoordMap) -> CoordMap:
    """Return the inverse map."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def _walk_ancestors(top: Top) -> Iterator[tuple[Top, CoordMap]]:
    """Yield a blob and its ancestors, nearest first, each with the map from the ancestor to the blob."""
    maps = {top: _IDENTITY}
    queue = [top]
    for blob in queue:  # the list grows during the loop
        yield blob, maps[blob]
        try:
            layer_map = coord_map(blob.fn)
        except UndefinedMapException:
            continue
        # the second bottom of a Crop determines only the size
        for bottom in blob.fn.inputs[:1] if _get_spatial_map(blob.fn) == "cropped" else blob.fn.inputs:
            if bottom not in maps:
                maps[bottom] = compose(maps[blob], layer_map)
                queue.append(bottom)


def coord_map_from_to(top_from: Top, top_to: Top) -> CoordMap:
    """Return the map from coordinates of `top_from` to coordinates of `top_to`, through their nearest common ancestor.

    If there are several paths, their maps are assumed to be equal. They are equal in nets whose sums add blobs pixel
    by pixel.

    Raises:
        RuntimeError: if the blobs have no common ancestor.
        AxisMismatchException: if the layers on the path have maps with different axes.
    """
    for top in (top_from, top_to):
        as_instance(top, Top, "a blob of a NetSpec")
    from_maps = dict(_walk_ancestors(top_from))
    for blob, to_map in _walk_ancestors(top_to):
        if blob in from_maps:
            return compose(to_map, inverse(from_maps[blob]))
    raise RuntimeError("could not compute a map between the tops; are they connected by spatial layers?")


def crop(top_from: Top, top_to: Top) -> Top:
    """Return a Crop layer that crops `top_from` to the position of `top_to`.

    Raises:
        AssertionError: if the blobs differ in scale, or the crop does not begin at a pixel of `top_from`.
        RuntimeError, AxisMismatchException: see `coord_map_from_to`.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    problem = ""
    if not np.all(np.equal(scale, 1)):
        problem = f"scale mismatch on crop (a = {scale})"
    elif not np.all(np.less_equal(shift, 0)):
        problem = f"cannot crop negative offset (b = {shift})"
    elif not np.all(np.equal(np.round(shift), shift)):
        problem = f"cannot crop noninteger offset (b = {shift})"
    if problem:
        raise AssertionError(problem)  # Caffe raises this
    offset = (-np.round(np.atleast_1d(shift))).astype(int).tolist()
    return layers.Crop(top_from, top_to, crop_param={"axis": 2 if axis is None else axis + 1, "offset": offset})


__getattr__ = fall_back_to_fork(__name__)
