"""The part of a graph that inference needs: the layers that given blobs depend on, with each blob produced once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from ...base.errors import GraphError, Problem, did_you_mean, shorten_list
from ..layers import type_of
from ..layers.context import strip_net_fields
from ..schema.caffe_pb2 import LayerParameter
from .graph import UNNAMED_TOP, Graph, Layer
from .reshape import reshape_graph


def make_inference_graph(graph: Graph, outputs: Iterable[str] | None = None) -> Graph:
    """Return the layers that the given blobs depend on, with each blob produced once.

    Inserted splits are removed, and no layer computes in place. If several in-place layers write a blob, the last value
    keeps the blob's name; earlier values are called `blob/layer` after the layer that produces them. Data layers become
    Input layers. Their tops keep their names, and values that are written over these tops are called `blob/layer`. If a
    removed layer owns params that a remaining layer shares, it is in `removed_owners`, so the variables of the full net
    fit the result.

    Args:
        graph: a net's graph.
        outputs: names of the blobs to compute; default: `find_predictions(graph)`.

    Raises:
        GraphError: if the net does not have some of the blobs, or has no outputs. The message names missing blobs.
    """
    selected_blobs = tuple(find_predictions(graph) if outputs is None else outputs)
    unknown_blobs = [name for name in selected_blobs if name not in graph.blobs]
    if unknown_blobs or not selected_blobs:
        problems = [f"no blob '{name}' in the net{did_you_mean(name, graph.blobs)}" for name in unknown_blobs]
        raise GraphError([Problem(p, graph.file) for p in problems or [_describe_silenced_outputs(graph)]])
    layers, names = _remove_splits_and_in_place_tops(graph)
    outputs = tuple(dict.fromkeys(names[name] for name in selected_blobs))
    needed_blobs, used_layers = set(outputs), list[Layer]()
    for layer in reversed(layers):
        if not needed_blobs.isdisjoint(layer.tops):
            used_layers.append(_make_input(layer, graph, needed_blobs) if layer.type.is_input else layer)
            needed_blobs.update(layer.bottoms)
    owner_keys = {p.owner.layer for layer in used_layers for p in layer.params} - {layer.key for layer in used_layers}
    inputs = {top: graph.blobs[top] for layer in reversed(used_layers) if layer.type.is_input for top in layer.tops}
    reduced_graph = replace(
        graph,
        layers=tuple(reversed(used_layers)),
        blobs=inputs,
        input_layer_tops=tuple(inputs),
        outputs=outputs,
        removed_owners=tuple(layer for layer in graph.param_layers if layer.key in owner_keys),
    )
    return reshape_graph(reduced_graph, {})


def _describe_silenced_outputs(graph: Graph) -> str:
    """Return a message about a net whose last blobs all go to layers without tops, such as Silence."""
    silencers = [layer for layer in graph.layers if not layer.tops]
    blobs = dict.fromkeys(graph.split_roots.get(bottom, bottom) for layer in silencers for bottom in layer.bottoms)
    message = "the net has no outputs; name the blobs to compute with outputs=[...] in Python, or --output or --outputs"
    if not blobs:
        return message
    layers = ", ".join(f"'{layer.name}' ({layer.type.name})" for layer in silencers)
    names = ", ".join(shorten_list([f"'{name}'" for name in blobs]))
    return f"{message}, such as {names}, which end in layer {layers}"


def find_inference_names(graph: Graph) -> dict[str, str]:
    """Return, for each blob of the net, the name of its last value in the result of `make_inference_graph`."""
    return _remove_splits_and_in_place_tops(graph)[1]


def find_predictions(graph: Graph) -> tuple[str, ...]:
    """Return the blobs that a net predicts: its outputs, with losses and metrics replaced by their predictions.

    If no blob depends on params, the net's outputs are returned.
    """
    producers = {top: layer for layer in graph.layers for top in layer.tops}  # the last producer of each blob
    param_dependent = _param_dependent_blobs(graph)
    predicted_blobs: dict[str, None] = {}
    queue = [name for name in graph.outputs if name in param_dependent]
    unnamed_losses = [layer for layer in graph.layers if UNNAMED_TOP in layer.tops]  # losses, as in V1 nets
    queue += [bottom for layer in unnamed_losses for bottom in layer.bottoms if bottom in param_dependent]
    while queue:
        layer = producers[name := queue.pop(0)]
        if layer.is_inserted_split or _is_score(layer, param_dependent):
            queue += [bottom for bottom in layer.bottoms if bottom in param_dependent]
        else:
            predicted_blobs[name] = None
    return tuple(predicted_blobs) or graph.outputs


def _param_dependent_blobs(graph: Graph) -> set[str]:
    param_dependent: set[str] = set()
    for layer in graph.layers:
        if layer.params or not param_dependent.isdisjoint(layer.bottoms):
            param_dependent.update(layer.tops)
    return param_dependent


def _is_score(layer: Layer, param_dependent: Collection[str]) -> bool:
    """Return whether a layer has the type of a loss or metric, or has a loss weight and reads labels."""
    indices = layer.index_bottoms
    reads_only_labels = 1 < len(layer.bottoms) == len(indices)  # all bottoms are labels: predictions and ground truth
    is_weighted_loss = any(layer.loss_weights) and not all(bottom in param_dependent for bottom in layer.bottoms)
    return (
        layer.type.signature.loss
        or is_weighted_loss
        or reads_only_labels
        or bool(indices and not layer.type.gradient.differentiable)
    )


def _make_input(layer: Layer, graph: Graph, needed: Collection[str]) -> Layer:
    """Return an Input layer for those tops of a data layer that are in `needed`, with shapes after its transform."""
    tops = tuple(top for top in layer.tops if top in needed)
    message = LayerParameter(name=layer.name, type="Input", top=tops)
    for top in tops:
        message.input_param.shape.add().dim.extend(graph.blobs[top].shape)
    context = replace(
        layer.context, layer=strip_net_fields(message), type=type_of(message), has_own_type=False, blob_names=None
    )
    definition = replace(layer.definition, layer=message)
    return Layer(layer.key, context, definition, bottoms=(), tops=tops, loss_weights=(0.0,) * len(tops), params=())


def _remove_splits_and_in_place_tops(graph: Graph) -> tuple[list[Layer], dict[str, str]]:
    """Return the layers without splits and in-place tops, and the name of the last value of each blob."""
    last_writers = {top: layer.key for layer in graph.layers for top in layer.tops}
    inputs = {top for layer in graph.layers if layer.type.is_input for top in layer.tops}
    current_names: dict[str, str] = {}
    layers = []
    for layer in graph.layers:
        bottoms = tuple(current_names[name] for name in layer.bottoms)
        if layer.is_inserted_split:
            current_names.update(dict.fromkeys(layer.tops, bottoms[0]))
            continue
        tops = tuple(
            top
            if layer.type.is_input or (last_writers[top] == layer.key and top not in inputs)
            else f"{top}/{layer.key}"
            for top in layer.tops
        )
        current_names.update(zip(layer.tops, tops, strict=True))
        layers.append(replace(layer, bottoms=bottoms, tops=tops))
    return layers, current_names


def output_and_loss_names(graph: Graph) -> tuple[str, ...]:
    """Return the names of a net's outputs and loss blobs. Its total loss can be computed from these blobs.

    The result is empty if the loss cannot be computed from them, because a loss blob has no name in the net, or
    because two layers have a top with the name of a loss blob.
    """
    makers, roots = Counter(top for layer in graph.layers for top in layer.tops), graph.split_roots
    if UNNAMED_TOP in graph.loss_weights or any(makers[roots.get(name, name)] > 1 for name in graph.loss_weights):
        return ()
    return tuple(dict.fromkeys((*graph.outputs, *graph.loss_weights)))
