"""Inputs for a net: the caller's arrays, batches of its data layers, or random arrays with valid labels."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np

from ...base.errors import GraphError, did_you_mean, raise_if_any
from ..graph import Graph
from ..graph.index_ranges import find_index_ranges
from .loader import open_sources


def complete_inputs(graph: Graph, arrays: Mapping[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return float64 arrays for a net's inputs: its input blobs and the tops of its data layers.

    Args:
        graph: the net's graph.
        arrays: arrays for some of the blobs. The others are read from data layers, or are random.
        rng: the generator for random arrays. Random labels are valid classes or boxes.

    Raises:
        GraphError: if a name is unknown, or a shape differs from the net's in an axis other than the first.
        DataError: if a source cannot be read.
    """
    _check_arrays(graph, arrays)
    inputs = dict(arrays) if arrays.keys() >= set(graph.input_names) else {**_read_batches(graph), **arrays}
    ranges = find_index_ranges(graph, with_parts=True)
    limits = {name: min(r.num_classes for r in items) for name, items in ranges.items()}
    unlimited_blobs = {layer.bottoms[i] for layer in graph.layers for i in layer.index_bottoms} - limits.keys()
    limits |= dict.fromkeys(unlimited_blobs, 2)  # 0 and 1 are valid everywhere
    samplers = {
        layer.bottoms[-1]: (layer, sample) for layer in graph.layers if (sample := layer.type.gradient.indices.sample)
    }
    for name in graph.input_names:
        if name not in inputs:
            shape = graph.blobs[name].shape
            if name in samplers:
                layer, sample = samplers[name]
                inputs[name] = layer.context.call(sample, rng, *(graph.blobs[bottom] for bottom in layer.bottoms))
            elif name in limits:
                inputs[name] = rng.integers(limits[name], size=shape)
            else:
                inputs[name] = rng.normal(size=shape)
    return {name: np.asarray(inputs[name], np.float64) for name in graph.input_names}


def _check_arrays(graph: Graph, arrays: Mapping[str, Any]) -> None:
    problems = []
    for name, array in arrays.items():
        if name not in graph.input_names:
            problems.append(f"the net has no input '{name}'{did_you_mean(name, graph.input_names)}")
            continue
        shape, expected_shape = np.shape(array), graph.blobs[name].shape
        if len(shape) != len(expected_shape) or shape[1:] != expected_shape[1:]:
            problems.append(f"input '{name}' has shape {shape}, but the net expects {expected_shape}")
    raise_if_any(GraphError, problems, graph.file)


def _read_batches(graph: Graph) -> dict[str, np.ndarray]:
    batches: dict[str, np.ndarray] = {}
    for key, source in open_sources(graph).items():
        with closing(source):
            layer = graph.layer(key)
            batches.update(zip(layer.tops, map(np.asarray, layer.transform_on_device(next(source))), strict=True))
    return batches
