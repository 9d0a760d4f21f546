"""Partition of a net into parts that run as oneDNN programs, and parts that run in NumPy or that XLA compiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from ...base.errors import CaffejaxError, GraphError
from ...core.graph import Graph, Layer
from ...core.graph.reshape import with_batch
from ...core.program.interpreter import VariableTrees
from ...core.program.schedule import LayerSchedule, Part, make_part, schedule_layers
from ...core.program.targets import find_readers, translate
from ..kernels.onednn_program import Executable
from .layer_lowerings import ONEDNN, OnednnCall
from .low_precision import LowPrecision
from .program_builder import ProgramBuilder, Value

# Nets with a blob of this size for one image run one image at a time, so that blobs stay in the cache. In larger
# batches up to four images share each read of the weights, if their blobs also fit in the cache.
_LARGE_BYTES = 1 << 20
_LARGE_BATCH = 8
_CACHE_BYTES = 16 << 20
_MAX_AXES = 12  # of oneDNN's arrays


@dataclass(frozen=True, eq=False)
class OnednnPart:
    """A part of a net that runs as a oneDNN program.

    Attributes:
        part: the layers.
        executable: the program. The batch size of a call may be a multiple of the program's batch size.
        weights: the weights in Caffe's shapes, as objects that `np.asarray` can convert. After the weights have been
            packed, which means converted to oneDNN's order, the tuple is empty.
        reads: the names of the blobs that are arguments of the program.
        writes: the names of the blobs that are results of the program.
    """

    part: Part
    executable: Executable
    weights: tuple[Any, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def partition(
    graph: Graph, full_graph: Graph, variables: VariableTrees, low_precision: LowPrecision | None = None
) -> tuple[LayerSchedule, dict[Any, OnednnPart]]:
    """Partition a graph into oneDNN programs and other parts.

    Args:
        graph: the graph without the layers that `remove_constants` removes.
        full_graph: the graph with these layers, which is used to compute shapes for a smaller batch.
        variables: the parameters and state of the layers.
        low_precision: the number type of the programs, or None for float32.

    Returns:
        The schedule of all parts, and the parts that are oneDNN programs, by the key of the part.
    """
    schedule, small_batch_graph = schedule_layers(graph), _small_batch_graph(full_graph)
    parts: list[Part] = []
    onednn_parts: dict[Any, OnednnPart] = {}
    readers = find_readers(graph.layers, graph.outputs)
    for part in schedule.parts:
        if part.mode != "traced" or any(graph.blobs[name].dtype != np.float32 for name in part.writes):
            parts.append(part)
            continue
        for new_part, builder in _split_for_onednn(part, graph, small_batch_graph, variables, readers):
            parts.append(new_part)
            if builder is not None and (onednn_part := builder.compile(low_precision)) is not None:
                onednn_parts[new_part.key] = onednn_part
    return replace(schedule, parts=tuple(parts)), onednn_parts


def _split_for_onednn(
    part: Part,
    graph: Graph,
    small_batch_graph: Graph | None,
    variables: VariableTrees,
    readers: Mapping[str, Sequence[Layer | None]],
) -> list[tuple[Part, _OnednnPartBuilder | None]]:
    """Split a part into parts that oneDNN can run and parts that XLA compiles.

    First, all layers whose types have a lowering are assigned to oneDNN. If the lowerings of some layers return None,
    these layers are assigned to XLA and the part is split again, until all lowerings succeed.

    Args:
        part: the part to split.
        graph: the graph without the layers that `remove_constants` removes.
        small_batch_graph: the graph for a few images, or None.
        variables: the parameters and state of the layers.
        readers: the result of `find_readers` for the graph.

    Returns:
        `(part, builder)` for each new part: the builder of its oneDNN program, or None for XLA.
    """
    lowerable_keys = {layer.key for layer in part.layers if _can_lower(graph, layer)}
    while True:
        new_parts: list[tuple[Part, _OnednnPartBuilder | None]] = []
        rejected_keys: set[str] = set()
        for is_lowerable, layers in _group_layers(part.layers, lowerable_keys):
            if not is_lowerable:
                new_parts.append((make_part(layers), None))
                continue
            for new_layers, new_graph in _split_by_batching(graph, layers, small_batch_graph):
                builder = _OnednnPartBuilder(make_part(new_layers), new_graph, variables, readers)
                rejected_keys |= builder.rejected_keys
                new_parts.append((builder.part, builder))
        if not rejected_keys:
            return new_parts
        lowerable_keys -= rejected_keys


def _group_layers(
    layers: Sequence[Layer], lowerable_keys: AbstractSet[str]
) -> Iterator[tuple[bool, tuple[Layer, ...]]]:
    """Yield groups of layers as `(is_lowerable, layers)`, in an order in which they can be computed.

    Groups of layers in `lowerable_keys` alternate with groups of other layers. Each group is as large as the
    dependencies of the layers allow.
    """
    remaining_layers, is_lowerable = list(layers), False
    while remaining_layers:
        missing_blobs = {top for layer in remaining_layers for top in layer.tops}
        group = []
        for layer in remaining_layers:
            if (layer.key in lowerable_keys) == is_lowerable and missing_blobs.isdisjoint(layer.bottoms):
                group.append(layer)
                missing_blobs.difference_update(layer.tops)
        if group:
            keys = {layer.key for layer in group}
            remaining_layers = [layer for layer in remaining_layers if layer.key not in keys]
            yield is_lowerable, tuple(group)
        is_lowerable = not is_lowerable


def _can_lower(graph: Graph, layer: Layer) -> bool:
    """Return whether a layer has no loss, a type with a lowering, and blobs of float32 with 1 to 12 axes, none empty.

    The settings of the layer are not checked.
    """
    if layer.type.name not in ONEDNN.rules or any(layer.loss_weights):
        return False
    blobs = [graph.blobs[name] for name in (*layer.bottoms, *layer.tops)]
    return all(1 <= len(b.shape) <= _MAX_AXES and 0 not in b.shape and b.dtype == np.float32 for b in blobs)


def _small_batch_graph(graph: Graph) -> Graph | None:
    """Return the graph for the images that run at a time, or None if a layer does not support this batch size.

    The result is None for a net with host layers, because users' code is called for the sizes of the inputs only.
    """
    if graph.has_host_layers:
        return None
    batch_sizes = {size for name in graph.input_names for size in graph.blobs[name].shape[:1]}
    num_images = 1
    if len(batch_sizes) == 1 and min(batch_sizes) >= _LARGE_BATCH:
        image_bytes = max(4 * math.prod(blob.shape[1:]) for blob in graph.blobs.values())
        fitting = [n for n in (4, 3, 2) if min(batch_sizes) % n == 0 and n * image_bytes <= _CACHE_BYTES]
        num_images = next(iter(fitting), 1)
    if all(graph.blobs[name].shape[:1] == (num_images,) for name in graph.input_names):
        return graph
    try:
        return with_batch(graph, num_images)
    except CaffejaxError:
        return None


def _split_by_batching(
    graph: Graph, layers: Sequence[Layer], small_batch_graph: Graph | None
) -> Iterator[tuple[Sequence[Layer], Graph]]:
    """Split layers into one or two groups, each for one program, and yield `(layers, graph)` for each group.

    The graph contains the shapes for which the program is built, either for the full batch or for a few images. If
    images are large, the layers before the first InnerProduct run on one or a few images at a time. The InnerProduct
    and later layers run on the full batch, so that weights are read only once.
    """
    first_dense = next((i for i, layer in enumerate(layers) if layer.type.traits.weight_axes == 2), len(layers))
    divided_layers, batched_layers = layers[:first_dense], layers[first_dense:]
    if (
        small_batch_graph is None
        or not divided_layers
        or not _runs_in_small_batches(graph, small_batch_graph, divided_layers)
    ):
        yield layers, graph
        return
    yield divided_layers, small_batch_graph
    if batched_layers:
        yield batched_layers, graph


def _runs_in_small_batches(graph: Graph, small_batch_graph: Graph, layers: Sequence[Layer]) -> bool:
    """Return whether layers compute each image independently, and a blob of one image has at least 1 MiB.

    A layer is assumed to compute each image independently if only axis 0 of its blobs depends on the batch size.
    """
    names = {name for layer in layers for name in (*layer.bottoms, *layer.tops)}
    shapes, small_shapes = ([g.blobs[name].shape for name in names] for g in (graph, small_batch_graph))
    batch_sizes, small_batch_sizes = ({shape[0] for shape in s} for s in (shapes, small_shapes))
    is_per_image = [shape[1:] for shape in shapes] == [shape[1:] for shape in small_shapes]
    is_large = max(4 * math.prod(shape[1:]) for shape in shapes) >= _LARGE_BYTES
    return len(batch_sizes) == len(small_batch_sizes) == 1 and is_per_image and is_large


class _OnednnPartBuilder:
    """Builds the oneDNN program of a part.

    Args:
        part: the layers.
        graph: the graph with the shapes of the layers' blobs.
        variables: the parameters and state of the layers.
        readers: the readers of each blob of the net; see `find_readers`.

    Attributes:
        part: the layers.
        rejected_keys: the keys of the layers that oneDNN does not support. The program can be used if there are none.
    """

    def __init__(
        self, part: Part, graph: Graph, variables: VariableTrees, readers: Mapping[str, Sequence[Layer | None]]
    ) -> None:
        self.part, self._graph, self._variables, self._readers = part, graph, variables, readers
        self._program_builder = ProgramBuilder([graph.blobs[name].shape for name in part.reads])
        keys, names = {layer.key for layer in part.layers}, [top for layer in part.layers for top in layer.tops]
        self._writes = tuple(
            top for top in names if any(reader is None or reader.key not in keys for reader in readers.get(top, ()))
        )
        self.rejected_keys: set[str] = set()
        values = {name: self._program_builder.argument(i) for i, name in enumerate(part.reads)}
        problems = translate(part.layers, values, self._lower, self._placeholder)
        if problems:
            raise GraphError(chain.from_iterable(problems.values()))
        self._names = {value.number: name for name, value in values.items()}
        self._results = [values[name] for name in self._writes]

    def compile(self, low_precision: LowPrecision | None) -> OnednnPart | None:
        """Create the oneDNN primitives of the program; return the part, or None if oneDNN cannot compute it."""
        try:
            executable = Executable(self._program_builder.make_program(self._results, self._names, low_precision))
        except ValueError:
            return None
        return OnednnPart(self.part, executable, tuple(self._program_builder.weights), self.part.reads, self._writes)

    def _lower(self, layer: Layer, bottoms: tuple[Value, ...]) -> dict[str, Value]:
        """Add a layer to the program, or note that oneDNN does not support it; return the values of its tops."""
        arrays = layer.arrays(*self._variables)
        tops = ONEDNN.match(OnednnCall(layer, arrays, bottoms, self._graph.blobs, self._program_builder))
        if tops is None:
            self.rejected_keys.add(layer.key)
            return {top: self._placeholder(top) for top in layer.tops}
        for name, value in tops.items():
            if name in self._writes or len(self._readers.get(name, ())) > 1:
                self._program_builder.mark_shared(value)
        return tops

    def _placeholder(self, blob: str) -> Value:
        return Value(0, self._graph.blobs[blob].shape)
