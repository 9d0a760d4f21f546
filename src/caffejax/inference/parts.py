"""The pass that cuts a schedule into what oneDNN runs as programs and what is left to XLA."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CaffejaxError
from ..execution import Part, Schedule, Trees, plan
from ..execution.schedule import part_of
from ..graph import Graph, Layer
from ..graph.reshape import with_batch
from ..kernels import frozen
from .lowering import LOWERINGS, Call
from .program import Value, Writer

_LARGE = 1 << 20  # bytes of a blob of one image from which on images are computed one by one: they stay in the cache


@dataclass(frozen=True, eq=False)
class Lowered:
    """A part as a program.

    Attributes:
        part: the layers.
        executable: the program, for as many images as its arguments have.
        weights: its weights in Caffe's order: what NumPy can make arrays of; none once they are packed.
        reads: the blobs that it is given.
        makes: the blobs that it gives, and their shapes there.
    """

    part: Part
    executable: frozen.Executable
    weights: tuple[Any, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def lower(graph: Graph, one: Graph | None, variables: Trees) -> tuple[Schedule, dict[Any, Lowered]]:
    """Cut a graph into parts: those that are programs, by the part's key, and others.

    Args:
        graph: the layers.
        one: the same for one image, if that can be; see `of_one_image`.
        variables: their params and state.
    """
    schedule = plan(graph)
    parts: list[Part] = []
    programs: dict[Any, Lowered] = {}
    later = _read_later(graph)
    for part in schedule.parts:
        if part.how != "traced" or any(v.dtype != np.float32 for v in map(graph.blobs.__getitem__, part.makes)):
            parts.append(part)
            continue
        for able, layers in _grouped(part.layers, {x.key for x in part.layers if _able(graph, x, variables)}):
            for stage in _stages(graph, layers, one) if able else [(layers, graph)]:
                made = part_of(stage[0])
                parts.append(made)
                if able and (found := _lowered(made, stage[1], variables, later)):
                    programs[made.key] = found
    return replace(schedule, parts=tuple(parts)), programs


def _grouped(layers: Sequence[Layer], able: AbstractSet[str]) -> Iterator[tuple[bool, tuple[Layer, ...]]]:
    """Yield layers that are able and others in turn, as many at a time as what they read allows."""
    waiting, kind = list(layers), False
    while waiting:
        missing = {top for layer in waiting for top in layer.tops}
        taken = []
        for layer in waiting:
            if (layer.key in able) == kind and missing.isdisjoint(layer.bottoms):
                taken.append(layer)
                missing.difference_update(layer.tops)
        if taken:
            keys = {layer.key for layer in taken}
            waiting = [layer for layer in waiting if layer.key not in keys]
            yield kind, tuple(taken)
        kind = not kind


def _read_later(graph: Graph) -> Mapping[str, frozenset[str]]:
    """Return the keys of the layers that read each blob; of outputs also "", which is no layer's."""
    readers: dict[str, set[str]] = {name: {""} for name in graph.outputs}
    for layer in graph.layers:
        for bottom in layer.bottoms:
            readers.setdefault(bottom, set()).add(layer.key)
    return {name: frozenset(keys) for name, keys in readers.items()}


def _able(graph: Graph, layer: Layer, variables: Trees) -> bool:
    """Return whether a layer alone can be put into a program."""
    if layer.type.name not in LOWERINGS or any(layer.loss_weights):
        return False
    shapes = [graph.blobs[b] for b in (*layer.bottoms, *layer.tops)]
    if any(not s.shape or 0 in s.shape or s.dtype != np.float32 for s in shapes):
        return False
    writer = Writer([graph.blobs[b].shape for b in layer.bottoms])
    bottoms = [writer.argument(i) for i in range(len(layer.bottoms))]
    return _put(writer, graph, layer, variables, bottoms) is not None


def _put(
    writer: Writer, graph: Graph, layer: Layer, variables: Trees, bottoms: Sequence[Value]
) -> Sequence[Value] | None:
    """Put a layer into a program; return its tops, or None if that cannot be done."""
    blobs = layer.arrays(*variables)
    call = Call(writer, layer.context, blobs, bottoms, [graph.blobs[top].shape for top in layer.tops])
    with layer.located():
        tops = LOWERINGS[layer.type.name](call)
    tops = (tops,) if isinstance(tops, Value) else tops
    return tops if tops is not None and len(tops) == len(layer.tops) else None


def of_one_image(graph: Graph) -> Graph | None:
    """Return a graph for a batch of one, or None if it has layers that do not take that."""
    try:
        return with_batch(graph, 1)
    except CaffejaxError:
        return None


def _stages(graph: Graph, layers: Sequence[Layer], one: Graph | None) -> Iterator[tuple[Sequence[Layer], Graph]]:
    """Yield layers to be computed together, with the graph for as many images as they are computed for at a time.

    Large images go one by one through all that comes before the first product, whose weight is read once for all.
    """
    first = next((i for i, layer in enumerate(layers) if layer.type.name == "InnerProduct"), len(layers))
    begin, end = layers[:first], layers[first:]
    if one is None or not begin or not _one_by_one(graph, one, begin):
        yield layers, graph
        return
    yield begin, one
    if end:
        yield end, graph


def _one_by_one(graph: Graph, one: Graph, layers: Sequence[Layer]) -> bool:
    """Return whether layers that are programs are better computed for one image after the other, or are so anyway.

    What programs compute never mixes images but where shapes show it.
    """
    names = {name for layer in layers for name in (*layer.bottoms, *layer.tops)}
    images = {graph.blobs[name].shape[0] for name in names}
    all_by_image = all(graph.blobs[name].shape[1:] == one.blobs[name].shape[1:] for name in names)
    large = max(4 * math.prod(one.blobs[name].shape) for name in names) >= _LARGE
    return len(images) == 1 and {one.blobs[n].shape[0] for n in names} == {1} and all_by_image and large


def _lowered(part: Part, graph: Graph, variables: Trees, later: Mapping[str, AbstractSet[str]]) -> Lowered | None:
    writer = Writer([graph.blobs[name].shape for name in part.reads])
    values = {name: writer.argument(i) for i, name in enumerate(part.reads)}
    own = {layer.key for layer in part.layers}
    reads = Counter(bottom for layer in part.layers for bottom in layer.bottoms)
    makes = tuple(top for layer in part.layers for top in layer.tops if not later.get(top, set()) <= own)
    for layer in part.layers:
        tops = _put(writer, graph, layer, variables, [values[b] for b in layer.bottoms])
        if tops is None:
            return None
        for top, value in zip(layer.tops, tops, strict=True):
            values[top] = value
            if top in makes or reads[top] > 1:
                writer.share(value)
    results = [values[name] for name in makes]
    try:
        executable = frozen.Executable(writer.text(results))
    except ValueError:
        return None
    return Lowered(part, executable, tuple(writer.weights), part.reads, makes)
