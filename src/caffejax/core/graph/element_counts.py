"""Numbers of elements of a graph's parameters and activations."""

from __future__ import annotations

import math

from .graph import Graph, Layer


def count_layer_elements(layer: Layer, graph: Graph) -> tuple[int, int, int]:
    """Return the sizes of a layer.

    Returns:
        The number of elements of the params that no earlier layer uses, the number of elements of its tops that do not
        share memory with a bottom, and the size of these tops in bytes.
    """
    shared_names = layer.tops if layer.type.traits.is_copy else layer.bottoms
    new_tops = [graph.blobs[name] for name in layer.tops if name not in shared_names]
    counts = [math.prod(blob.shape) for blob in new_tops]
    num_bytes = sum(count * blob.dtype.itemsize for count, blob in zip(counts, new_tops, strict=True))
    return sum(math.prod(p.spec.shape) for p in layer.params if p.slot in graph.first_users), sum(counts), num_bytes


def count_elements(graph: Graph) -> tuple[int, int]:
    """Return the number of elements of a net's parameters and the number of elements of its activations."""
    sizes = [count_layer_elements(layer, graph) for layer in graph.layers]
    return sum(parameters for parameters, *_ in sizes), sum(activations for _, activations, _ in sizes)
