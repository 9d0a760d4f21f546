"""Shapes of labels: what forks' layers need of the labels that a net is fed, where its Input layers say otherwise.

A net that read its labels from files says nothing of their shapes; with Input layers in place of its data layers
somebody had to guess them. A type whose `Signature.labels` says what it needs settles them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..layers import Context
from ..layers.context import Shape
from ..schema.caffe_pb2 import LayerParameter, NetParameter


def label_shapes(context: Context, bottoms: Sequence[Any]) -> Mapping[int, Shape]:
    """Return the shapes that a layer needs of some of its bottoms, by number.

    Args:
        context: the layer's.
        bottoms: their shapes and dtypes, None where unknown.
    """
    labels = context.type.signature.labels
    return {} if labels is None else labels(context, *bottoms)


def inputs_behind(makers: Mapping[str, LayerParameter], blob: str, shape: Shape) -> dict[str, Shape]:
    """Return the shapes that Input layers' tops must have for a blob to have that shape; nothing if none is behind it.

    Args:
        makers: the layer that makes each blob.
        blob, shape: the blob, and what it has to be.
    """
    maker = makers.get(blob)
    if maker is None or maker.type not in ("Input", "Split", "Concat"):
        return {}
    if maker.type == "Input":
        return {blob: shape}
    if maker.type == "Split":
        return inputs_behind(makers, maker.bottom[0], shape)
    axis, parts = maker.concat_param.axis, len(maker.bottom)
    if not -len(shape) <= axis < len(shape) or shape[axis] % parts:
        return {}
    part = list(shape)
    part[axis] //= parts
    found = [inputs_behind(makers, bottom, tuple(part)) for bottom in maker.bottom]
    return {top: own for each in found for top, own in each.items()} if all(found) else {}


def with_inputs(net: NetParameter, shapes: Mapping[str, Shape]) -> NetParameter:
    """Return a net whose Input layers have these shapes."""
    changed = NetParameter()
    changed.CopyFrom(net)
    for layer in changed.layer:
        if layer.type != "Input" or shapes.keys().isdisjoint(layer.top):
            continue
        declared = [list(shape.dim) for shape in layer.input_param.shape]
        declared = declared * len(layer.top) if len(declared) == 1 else declared
        del layer.input_param.shape[:]
        for top, own in zip(layer.top, declared, strict=True):
            layer.input_param.shape.add(dim=shapes.get(top, own))
    return changed
