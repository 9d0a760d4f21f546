"""Partition of a schedule into parts that oneDNN runs as programs and parts that XLA runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CaffejaxError
from ..execution import Part, Schedule, Trees, part_of, plan
from ..graph import Graph, Layer
from ..graph.reshape import with_batch
from ..kernels.onednn_program import Executable
from .layer_lowerings import LOWERINGS, Call
from .program import ProgramBuilder, Value

_LARGE = 1 << 20  # bytes of a blob of one image; larger images are computed one by one, to stay in the cache


@dataclass(frozen=True, eq=False)
class Lowered:
    """A part that runs as a oneDNN program.

    Attributes:
        part: the layers.
        executable: the program; the batch of its arguments may be a multiple of the program's.
        weights: its weights in Caffe's order, convertible by NumPy; empty once they are packed.
        reads: names of the blobs that are its arguments.
        makes: names of the blobs that are its results.
    """

    part: Part
    executable: Executable
    weights: tuple[Any, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def partition(graph: Graph, whole: Graph, variables: Trees) -> tuple[Schedule, dict[Any, Lowered]]:
    """Partition a graph.

    Args:
        graph: the layers, without those whose tops are constants.
        whole: the graph with them.
        variables: their params and state.

    Returns:
        The schedule, and those of its parts that are programs, by key.
    """
    schedule, image = plan(graph), _one_image(whole)
    parts: list[Part] = []
    programs: dict[Any, Lowered] = {}
    readers = _readers(graph)
    for part in schedule.parts:
        if part.how != "traced" or any(graph.blobs[name].dtype != np.float32 for name in part.makes):
            parts.append(part)
            continue
        for stage, builder in _stages_of(part, graph, image, variables, readers):
            parts.append(stage)
            if builder is not None and (lowered := builder.compile()) is not None:
                programs[stage.key] = lowered
    return replace(schedule, parts=tuple(parts)), programs


def _stages_of(
    part: Part, graph: Graph, image: Graph | None, variables: Trees, readers: Mapping[str, Counter[str]]
) -> list[tuple[Part, _PartBuilder | None]]:
    """Return the parts that a part is split into, each with its program builder, or None for XLA.

    First all layers of types with a lowering are lowered. If some have unsupported settings, the part is split again
    without them.
    """
    able = {layer.key for layer in part.layers if _may_lower(graph, layer)}
    while True:
        stages: list[tuple[Part, _PartBuilder | None]] = []
        rejected: set[str] = set()
        for is_able, layers in _grouped(part.layers, able):
            if not is_able:
                stages.append((part_of(layers), None))
                continue
            for stage_layers, stage_graph in _stages(graph, layers, image):
                builder = _PartBuilder(part_of(stage_layers), stage_graph, variables, readers)
                rejected |= builder.rejected
                stages.append((builder.part, builder))
        if not rejected:
            return stages
        able -= rejected


def _grouped(layers: Sequence[Layer], able: AbstractSet[str]) -> Iterator[tuple[bool, tuple[Layer, ...]]]:
    """Yield groups of able and other layers in turn, each as large as the dependencies allow."""
    waiting, kind = list(layers), False
    while waiting:
        missing = {top for layer in waiting for top in layer.tops}
        group = []
        for layer in waiting:
            if (layer.key in able) == kind and missing.isdisjoint(layer.bottoms):
                group.append(layer)
                missing.difference_update(layer.tops)
        if group:
            keys = {layer.key for layer in group}
            waiting = [layer for layer in waiting if layer.key not in keys]
            yield kind, tuple(group)
        kind = not kind


def _readers(graph: Graph) -> Mapping[str, Counter[str]]:
    """Return how often each layer reads each blob, by blob and the layer's key; an output has the reader ""."""
    readers: dict[str, Counter[str]] = {name: Counter([""]) for name in graph.outputs}
    for layer in graph.layers:
        for bottom in layer.bottoms:
            readers.setdefault(bottom, Counter()).update([layer.key])
    return readers


def _may_lower(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer's type has a lowering for blobs of these shapes and dtypes; settings are not checked."""
    if layer.type.name not in LOWERINGS or any(layer.loss_weights):
        return False
    blobs = [graph.blobs[name] for name in (*layer.bottoms, *layer.tops)]
    return all(b.shape and 0 not in b.shape and b.dtype == np.float32 for b in blobs)


def _one_image(graph: Graph) -> Graph | None:
    """Return the graph for a batch of one, or None if a layer does not support that."""
    if all(graph.blobs[name].shape[:1] == (1,) for name in graph.input_names):
        return graph
    try:
        return with_batch(graph, 1)
    except CaffejaxError:
        return None


def _stages(graph: Graph, layers: Sequence[Layer], image: Graph | None) -> Iterator[tuple[Sequence[Layer], Graph]]:
    """Yield layers that are computed together, with the graph for the batch that is computed at a time.

    Large images are computed one by one up to the first InnerProduct, which reads its weight once for the whole batch.
    """
    first = next((i for i, layer in enumerate(layers) if layer.type.name == "InnerProduct"), len(layers))
    begin, end = layers[:first], layers[first:]
    if image is None or not begin or not _one_by_one(graph, image, begin):
        yield layers, graph
        return
    yield begin, image
    if end:
        yield end, graph


def _one_by_one(graph: Graph, image: Graph, layers: Sequence[Layer]) -> bool:
    """Return whether the layers compute each image independently, and run faster on single images.

    A program mixes images only where the shapes show it.
    """
    names = {name for layer in layers for name in (*layer.bottoms, *layer.tops)}
    batches = {graph.blobs[name].shape[0] for name in names}
    by_image = all(graph.blobs[name].shape[1:] == image.blobs[name].shape[1:] for name in names)
    large = max(4 * math.prod(image.blobs[name].shape) for name in names) >= _LARGE
    return len(batches) == 1 and {image.blobs[n].shape[0] for n in names} == {1} and by_image and large


class _PartBuilder:
    """The program of a part under construction.

    Args:
        part: the layers.
        graph: the shapes of their blobs.
        variables: their params and state.
        readers: how often each layer of the whole graph reads each blob.

    Attributes:
        part: the layers.
        rejected: keys of the layers that could not be lowered; then the program is of no use.
    """

    def __init__(self, part: Part, graph: Graph, variables: Trees, readers: Mapping[str, Counter[str]]) -> None:
        self.part, self._graph, self._variables = part, graph, variables
        self._builder = ProgramBuilder([graph.blobs[name].shape for name in part.reads])
        values = {name: self._builder.argument(i) for i, name in enumerate(part.reads)}
        members = {layer.key for layer in part.layers}
        tops = [top for layer in part.layers for top in layer.tops]
        self._makes = tuple(top for top in tops if not readers.get(top, Counter()).keys() <= members)
        self.rejected: set[str] = set()
        for layer in part.layers:
            lowered = self._lower(layer, [values[b] for b in layer.bottoms])
            if lowered is None:
                self.rejected.add(layer.key)
                lowered = [Value(0, graph.blobs[top].shape) for top in layer.tops]
            for top, value in zip(layer.tops, lowered, strict=True):
                values[top] = value
                if top in self._makes or readers.get(top, Counter()).total() > 1:
                    self._builder.share(value)
        self._results = [values[name] for name in self._makes]

    def compile(self) -> Lowered | None:
        """Create the oneDNN primitives; return None if oneDNN cannot compute the program."""
        try:
            executable = Executable(self._builder.finish(self._results))
        except ValueError:
            return None
        return Lowered(self.part, executable, tuple(self._builder.weights), self.part.reads, self._makes)

    def _lower(self, layer: Layer, bottoms: Sequence[Value]) -> Sequence[Value] | None:
        """Add a layer to the program; return its tops, or None if oneDNN cannot compute it."""
        blobs = layer.arrays(*self._variables)
        shapes = [self._graph.blobs[top].shape for top in layer.tops]
        with layer.located():
            tops = LOWERINGS[layer.type.name](Call(self._builder, layer.context, blobs, bottoms, shapes))
        tops = (tops,) if isinstance(tops, Value) else tops
        return tops if tops is not None and len(tops) == len(layer.tops) else None
