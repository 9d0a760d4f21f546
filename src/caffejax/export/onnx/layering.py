"""A layer put into a model: by its own operators, or the general way; its tops under the names of their blobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ...graph import Layer
from ...layers.calling import call as run
from ...options import Run
from .builder import Builder
from .converting import convert, sizes
from .layers import OPERATORS, Call
from .values import Value


def add_layer(builder: Builder, layer: Layer, blobs: Sequence[np.ndarray], bottoms: Sequence[Value]) -> list[Value]:
    """Add a layer; return its tops.

    Raises:
        CaffejaxError: naming the layer, if it cannot be exported.
    """
    call = _call(builder, layer, blobs, bottoms)
    operators = OPERATORS.get(layer.type.name)
    tops = None
    if operators is not None:
        start = len(builder.nodes)
        tops = operators.emit(call)
        if tops is None:
            del builder.nodes[start:]
    if tops is None:
        found = convert(builder, lambda *given: _forward(layer, blobs, given), bottoms)
    else:
        found = [tops] if isinstance(tops, Value) else list(tops)
    return found


def add_scaled(
    builder: Builder, layer: Layer, blobs: Sequence[np.ndarray], bottom: Value, scale: Layer, by: Sequence[np.ndarray]
) -> list[Value]:
    """Add a layer and the factor and bias by channel that follow it, such as BatchNorm and Scale; return the top."""
    known_by, scaled = scale.type.facts.by_channel, OPERATORS[layer.type.name].scaled
    assert known_by is not None
    assert scaled is not None
    factor, bias = map(np.asarray, known_by.factor_and_bias(scale.context, tuple(by)))
    return [scaled.emit(_call(builder, layer, blobs, [bottom]), factor, bias)]


def may_be_scaled(layer: Layer, blobs: Sequence[np.ndarray], bottom: Value) -> bool:
    """Return whether a layer's operators take in a factor and a bias for each channel that follow."""
    operators = OPERATORS.get(layer.type.name)
    if operators is None or operators.scaled is None:
        return False
    return operators.scaled.holds(Call(Builder(0), layer.context, blobs, [bottom], [], ""))


def joins(layer: Layer, blobs: Sequence[np.ndarray], channels: Any) -> bool:
    """Return whether a layer is no more than a factor and a bias for each channel."""
    by = layer.type.facts.by_channel
    shapes = [b.shape for b in blobs]
    return by is not None and len(layer.bottoms) == 1 and bool(blobs) and by.holds(layer.context, shapes, 1, channels)


def _call(builder: Builder, layer: Layer, blobs: Sequence[np.ndarray], bottoms: Sequence[Value]) -> Call:
    given = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in bottoms]
    tops = jax.eval_shape(lambda *xs: _forward(layer, blobs, xs), *given)
    return Call(builder, layer.context, blobs, bottoms, [sizes(top.shape) for top in tops], layer.key)


def _forward(layer: Layer, blobs: Sequence[Any], bottoms: Sequence[Any]) -> tuple[jax.Array, ...]:
    """Run a layer by the plain lowering, in float32."""
    context = replace(layer.context, run=Run().plain())
    tops, _ = run(context, tuple(blobs), tuple(bottoms))
    return tops
