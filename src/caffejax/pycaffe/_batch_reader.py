"""Batches of data layers and MemoryData layers, and values of DummyData layers, which are written to a net's tops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from ..base.errors import GraphError
from ..core.data.loader import Loader
from ..core.data.memory_data import ArraySource
from ..core.graph import Graph, Layer
from ..core.layers import CallerInput, SourceInput, TopFiller, Traced
from ..core.layers.python.blob import Blob
from ._arguments import as_array
from ._blob_store import Memories
from ._layer_range import Key, fold_numbers


def make_filled_tops_inputs(graph: Graph) -> Graph:
    """Return the graph with layers that fill their tops, such as DummyData, as inputs, so that their blobs are kept.

    `BatchReader` fills the tops.
    """

    def make_input(layer: Layer) -> Layer:
        implementation = layer.type.implementation
        if not isinstance(implementation, Traced) or implementation.filler is None:
            return layer
        shapes = [graph.blobs[name].shape for name in layer.tops]
        filled_input = CallerInput(lambda ctx: shapes, filler=implementation.filler)
        return replace(layer, context=replace(layer.context, type=replace(layer.type, implementation=filled_input)))

    layers = tuple(map(make_input, graph.layers))
    return graph if layers == graph.layers else replace(graph, layers=layers)


class BatchReader:
    """Reads batches for the data layers and MemoryData layers of a net, and writes them to the tops of these layers.

    It also fills the tops of DummyData layers: those with a constant filler once, when it is created, and the others
    for each pass, as Caffe does. What scripts write to the former stays.

    Args:
        loader: the loader that reads batches of the data layers.
        memories: the arrays of the net, into which the batches are written.
        layers: the net's layers.

    Attributes:
        array_sources: the sources from which MemoryData layers read batches, by layer key.
    """

    def __init__(self, loader: Loader, memories: Memories, layers: Iterable[Layer]) -> None:
        self.array_sources: dict[str, ArraySource] = {}
        self._loader, self._memories = loader, memories
        self._transforms: dict[str, Any] = {}
        self._user_versions: dict[str, int] = {}  # of the tops that users' Python layers have written, by name
        self._fillers: dict[Any, Callable[[Key], Any]] = {}  # by the layer's key and the shapes of its tops
        for layer in layers:
            if (filler := get_filler(layer)) is not None:
                self._fill(layer, filler, None)
            for name, user_top in _get_user_tops(layer):  # what the user's setup wrote
                memories.store(name, jax.device_put(user_top.data.copy(), memories.device))
                self._user_versions[name] = memories.blobs[name].data_memory.version

    def check(self, layers: Iterable[Layer]) -> None:
        """Raise `GraphError` if a MemoryData layer among `layers` has no arrays to read."""
        layers_without_data = [layer for layer in layers if reads_arrays(layer) and layer.key not in self.array_sources]
        if layers_without_data:
            raise GraphError(
                layer.make_problem(
                    "has no data; call set_input_arrays(data, labels) of its net first (solver.net and each of "
                    "solver.test_nets have arrays of their own)"
                )
                for layer in layers_without_data
            )

    def read(self, layers: Iterable[Layer], key: Key) -> None:
        """Store the next batch of each data layer and MemoryData layer among `layers` in the tops, and fill tops.

        Args:
            layers: the Input and data layers of a pass.
            key: the random key of the pass.
        """
        for layer in layers:
            if (filler := get_filler(layer)) is not None:
                self._fill(layer, filler, key)
            elif layer.key in self.array_sources:
                self._store(layer, next(self.array_sources[layer.key])[: len(layer.tops)])
            elif isinstance(layer.type.implementation, SourceInput):
                self._store(layer, tuple(self._loader.read(layer.key).values()))

    def read_arrays(self, layers: Iterable[Layer]) -> dict[str, np.ndarray]:
        """Return the next batch of each data layer among `layers`, by blob name, without storing it in the tops."""
        sources = [layer for layer in layers if isinstance(layer.type.implementation, SourceInput)]
        return {name: array for layer in sources for name, array in self._loader.read(layer.key).items()}

    def write_user_tops(self, layers: Iterable[Layer]) -> None:
        """Give users' Python layers the numbers that scripts wrote to their tops, which they may leave as they are."""
        for name, user_top in (top for layer in layers for top in _get_user_tops(layer)):
            blob = self._memories.blobs[name]
            if blob.data_memory.current_version() != self._user_versions.get(name) and user_top.count == blob.count:
                user_top.data.reshape(-1)[...] = np.asarray(blob.get_data(self._memories.device)).reshape(-1)

    def record_user_tops(self, layers: Iterable[Layer]) -> None:
        """Record that users' Python layers have written their tops."""
        for name, _ in (top for layer in layers for top in _get_user_tops(layer)):
            self._user_versions[name] = self._memories.blobs[name].data_memory.version

    def _fill(self, layer: Layer, filler: TopFiller, key: Key | None) -> None:
        """Fill the tops that are filled in each pass, with its key, or without a key the tops that are filled once."""
        refills = layer.context.call(filler.is_refilled)
        indices = [i for i, is_refilled in enumerate(refills) if is_refilled == (key is not None)]
        names = [layer.tops[i] for i in indices]
        if not names:
            return
        shapes = tuple(self._memories.blobs[name].shape for name in names)

        def fill(key: Key | None) -> list[jax.Array]:
            folded_key = None if key is None else layer.make_fold_in_args(fold_numbers(key))
            pass_context = layer.context.replace(fold_in_args=folded_key)
            return [pass_context.call(filler.fill, i, shape) for i, shape in zip(indices, shapes, strict=True)]

        if key is not None and (layer.key, shapes) not in self._fillers:
            self._fillers[layer.key, shapes] = jax.jit(fill)
        tops = fill(None) if key is None else self._fillers[layer.key, shapes](key)
        for name, array in zip(names, jax.device_put(tops, self._memories.device), strict=True):
            self._memories.store(name, array)

    def _store(self, layer: Layer, arrays: tuple[Any, ...]) -> None:
        tops = jax.device_put(arrays, self._memories.device)
        if layer.device_transform is not None:
            if layer.key not in self._transforms:
                self._transforms[layer.key] = jax.jit(lambda arrays: layer.transform_on_device(arrays))
            tops = self._transforms[layer.key](tops)
        padded = () if layer.source_spec is None else layer.source_spec.padded_tops
        for i, (name, array) in enumerate(zip(layer.tops, tops, strict=True)):
            (self._memories.store_rows if i in padded else self._memories.store)(name, array)


_MISMATCH_MESSAGES = {
    "data": "Input blob arguments do not match net inputs",
    "diff": "Top diff arguments do not match net outputs",
}


def reads_arrays(layer: Layer) -> bool:
    """Return whether a layer reads its batches from arrays, as MemoryData layers do."""
    return isinstance(layer.type.implementation, CallerInput) and layer.type.implementation.from_arrays


def _get_user_tops(layer: Layer) -> list[tuple[str, Blob]]:
    """Return the tops of a user's Python layer, each with the user's blob, except tops that are bottoms, too."""
    user_tops = layer.type.user_tops
    return [(name, blob) for name, blob in zip(layer.tops, user_tops, strict=False) if name not in layer.bottoms]


def get_filler(layer: Layer) -> TopFiller | None:
    """Return the functions by which a layer of `make_filled_tops_inputs` fills its tops, or None if it does not."""
    implementation = layer.type.implementation
    return implementation.filler if isinstance(implementation, CallerInput) else None


def make_array_source(graph: Graph, data: np.ndarray, labels: np.ndarray) -> ArraySource:
    """Return a source of batches from arrays for a net's first layer, which must be MemoryData.

    Raises:
        GraphError: if the arrays do not fit the layer, or the first layer is not MemoryData.
    """
    layer = graph.layers[0]
    if not reads_arrays(layer):
        raise GraphError("set_input_arrays needs a net whose first layer is MemoryData")
    if labels.ndim == 1:
        labels = np.ascontiguousarray(labels[:, None, None, None])
    top = graph.blobs[layer.tops[0]].shape
    _check_arrays(layer, top, data, labels)
    return ArraySource(data, labels, top[0])


def write_batch(
    which: Literal["data", "diff"], arrays: Mapping[str, Any], blobs: Mapping[str, Blob], names: Sequence[str]
) -> None:
    """Write arrays to the data of a net's inputs, or the diffs of its outputs.

    Args:
        which: "data" for inputs, "diff" for outputs.
        arrays: an array for each name.
        blobs: the net's blobs.
        names: the net's inputs or outputs.

    Raises:
        GraphError: if the names of the arrays are not `names`, or an array and its blob differ in the first axis.
    """
    check_names(which, arrays, names)
    noun = "Input" if which == "data" else "Diff"
    for name, array in arrays.items():
        shape = blobs[name].shape
        values = as_array(array, f"the array for '{name}'")
        if values.shape[:1] != shape[:1]:
            raise GraphError(
                f"{noun} is not batch sized: '{name}' has shape {values.shape}, but its blob has shape {shape}; "
                "the first axes must be equal"
            )
        try:
            getattr(blobs[name], which)[...] = values
        except ValueError:
            raise GraphError(
                f"{noun} blob '{name}' has shape {shape}, but its array has shape {values.shape}; to change the size "
                "of an input, call blob.reshape(*shape) and net.reshape() first"
            ) from None


def check_names(which: Literal["data", "diff"], arrays: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise `GraphError` if the names of the arrays are not the `names` of a net's inputs or outputs."""
    if set(arrays) != set(names):
        raise GraphError(f"{_MISMATCH_MESSAGES[which]}: {sorted(arrays)} were given, but the net has {sorted(names)}")


def _check_arrays(layer: Layer, top: tuple[int, ...], data: np.ndarray, labels: np.ndarray) -> None:
    """Raise `GraphError` if a MemoryData layer whose first top has the shape `top` cannot read the arrays."""
    batch_size, *image = top
    problems: list[str] = []
    for name, array, shape in (
        ("data", data, tuple(image)),
        ("labels", labels, (1, 1, 1)),
    ):
        if not array.flags.c_contiguous:
            problems.append(f"{name} array must be C contiguous")
        if array.dtype != np.float32:
            problems.append(f"{name} array must be float32, not {array.dtype}")
        if array.ndim != 4 or array.shape[1:] != shape:
            problems.append(f"{name} array must be of shape (N, {', '.join(map(str, shape))}), not {array.shape}")
    if len(data) != len(labels):
        problems.append(f"data and labels must have the same first dimension, not {len(data)} and {len(labels)}")
    if len(data) % batch_size or not len(data):
        problems.append(
            f"the arrays' first dimension must be a multiple of the batch size {batch_size}, not {len(data)}"
        )
    if problems:
        raise GraphError(map(layer.make_problem, problems))
