"""Reshaping of a graph: the same layers for inputs of different shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import jax

from ...base.errors import CaffejaxError, GraphError, Problem, is_integer, raise_if_any
from ..layers import Context, ParamSpec
from ..layers.blob_checks import check_param_shapes
from ..layers.context import Shape
from .build import check_countable, infer_top_shapes, is_cacheable
from .graph import Graph, Layer
from .shared_params import make_recurrent_state_params


def reshape_graph(graph: Graph, inputs: Mapping[str, tuple[int, ...]], layers: range | None = None) -> Graph:
    """Return the graph with new shapes for the tops of Input and data layers.

    Args:
        graph: the graph.
        inputs: new shapes by name, for tops of Input and data layers, and for blobs that layers before `layers`
            compute. Other blobs of these kinds keep their shapes.
        layers: the indices of the layers to reshape; the tops of other layers keep their shapes. Default: all layers.

    Raises:
        GraphError: if a layer does not accept the new shapes, or its params would change shape. The message names each
            such layer.
    """
    if layers is None:
        if inputs and all(graph.blobs[name].shape == shape for name, shape in inputs.items()):
            return graph
        layers = range(len(graph.layers))
    blobs = dict(graph.blobs)
    blobs |= {name: jax.ShapeDtypeStruct(shape, blobs[name].dtype) for name, shape in inputs.items() if name in blobs}
    reshaped_layers: list[Layer] = []
    problems: list[Problem] = []
    failed_tops: set[str] = set()  # tops of layers with errors
    for index, layer in enumerate(graph.layers):
        if index not in layers:
            reshaped_layers.append(layer)
            continue
        try:
            if not failed_tops.isdisjoint(layer.bottoms):
                failed_tops.update(layer.tops)
                continue
            with layer.locate_errors():
                reshaped_layer, tops = _reshape_layer(graph, layer, [blobs[b] for b in layer.bottoms], inputs)
                check_countable(tops)
        except CaffejaxError as error:
            problems += error.problems
            failed_tops.update(layer.tops)
        else:
            blobs.update(zip(layer.tops, tops, strict=True))
            reshaped_layers.append(reshaped_layer)
    raise_if_any(GraphError, problems)
    return replace(graph, layers=tuple(reshaped_layers), blobs=blobs)


def with_batch(graph: Graph, batch: int, axis: int = 0) -> Graph:
    """Return the graph for a different batch size, the length of axis `axis` in all inputs.

    Raises:
        GraphError: if a layer does not accept the batch size, or its params would change shape. The message names each
            such layer. Also if `batch` or `axis` is not an integer of at least 0, or an input has no such axis.
    """
    shapes = {name: graph.blobs[name].shape for name in graph.input_names}
    problems = [
        f"{argument} must be an integer of at least 0, not {value!r}"
        for argument, value in (("batch", batch), ("axis", axis))
        if not is_integer(value) or value < 0
    ]
    for name, shape in shapes.items() if not problems else ():
        if len(shape) <= axis:
            problems.append(f"input '{name}' of shape {shape} has no axis {axis} for the batch size")
    raise_if_any(GraphError, problems, graph.file)
    return reshape_graph(graph, {name: (*s[:axis], batch, *s[axis + 1 :]) for name, s in shapes.items()})


def _reshape_layer(
    graph: Graph, layer: Layer, bottoms: list[jax.ShapeDtypeStruct], inputs: Mapping[str, tuple[int, ...]]
) -> tuple[Layer, tuple[jax.ShapeDtypeStruct, ...]]:
    if layer.type.is_input:
        specs = {top: graph.blobs[top] for top in layer.tops}
        return layer, tuple(jax.ShapeDtypeStruct(inputs.get(top, b.shape), b.dtype) for top, b in specs.items())
    check_params = _check_params if is_cacheable(layer.context, bottoms) else _check_params.__wrapped__
    shapes = tuple(param.spec.shape for param in layer.params)
    state_specs = check_params(layer.context, shapes, tuple(bottoms))
    recurrent_state = make_recurrent_state_params(layer.key, len(layer.params), state_specs)
    if recurrent_state or layer.recurrent_state:
        layer = replace(layer, recurrent_state=recurrent_state)
    return layer, infer_top_shapes(layer.context, (*layer.params, *recurrent_state), bottoms)


@lru_cache(2048)
def _check_params(
    context: Context, blobs: tuple[Shape, ...], bottoms: tuple[jax.ShapeDtypeStruct, ...]
) -> tuple[ParamSpec, ...]:
    """Check that a layer's params have the shapes that its bottoms need; return the specs of its recurrent state."""
    specs = check_param_shapes(context, [ParamSpec(shape) for shape in blobs], bottoms)
    return tuple(spec for spec in specs if not spec.persistent)  # cached, so it must not change
