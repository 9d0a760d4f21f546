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
    if maker is None:
        return {}
    match maker.type:
        case "Input":
            return {blob: shape}
        case "Split":
            return inputs_behind(makers, maker.bottom[0], shape)
        case "Concat":
            return _behind_concat(makers, maker, shape)
        case "Reshape":
            before = _before_reshape(list(maker.reshape_param.shape.dim), shape, _batch(makers, maker.bottom[0]))
            return inputs_behind(makers, maker.bottom[0], before) if before else {}
    return {}


def _behind_concat(makers: Mapping[str, LayerParameter], maker: LayerParameter, shape: Shape) -> dict[str, Shape]:
    axis, parts = maker.concat_param.axis, len(maker.bottom)
    if not -len(shape) <= axis < len(shape) or shape[axis] % parts:
        return {}
    part = list(shape)
    part[axis] //= parts
    found = [inputs_behind(makers, bottom, tuple(part)) for bottom in maker.bottom]
    return {top: own for each in found for top, own in each.items()} if all(found) else {}


def _before_reshape(dims: list[int], shape: Shape, batch: int) -> Shape | None:
    """Return what is reshaped, if the first two axes of a batch of that size are divided anew and others stay."""
    if len(dims) != len(shape) or any(dims[2:]) or not batch or shape[0] * shape[1] % batch:
        return None
    return batch, shape[0] * shape[1] // batch, *shape[2:]


def _batch(makers: Mapping[str, LayerParameter], blob: str) -> int:
    """Return the length of the first axis of the Input that a blob is made of; 0 if there is none."""
    maker = makers.get(blob)
    while maker is not None and maker.bottom:
        blob = maker.bottom[0]
        maker = makers.get(blob)
    if maker is None or maker.type != "Input" or not maker.input_param.shape:
        return 0
    shapes = maker.input_param.shape
    dims = shapes[list(maker.top).index(blob) if len(shapes) > 1 else 0].dim
    return int(dims[0]) if dims else 0


def with_inputs(net: NetParameter, shapes: Mapping[str, Shape]) -> NetParameter:
    """Return a net whose Input layers have these shapes."""
    changed = NetParameter()
    changed.CopyFrom(net)
    for layer in changed.layer:
        if layer.type != "Input" or shapes.keys().isdisjoint(layer.top):
            continue
        declared = [list(shape.dim) for shape in layer.input_param.shape]
        declared = declared * len(layer.top) if len(declared) == 1 else declared
        if len(declared) != len(layer.top):
            continue  # its own type says what is wrong
        del layer.input_param.shape[:]
        for top, own in zip(layer.top, declared, strict=True):
            layer.input_param.shape.add(dim=shapes.get(top, own))
    return changed
