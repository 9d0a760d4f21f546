"""The loader, which reads the batches of all data layers of a net together."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...base.errors import GraphError, Problem, locate_errors
from ..graph import Graph
from ..graph.index_ranges import IndexRange, check_labels, find_index_ranges
from ..graph.reshape import reshape_graph
from ..layers import CallerInput, Position, Source, SourceInput
from ..layers.data_source import ShardedSource
from .data_identity import describe_source
from .user_data import UserData

log = logging.getLogger("caffejax.data")


def open_sources(graph: Graph) -> dict[str, Source]:
    """Open a new source for each data layer, and return the sources by the layers' keys. The caller closes them.

    A Python layer that reads data has only one source, which continues at its current position.

    Raises:
        DataError: if a source cannot be opened.
    """
    return {
        layer.key: layer.type.implementation.open(layer.definition, layer.source_spec.tops)
        for layer in graph.layers
        if isinstance(layer.type.implementation, SourceInput) and layer.source_spec is not None
    }


class Loader(Iterator[dict[str, Any]]):
    """An endless iterator over the batches of all data layers of a net, or over the shard in `NetConfig`.

        loader = caffejax.Loader(net.graph)
        for batch in loader.epoch():  # len(loader) batches
            ...

    Batch n consists of the nth batch of every source, counted from the start of training. After a restore, n is the
    position of the first `ShardedSource`, or 0 if there is none. So all processes agree on the shard of a batch.

    Args:
        graph: the net's graph.
        read_caller_inputs: a function that returns the arrays of the Input layers' tops by blob name. With it, the
            caller may also reshape the net.
        user_data: the data of the Input layers, instead of `read_caller_inputs`.

    Attributes:
        pad_rows: a function that adds rows of padding to each batch, or None.

    Raises:
        GraphError: if there are Input layers, but neither `read_caller_inputs` nor `user_data`.
        DataError: if a source cannot be opened.
    """

    def __init__(
        self,
        graph: Graph,
        read_caller_inputs: Callable[[], Mapping[str, Any]] | None = None,
        user_data: UserData | None = None,
    ) -> None:
        if not graph.layers:
            raise GraphError(Problem("the net has no layers in this phase", file=graph.file))
        input_layers = [layer for layer in graph.layers if isinstance(layer.type.implementation, CallerInput)]
        if input_layers and read_caller_inputs is None and user_data is None:
            raise GraphError(
                layer.make_problem("has no data; replace it by a data layer, such as Data, ImageData or HDF5Data")
                for layer in input_layers
            )
        self._graph = graph
        self._read_caller_inputs = read_caller_inputs
        self._user_data = user_data
        self._sources = open_sources(graph)
        self._shard = graph.layers[0].definition.config.shard
        self._shared_sources = {
            key: source for key, source in self._sources.items() if isinstance(source, ShardedSource)
        }
        self._next_index = self._find_next_index()
        self._positions: dict[str, Position] = {**self._sources, **_layer_positions(graph)}
        if input_layers and user_data is not None:
            self._positions[input_layers[0].key] = user_data  # one position for all Input layers
        self.pad_rows: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
        self._compiled_shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._tops_by_layer = {layer.key: layer.tops for layer in graph.layers}
        self._index_ranges = find_index_ranges(graph)
        _warn_of_wrong_labels(self._index_ranges)

    def __next__(self) -> dict[str, Any]:
        """Return the shard's next batch of all sources and Input layers, by blob name.

        Raises:
            DataError: if a batch cannot be read, or has a label that is not among the classes of a loss or a metric.
            GraphError: if the net cannot be reshaped to the shapes of the batch.
        """
        while True:
            if (batch := self._advance()) is not None:
                return batch

    def __len__(self) -> int:
        """Return the number of batches of `epoch`, counted over all shards.

        Raises:
            TypeError: if no source knows its number of examples, as WindowData, Python layers and user data do not.
        """
        for source in self._sources.values():
            num_examples = getattr(source, "num_examples", None)
            if num_examples is not None and (batch_size := getattr(source, "batch_size", None)) is not None:
                return math.ceil(num_examples / batch_size)
        raise TypeError(
            "the loader has no length, because none of its sources knows its number of examples; take as many batches "
            "as you need, such as itertools.islice(loader, 100)"
        )

    def epoch(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over the next `len(loader)` batches, an epoch of the first source.

        It returns the batches of the shard. As in Caffe, batches are full: the last one ends with the first examples
        of the next epoch if the batch size does not divide the number of examples, and the next epoch continues after
        it. The errors are those of `__len__` and `__next__`.
        """
        return (batch for _ in range(len(self)) if (batch := self._advance()) is not None)

    def take(self, n: int) -> list[dict[str, Any]]:
        """Advance by n batches, counted over all shards, and return those that belong to this shard, in order.

        Batches may have different shapes. The errors are the same as in `__next__`.
        """
        return [batch for _ in range(n) if (batch := self._advance()) is not None]

    @property
    def next_index(self) -> int:
        """The number of the next batch, counted over all shards. It determines the shard of the batch."""
        return self._next_index

    def describe_data(self) -> dict[str, str]:
        """Return the number of examples and a checksum of each source's data, by layer; see `describe_source`."""
        texts = {key: describe_source(self._graph.layer(key).definition, s) for key, s in self._sources.items()}
        return texts if self._user_data is None else {**texts, "Input": self._user_data.describe()}

    @property
    def num_examples(self) -> int | None:
        """The number of examples in an epoch of the first source that knows this number, or None."""
        counts = (getattr(source, "num_examples", None) for source in self._sources.values())
        return next((n for n in counts if n is not None), None)

    def read(self, layer: str) -> dict[str, np.ndarray]:
        """Return the shard's next batch of one source, by blob name. The errors are the same as in `__next__`."""
        return self._name_arrays(layer, next(self._sources[layer]))

    def _advance(self) -> dict[str, Any] | None:
        """Advance by one batch. Return it if it belongs to the shard, otherwise None."""
        is_local = self._shard.owns(self._next_index)
        batch: dict[str, Any] = dict(self._read_caller_inputs()) if self._read_caller_inputs else {}
        if self._user_data is not None:
            user_arrays = next(self._user_data)
            if is_local:
                check_labels(user_arrays, self._index_ranges)
                batch |= user_arrays
        for key, source in self._sources.items():
            shared_source = self._shared_sources.get(key)
            arrays = next(source) if shared_source is None else shared_source.take(self._next_index)
            if is_local and arrays is not None:
                batch |= self._name_arrays(key, arrays)
        self._next_index += 1
        if not is_local:
            return None
        if self.pad_rows is not None:
            batch = self.pad_rows(batch)
        self._check_shapes(batch)
        return batch

    def _find_next_index(self) -> int:
        return next((source.next_index for source in self._shared_sources.values()), 0)

    def _name_arrays(self, layer: str, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
        batch = dict(zip(self._tops_by_layer[layer], arrays, strict=True))
        check_labels(batch, self._index_ranges)
        return batch

    def _check_shapes(self, batch: Mapping[str, np.ndarray]) -> None:
        shapes = tuple(array.shape for array in batch.values())
        if not self._compiled_shapes and self._read_caller_inputs is None:  # else the caller may have reshaped the net
            self._compiled_shapes.add(tuple(self._graph.blobs[name].shape for name in batch))
        if shapes in self._compiled_shapes:
            return
        if self._compiled_shapes:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(batch, shapes, strict=True))
            if not self._graph.has_host_layers:  # the shapes after a host layer are known only after it has run
                try:
                    reshape_graph(self._graph, {name: array.shape for name, array in batch.items()})
                except GraphError as error:
                    if self._user_data is None:
                        raise
                    raise GraphError([*self._user_data.shape_problems(batch), *error.problems]) from error
            log.info("Compiling for %s (%d shapes so far)", text, len(self._compiled_shapes) + 1)
        self._compiled_shapes.add(shapes)

    def get_state(self) -> dict[str, Any]:
        """Return the position of every source, and of every layer that counts passes, by the layers' keys."""
        return {key: position.get_state() for key, position in self._positions.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the positions of the layers that `state` names, and warn of layers that it does not name.

        Raises:
            DataError: if a position is damaged.
        """
        for key, position in self._positions.items():
            if key in state:
                with locate_errors(layer=key):
                    position.set_state(state[key])
            elif state:
                log.warning("The snapshot has no position of layer '%s': it stays where it is", key)
        self._next_index = self._find_next_index()

    def close(self) -> None:
        """Close every source."""
        for source in self._sources.values():
            source.close()
        if self._user_data is not None:
            self._user_data.close()


def _warn_of_wrong_labels(ranges: Mapping[str, list[IndexRange]]) -> None:
    ranges_by_layer = {r.layer.name: r for blob_ranges in ranges.values() for r in blob_ranges if r.ignored_elsewhere}
    for name, index_range in ranges_by_layer.items():
        labels = " and ".join(map(str, sorted(index_range.ignored_elsewhere)))
        log.warning(
            "Layer '%s' (%s) counts label %s, which is ignored elsewhere, as wrong, as Caffe does; it has %d classes: "
            "set its ignore_label to leave the label out",
            *(name, index_range.layer.type.name, labels, index_range.num_classes),
        )


def _layer_positions(graph: Graph) -> dict[str, Position]:
    """Return the positions of layers, by key. Warn about Python layers that read data and have no position to save."""
    for layer in graph.layers:
        is_python_source = layer.type.instance is not None and isinstance(layer.type.implementation, SourceInput)
        if is_python_source and layer.type.position is None:
            log.warning(
                "Layer '%s' (%s) has no get_state and set_state: checkpoints do not store its position in the data",
                *(layer.name, layer.type.name),
            )
    return {layer.key: layer.type.position for layer in graph.layers if layer.type.position is not None}
