"""Inputs for a net: given, read from its data layers, or random; labels are valid class indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import GraphError, Problem, did_you_mean
from ..graph import Layer
from ..net import Net

# types whose tops hold what their bottoms hold
_HANDING_ON = ("Split", "Slice", "Concat", "Flatten", "Reshape")


def feed(net: Net, given: Mapping[str, Any], random: np.random.Generator) -> dict[str, np.ndarray]:
    """A float64 array for each blob that the net is fed.

    Args:
        net: the net.
        given: arrays for some of the blobs.
        random: for the others that no data layer gives.

    Raises:
        GraphError: for names that the net is not fed, and shapes that differ (but in the first axis).
        DataError: if a source cannot be read.
    """
    _check(net, given)
    inputs = dict(given) if given.keys() >= set(net.fed) else {**_read(net), **given}
    limits = _limits(net)
    for name in net.fed:
        if name not in inputs:
            shape = net.graph.blobs[name].shape
            indices = name in limits
            inputs[name] = random.integers(limits[name], size=shape) if indices else random.normal(size=shape)
    return {name: np.asarray(inputs[name], np.float64) for name in net.fed}


def _check(net: Net, given: Mapping[str, Any]) -> None:
    problems = []
    for name, array in given.items():
        if name not in net.fed:
            problems.append(f"the net is not fed a blob '{name}'{did_you_mean(name, net.fed)}")
            continue
        shape, expected = np.shape(array), net.graph.blobs[name].shape
        if len(shape) != len(expected) or shape[1:] != expected[1:]:
            problems.append(f"input '{name}' has shape {shape}, but the net expects {expected}")
    if problems:
        raise GraphError(Problem(p, file=net.graph.file) for p in problems)


def _read(net: Net) -> dict[str, np.ndarray]:
    batches: dict[str, np.ndarray] = {}
    for key, source in net.sources().items():
        try:
            batches.update(zip(net.graph.layer(key).tops, next(source), strict=True))
        finally:
            source.close()
    return batches


def _limits(net: Net) -> dict[str, int]:
    """For each blob that is read as indices, the number that all must stay below."""
    limits: dict[str, int] = {}
    for layer in reversed(net.graph.layers):
        if layer.type.name in _HANDING_ON:
            below = [limits[top] for top in layer.tops if top in limits]
            limits.update(dict.fromkeys(layer.bottoms, min(below)) if below else {})
        for i in layer.index_bottoms:
            name = layer.bottoms[i]
            limits[name] = min(_classes(net, layer, i), limits.get(name, 2**24))
    return limits


def _classes(net: Net, layer: Layer, bottom: int) -> int:
    """How many indices a bottom may hold; 2 (0 and 1 are valid everywhere) if nothing says more."""
    param = layer.context.param
    if hasattr(param, "input_dim"):
        return int(param.input_dim)
    scores, labels = (net.graph.blobs[layer.bottoms[i]].shape for i in (0, bottom))
    axis = getattr(param, "axis", 1)
    if bottom == 0 or not -len(scores) <= axis < len(scores):
        return 2
    classes = scores[axis]
    return classes if classes * np.prod(labels) == np.prod(scores) else 2
