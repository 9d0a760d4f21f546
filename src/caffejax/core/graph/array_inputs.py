"""Replacement of the layers that read data by Input layers, for nets as functions of arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.errors import GraphError, Problem, did_you_mean, is_integer, raise_if_any
from ..layers import SourceInput, type_of
from ..schema.caffe_pb2 import LayerParameter, NetParameter, NetState
from .resolve import is_included


def replace_data_layers(
    net: NetParameter, state: NetState, inputs: Mapping[str, Any], file: str | None
) -> NetParameter:
    """Return a net in which Input layers replace the data layers, so that building it opens no source.

    Args:
        net: an upgraded net.
        state: phase, level and stages. Layers of other states stay as they are.
        inputs: the shape of each top of a data layer, or an array of this shape. Tops of Input layers, and of other
            layers without bottoms, such as DummyData and Python layers, may be named, too.
        file: the net's file, for messages.

    Raises:
        GraphError: if a top of a data layer has no shape, a shape is invalid, or a name is not such a top. The message
            names all of them.
    """
    if not isinstance(inputs, Mapping):
        raise GraphError(Problem(f"inputs must be a dict {{blob: shape}}, not {inputs!r}", file))
    shapes = {name: getattr(value, "shape", value) for name, value in inputs.items()}
    layers = [layer for layer in net.layer if not layer.bottom and is_included(layer, state)]
    raise_if_any(GraphError, _find_problems(layers, shapes), file)
    new_net = NetParameter()
    new_net.CopyFrom(net)
    for layer in new_net.layer:
        if not layer.bottom and is_included(layer, state) and not shapes.keys().isdisjoint(layer.top):
            layer.CopyFrom(_make_input(layer, shapes))
    return new_net


def suggest_array_inputs(error: GraphError, net: NetParameter) -> GraphError:
    """Return the error with a remedy in the problem of each source that does not exist: `inputs` of the net."""
    tops = {layer.name: layer.top for layer in net.layer if _reads_source(layer)}

    def add_remedy(problem: Problem) -> Problem:
        if problem.layer not in tops or problem.file is None or os.path.lexists(problem.file):
            return problem
        shapes = ", ".join(f'"{top}": shape' for top in tops[problem.layer])
        return replace(problem, message=f"{problem.message}; to pass arrays, build Net(..., inputs={{{shapes}}})")

    return GraphError(map(add_remedy, error.problems))


def _find_problems(layers: Sequence[LayerParameter], shapes: Mapping[str, Any]) -> Iterator[str]:
    tops = [top for layer in layers for top in layer.top]
    for name, shape in shapes.items():
        if name not in tops:
            hint = did_you_mean(str(name), tops) or f"; it has {', '.join(map(repr, tops)) or 'none'}"
            yield f"inputs: the net has no data layer or Input layer with a top '{name}'{hint}"
        elif not isinstance(shape, Sequence) or not all(is_integer(size) and size >= 0 for size in shape):
            yield f"inputs: the shape of '{name}' must be a tuple of integers of at least 0, not {shape!r}"
    for layer in layers:
        missing = [top for top in layer.top if top not in shapes]
        if missing and (_reads_source(layer) or (len(missing) < len(layer.top) and not layer.input_param.shape)):
            names = " and ".join(f"'{top}'" for top in missing)
            yield f"inputs must also have the shape of {names}, of layer '{layer.name}' ({layer.type})"


def _reads_source(layer: LayerParameter) -> bool:
    try:
        return isinstance(type_of(layer).implementation, SourceInput)
    except GraphError:
        return False  # an unknown type, which the graph builder reports


def _make_input(layer: LayerParameter, shapes: Mapping[str, Any]) -> LayerParameter:
    old_shapes = [tuple(shape.dim) for shape in layer.input_param.shape]
    new_layer = LayerParameter(
        name=layer.name, type="Input", top=layer.top, include=layer.include, exclude=layer.exclude
    )
    for i, top in enumerate(layer.top):
        shape = shapes[top] if top in shapes else old_shapes[min(i, len(old_shapes) - 1)]
        new_layer.input_param.shape.add(dim=shape)
    return new_layer
