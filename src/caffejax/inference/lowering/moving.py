"""Layers that move numbers: joined, cut, in other shapes."""

from __future__ import annotations

from ...layers.indexing import crop_box
from ...layers.permute import permuted_axes
from ...layers.shape import concat_axis, cuts
from ..program import Value
from .registry import Call, lowers


@lowers("Concat")
def concat(call: Call) -> Value | None:
    """Bottoms one after the other."""
    axis = concat_axis(call.context, call.bottoms)
    return call.writer.add("concat", call.bottoms, call.out, axis=axis)


@lowers("Flatten", "Reshape")
def reshape(call: Call) -> Value:
    """The same numbers in another shape."""
    return call.writer.add("reshape", [call.x], call.out)


@lowers("Slice")
def slice_(call: Call) -> list[Value]:
    """A part for each top."""
    axis, points = cuts(call.context, call.x.shape)
    parts = []
    for start, shape in zip([0, *points], call.shapes, strict=True):
        begin = [start if k == axis else 0 for k in range(len(shape))]
        parts.append(call.writer.add("slice", [call.x], shape, **{"from": begin}))
    return parts


@lowers("Crop")
def crop(call: Call) -> Value:
    """A part, as large as another bottom."""
    begin, _ = crop_box(call.context, call.x.shape, call.bottoms[1].shape)
    return call.writer.add("slice", [call.x], call.out, **{"from": begin})


@lowers("Permute")
def permute(call: Call) -> Value:
    """The axes in another order."""
    return call.writer.add("permute", [call.x], call.out, order=permuted_axes(call.context, call.x.shape))


@lowers("ShuffleChannel")
def shuffle_channel(call: Call) -> Value:
    """Channels dealt out one from each group in turn."""
    return call.writer.add("shuffle", [call.x], call.out, size=call.x.shape[1] // call.param.group)
