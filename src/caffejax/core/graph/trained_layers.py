"""Layers of two nets that belong together by name, such as those of a test net and of the train net.

The params of a net are shared with the other net layer by layer: which layer owns an array, and whether this layer
exists in the other net, does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from .graph import Graph, Layer, Param, Slot


def match_layers(graph: Graph, source: Graph) -> dict[str, Layer]:
    """Return the layer of `source` that belongs to each layer of `graph`, by the key of the latter.

    Layers belong together if their names are equal. If several layers have one name, which Caffe allows, they belong
    together if their tops are equal, too; the others of this name are matched in order.
    """
    unmatched: dict[str, list[Layer]] = defaultdict(list)
    for layer in source.layers:
        unmatched[layer.name].append(layer)
    matches: dict[str, Layer] = {}
    for compares_tops in (True, False):
        for layer in graph.layers:
            others = [x for x in unmatched[layer.name] if x.tops == layer.tops or not compares_tops]
            if others and layer.key not in matches:
                matches[layer.key] = others[0]
                unmatched[layer.name].remove(others[0])
    return matches


def find_source_params(graph: Graph, source: Graph) -> dict[Slot, Param]:
    """Return the param of `source` for each array of `graph`, by the array's slot.

    An array is found by every layer that uses it, so that an owner which `source` lacks gets the array of the layers
    that share it. Arrays without such a layer are left out.
    """
    matches, sources = match_layers(graph, source), dict[Slot, Param]()
    for layer in graph.layers:
        if layer.key in matches:
            for param, source_param in zip(layer.params, matches[layer.key].params, strict=False):
                sources.setdefault(param.owner, source_param)
    return sources


def separate_params(graph: Graph, source: Graph) -> Graph:
    """Return the graph with a separate array for each param that `source` does not share as `graph` does.

    Each layer can then use the array that its layer in `source` uses, as in Caffe.
    """
    matches, sources = match_layers(graph, source), find_source_params(graph, source)
    owners: dict[tuple[Slot, Slot], Slot] = {}  # by the owners in both graphs

    def find_owner(param: Param, source_param: Param) -> Slot:
        if source_param.owner == sources[param.owner].owner:
            return param.owner
        return owners.setdefault((param.owner, source_param.owner), param.slot)

    def separate(layer: Layer) -> Layer:
        if layer.key not in matches:
            return layer
        params = list(layer.params)
        for i, source_param in enumerate(matches[layer.key].params[: len(params)]):
            params[i] = replace(params[i], owner=find_owner(params[i], source_param))
        return replace(layer, params=tuple(params))

    layers = tuple(map(separate, graph.layers))
    return replace(graph, layers=layers) if owners else graph
