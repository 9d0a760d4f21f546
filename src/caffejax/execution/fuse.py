"""The pass that fuses layers: a layer with those that follow in place, where its type computes them faster together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import jax
import jax.numpy as jnp

from ..graph import Graph, Layer
from ..layers.epilogue import Epilogue
from .model import Part, Schedule, Step


def fuse(schedule: Schedule) -> Schedule:
    """Fuse layers within each part; gradients by rules want every layer by itself."""
    return replace(schedule, parts=tuple(_fused(schedule.graph, part) for part in schedule.parts))


def keep_apart(schedule: Schedule, blobs: frozenset[str]) -> Schedule:
    """Undo the fusion of layers that work on these blobs, so that each of their values is there."""

    def apart(step: Step) -> tuple[Step, ...]:
        if blobs.isdisjoint(step.first.tops):
            return (step,)
        return tuple(Step((layer,)) for layer in step.layers)

    parts = (replace(part, steps=tuple(s for step in part.steps for s in apart(step))) for part in schedule.parts)
    return replace(schedule, parts=tuple(parts)) if blobs else schedule


def _fused(graph: Graph, part: Part) -> Part:
    if part.how == "host":
        return part
    return replace(part, steps=tuple(_steps(graph, part.layers)))


def _steps(graph: Graph, layers: Sequence[Layer]) -> Iterator[Step]:
    done = 0
    for i, layer in enumerate(layers):
        if i >= done:
            done = i + 1 + _n_fused(graph, layer, layers[i + 1 :])
            yield Step(tuple(layers[i:done]))


def _n_fused(graph: Graph, layer: Layer, later: Sequence[Layer]) -> int:
    """Return how many of the layers after it are fused with a layer."""
    if (
        layer.type.fusion is None
        or not layer.context.fast
        or layer.context.run.backward == "rules"
        or any(layer.loss_weights)
    ):
        return 0
    epilogues = [_epilogue(other) for other in takewhile(lambda other: _follows(layer, other), later)]
    if not epilogues:
        return 0
    return layer.type.fusion.fusible(layer.context, graph.blobs[layer.bottoms[0]], epilogues)


def _follows(layer: Layer, other: Layer) -> bool:
    """Return whether `other` works in place on a layer's only top, and nothing stops a gradient between them."""
    alone = other.in_place and layer.tops == other.tops
    return alone and not any(other.loss_weights) and not any(other.gradient_stops)


def _epilogue(layer: Layer) -> Epilogue:
    return Epilogue(layer.context, tuple(jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.owned))
