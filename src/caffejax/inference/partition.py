"""Partition of a net into parts that run as oneDNN programs and parts that XLA compiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CaffejaxError
from ..execution import Part, Schedule, Trees, make_part, plan
from ..graph import Graph, Layer
from ..graph.reshape import with_batch
from ..kernels.onednn_program import Executable
from .layer_lowerings import LOWERINGS, Call
from .low_precision import LowPrecision
from .program_builder import ProgramBuilder, Value

_LARGE = (
    1 << 20
)  # bytes of a blob of one image; nets with larger blobs run image by image, so that blobs stay in the cache


@dataclass(frozen=True, eq=False)
class LoweredPart:
    """A part that runs as a oneDNN program.

    Attributes:
        part: the layers.
        executable: the program. A call may have n times the batch that the program was built for.
        weights: the weights in Caffe's shapes, which `np.asarray` can convert; empty once they are packed.
        reads: the names of the blobs that are arguments of the program.
        makes: the names of the blobs that are results of the program.
    """

    part: Part
    executable: Executable
    weights: tuple[Any, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def partition(
    graph: Graph, full_graph: Graph, variables: Trees, low: LowPrecision | None = None
) -> tuple[Schedule, dict[Any, LoweredPart]]:
    """Partition a graph into oneDNN programs and other parts.

    Args:
        graph: the graph without the layers whose tops are constants.
        full_graph: the graph with these layers, which is used to compute shapes for a batch of one image.
        variables: the parameters and state of the layers.
        low: the low-precision number type of the programs, or None for float32.

    Returns:
        The schedule of all parts, and the parts that are oneDNN programs, by key.
    """
    schedule, image = plan(graph), _with_one_image(full_graph)
    parts: list[Part] = []
    programs: dict[Any, LoweredPart] = {}
    readers = _readers(graph)
    for part in schedule.parts:
        if part.mode != "traced" or any(graph.blobs[name].dtype != np.float32 for name in part.makes):
            parts.append(part)
            continue
        for stage, builder in _split_for_onednn(part, graph, image, variables, readers):
            parts.append(stage)
            if builder is not None and (lowered := builder.compile(low)) is not None:
                programs[stage.key] = lowered
    return replace(schedule, parts=tuple(parts)), programs


def _split_for_onednn(
    part: Part, graph: Graph, image: Graph | None, variables: Trees, readers: Mapping[str, Counter[str]]
) -> list[tuple[Part, _PartBuilder | None]]:
    """Split a part into parts for oneDNN, each with the builder of its program, and parts for XLA, each with None.

    First, all layers whose types have a lowering are assigned to oneDNN. If lowerings reject the settings of layers,
    these layers are assigned to XLA and the part is split again, until all lowerings succeed.
    """
    lowerable = {layer.key for layer in part.layers if _may_lower(graph, layer)}
    while True:
        stages: list[tuple[Part, _PartBuilder | None]] = []
        rejected: set[str] = set()
        for is_lowerable, layers in _group_layers(part.layers, lowerable):
            if not is_lowerable:
                stages.append((make_part(layers), None))
                continue
            for stage_layers, stage_graph in _stages(graph, layers, image):
                builder = _PartBuilder(make_part(stage_layers), stage_graph, variables, readers)
                rejected |= builder.rejected
                stages.append((builder.part, builder))
        if not rejected:
            return stages
        lowerable -= rejected


def _group_layers(layers: Sequence[Layer], lowerable: AbstractSet[str]) -> Iterator[tuple[bool, tuple[Layer, ...]]]:
    """Yield `(is_lowerable, layers)` groups in an order of execution, alternating between lowerable and other layers.

    Each group is as large as the dependencies of the layers allow. `lowerable` has the keys of the lowerable layers.
    """
    remaining, kind = list(layers), False
    while remaining:
        missing = {top for layer in remaining for top in layer.tops}
        group = []
        for layer in remaining:
            if (layer.key in lowerable) == kind and missing.isdisjoint(layer.bottoms):
                group.append(layer)
                missing.difference_update(layer.tops)
        if group:
            keys = {layer.key for layer in group}
            remaining = [layer for layer in remaining if layer.key not in keys]
            yield kind, tuple(group)
        kind = not kind


def _readers(graph: Graph) -> Mapping[str, Counter[str]]:
    """Return how often each layer reads each blob, `{blob: {layer key: count}}`.

    An output of the graph has the reader "".
    """
    readers: dict[str, Counter[str]] = {name: Counter([""]) for name in graph.outputs}
    for layer in graph.layers:
        for bottom in layer.bottoms:
            readers.setdefault(bottom, Counter()).update([layer.key])
    return readers


def _may_lower(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer's type has a lowering, and its blobs are float32 and not empty.

    The layer's settings are not checked.
    """
    if layer.type.name not in LOWERINGS or any(layer.loss_weights):
        return False
    blobs = [graph.blobs[name] for name in (*layer.bottoms, *layer.tops)]
    return all(b.shape and 0 not in b.shape and b.dtype == np.float32 for b in blobs)


def _with_one_image(graph: Graph) -> Graph | None:
    """Return the graph for a batch of one image, or None if a layer does not support that batch."""
    if all(graph.blobs[name].shape[:1] == (1,) for name in graph.input_names):
        return graph
    try:
        return with_batch(graph, 1)
    except CaffejaxError:
        return None


def _stages(graph: Graph, layers: Sequence[Layer], image: Graph | None) -> Iterator[tuple[Sequence[Layer], Graph]]:
    """Split layers into groups that are each one program, and yield `(layers, graph)` for each group.

    The graph has the shapes of the program, either for the full batch or for one image. If images are large, the layers
    before the first matrix product run image by image, so that blobs stay in the cache. The matrix product and later
    layers run on the full batch, so that weights are read only once.
    """
    first = next((i for i, layer in enumerate(layers) if layer.type.traits.weight_axes == 2), len(layers))
    begin, end = layers[:first], layers[first:]
    if image is None or not begin or not _runs_image_by_image(graph, image, begin):
        yield layers, graph
        return
    yield begin, image
    if end:
        yield end, graph


def _runs_image_by_image(graph: Graph, image: Graph, layers: Sequence[Layer]) -> bool:
    """Return whether layers compute each image independently, and a blob of one image has at least 1 MiB.

    A layer counts as independent if the shapes of its blobs, except for the batch axis, do not depend on the batch.
    """
    names = {name for layer in layers for name in (*layer.bottoms, *layer.tops)}
    batches = {graph.blobs[name].shape[0] for name in names}
    by_image = all(graph.blobs[name].shape[1:] == image.blobs[name].shape[1:] for name in names)
    large = max(4 * math.prod(image.blobs[name].shape) for name in names) >= _LARGE
    return len(batches) == 1 and {image.blobs[n].shape[0] for n in names} == {1} and by_image and large


class _PartBuilder:
    """Builds the oneDNN program of a part.

    Args:
        part: the layers.
        graph: the graph with the shapes of their blobs.
        variables: the parameters and state of the layers.
        readers: how often each layer of the full graph reads each blob.

    Attributes:
        part: the layers.
        rejected: the keys of the layers that oneDNN does not support. If it is not empty, the program cannot be used.
    """

    def __init__(self, part: Part, graph: Graph, variables: Trees, readers: Mapping[str, Counter[str]]) -> None:
        self.part, self._graph, self._variables = part, graph, variables
        self._builder = ProgramBuilder([graph.blobs[name].shape for name in part.reads])
        values = {name: self._builder.argument(i) for i, name in enumerate(part.reads)}
        self._names = {value.number: name for name, value in values.items()}
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
                self._names[value.number] = top
                if top in self._makes or readers.get(top, Counter()).total() > 1:
                    self._builder.mark_shared(value)
        self._results = [values[name] for name in self._makes]

    def compile(self, low: LowPrecision | None) -> LoweredPart | None:
        """Create the oneDNN primitives of the program, or return None if oneDNN cannot compute it."""
        try:
            executable = Executable(self._builder.finish(self._results, self._names, low))
        except ValueError:
            return None
        return LoweredPart(self.part, executable, tuple(self._builder.weights), self.part.reads, self._makes)

    def _lower(self, layer: Layer, bottoms: Sequence[Value]) -> Sequence[Value] | None:
        """Add a layer to the program, and return the values of its tops; None if oneDNN does not support the layer."""
        blobs = layer.arrays(*self._variables)
        shapes = [self._graph.blobs[top].shape for top in layer.tops]
        with layer.locate_errors():
            tops = LOWERINGS[layer.type.name](Call(self._builder, layer.context, blobs, bottoms, shapes))
        tops = (tops,) if isinstance(tops, Value) else tops
        return tops if tops is not None and len(tops) == len(layer.tops) else None
