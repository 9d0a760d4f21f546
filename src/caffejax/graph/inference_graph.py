"""What inference needs of a net: each blob made once, and only the layers that lead to what is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ..errors import GraphError, Problem, did_you_mean
from ..layers import type_of
from ..layers.context import without_wiring
from ..schema.caffe_pb2 import LayerParameter
from .graph import AUTOMATIC, Graph, Layer
from .reshape import reshape_graph


def inference_graph(graph: Graph, outputs: Iterable[str] | None = None) -> Graph:
    """Return the layers that some blobs need, each blob made once.

    There are no splits but the prototxt's own, and nothing is computed in place. The last value of a blob keeps its
    name; one that a layer writes over is called `blob/layer`, after the layer that makes it. Data layers are Inputs,
    which the caller feeds; what they feed keeps its name, and what is written over it is called `blob/layer`. Params
    that a layer left out shares with others keep their slots, so that variables of the whole net fit.

    Args:
        graph: a net's graph.
        outputs: the blobs that are wanted; `predictions(graph)` unless given.

    Raises:
        GraphError: naming the blobs that the net does not have, or if there are none to be wanted.
    """
    wanted = tuple(predictions(graph) if outputs is None else outputs)
    unknown = [name for name in wanted if name not in graph.blobs]
    if unknown or not wanted:
        problems = [f"no blob '{name}' in the net{did_you_mean(name, graph.blobs)}" for name in unknown]
        raise GraphError(
            [
                Problem(p, graph.file)
                for p in problems or ["has no outputs; name the blobs that are wanted: `--outputs=A,B`"]
            ]
        )
    layers, names = _each_blob_once(graph)
    outputs = tuple(dict.fromkeys(names[name] for name in wanted))
    needed, kept = set(outputs), list[Layer]()
    for layer in reversed(layers):
        if not needed.isdisjoint(layer.tops):
            kept.append(_as_input(layer, graph, needed) if layer.type.is_fed else layer)
            needed.update(layer.bottoms)
    fed = {top: graph.blobs[top] for layer in reversed(kept) if layer.type.is_fed for top in layer.tops}
    reduced = replace(graph, layers=tuple(reversed(kept)), blobs=fed, inputs=tuple(fed), outputs=outputs)
    return reshape_graph(reduced, {})


def inference_names(graph: Graph) -> dict[str, str]:
    """Return what `inference_graph` calls the last value of each of a net's blobs."""
    return _each_blob_once(graph)[1]


def predictions(graph: Graph) -> tuple[str, ...]:
    """Return what a net predicts: its outputs, and in place of losses and scores what these compare with the truth.

    A net that predicts nothing gives its losses and scores.
    """
    maker = {top: layer for layer in graph.layers for top in layer.tops}  # the last one counts
    learned = _behind_params(graph)
    found: dict[str, None] = {}
    waiting = [name for name in graph.outputs if name in learned]
    unnamed = [layer for layer in graph.layers if AUTOMATIC in layer.tops]  # losses, which V1 lets have no top
    waiting += [bottom for layer in unnamed for bottom in layer.bottoms if bottom in learned]
    while waiting:
        layer = maker[name := waiting.pop(0)]
        if layer.inserted_split or _is_score(layer, learned):
            waiting += [bottom for bottom in layer.bottoms if bottom in learned]
        else:
            found[name] = None
    return tuple(found) or graph.outputs


def _behind_params(graph: Graph) -> set[str]:
    """Return the blobs that depend on params; data and labels do not."""
    found: set[str] = set()
    for layer in graph.layers:
        if layer.params or not found.isdisjoint(layer.bottoms):
            found.update(layer.tops)
    return found


def _is_score(layer: Layer, learned: Collection[str]) -> bool:
    """Return whether it says how good other blobs are: by its type, or as it is weighted and is given the truth too."""
    indices = layer.index_bottoms
    all_labels = 1 < len(layer.bottoms) == len(indices)  # what was found and what is true
    weighted = any(layer.loss_weights) and not all(bottom in learned for bottom in layer.bottoms)
    return layer.type.signature.loss or weighted or all_labels or bool(indices and not layer.type.gradient.exists)


def _as_input(layer: Layer, graph: Graph, needed: Collection[str]) -> Layer:
    """Return a layer that is fed those of its tops that are needed, as they are after whatever it does to its data."""
    tops = tuple(top for top in layer.tops if top in needed)
    message = LayerParameter(name=layer.name, type="Input", top=tops)
    for top in tops:
        message.input_param.shape.add().dim.extend(graph.blobs[top].shape)
    context = replace(layer.context, layer=without_wiring(message), type=type_of(message), per_layer=False)
    site = replace(layer.site, layer=message)
    return Layer(layer.key, context, site, bottoms=(), tops=tops, loss_weights=(0.0,) * len(tops), params=())


def _each_blob_once(graph: Graph) -> tuple[list[Layer], dict[str, str]]:
    """Return the layers without inserted splits and nothing in place, and by each blob of the graph what it is now."""
    last = {top: layer.key for layer in graph.layers for top in layer.tops}
    fed = {top for layer in graph.layers if layer.type.is_fed for top in layer.tops}
    names: dict[str, str] = {}
    layers = []
    for layer in graph.layers:
        bottoms = tuple(names[name] for name in layer.bottoms)
        if layer.inserted_split:
            names.update(dict.fromkeys(layer.tops, bottoms[0]))
            continue
        tops = tuple(
            top if layer.type.is_fed or (last[top] == layer.key and top not in fed) else f"{top}/{layer.key}"
            for top in layer.tops
        )
        names.update(zip(layer.tops, tops, strict=True))
        layers.append(replace(layer, bottoms=bottoms, tops=tops))
    return layers, names
