"""The loader: hands a net the batches of its data layers' sources, read together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DataError, GraphError, Problem
from ..graph import Graph
from ..graph.reshape import reshape_graph
from ..graph.traits import IndexRange, index_ranges, out_of_range
from ..layers import Fed, Position, Reads, Source
from ..layers.source import SharedSource
from .user_data import UserData

log = logging.getLogger("caffejax.data")


def open_sources(graph: Graph) -> dict[str, Source]:
    """Open a new source for each data layer, by the layer's key. Close them when done.

    A Python layer is the one source of its own data: it goes on where it was.

    Raises:
        DataError: if a source cannot be opened.
    """
    return {
        layer.key: layer.type.implementation.open(layer.site, layer.look.tops)
        for layer in graph.layers
        if isinstance(layer.type.implementation, Reads) and layer.look is not None
    }


class Loader:
    """Batches for all of a net's data layers: all batches, or the share that the net is to read (`Reading.share`).

    Batch n is the nth of every source, counted from the start of training; after a restore, from the position of the
    first source that tells, whole batches before it counted, or else from 0. So shares agree on whose it is.

    Args:
        graph: the net's graph.
        by_hand: gives the arrays of the blobs that no source feeds: tops of Input layers. The net may be reshaped by
            hand as well.
        user_data: what gives them in its place: data of the user's own.

    Raises:
        GraphError: for an Input layer, if nothing feeds it.
        DataError: if a source cannot be opened.
    """

    def __init__(
        self,
        graph: Graph,
        by_hand: Callable[[], Mapping[str, Any]] | None = None,
        user_data: UserData | None = None,
    ) -> None:
        if not graph.layers:
            raise GraphError(Problem("the net has no layers in this phase", file=graph.file))
        inputs = [layer for layer in graph.layers if isinstance(layer.type.implementation, Fed)]
        if inputs and by_hand is None and user_data is None:
            raise GraphError(
                layer.problem(
                    "nothing feeds this layer; put a data layer in its place, such as Data, ImageData or HDF5Data"
                )
                for layer in inputs
            )
        self._graph = graph
        self._by_hand = by_hand
        self._own_data = user_data
        self._sources = open_sources(graph)
        self._share = graph.layers[0].site.reading.share
        self._shared = {key: source for key, source in self._sources.items() if isinstance(source, SharedSource)}
        self._number = self._find_number()
        self._positions: dict[str, Position] = {**self._sources, **_own_positions(graph)}
        if inputs and user_data is not None:
            self._positions[inputs[0].key] = user_data  # it feeds them all
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._tops = {layer.key: layer.tops for layer in graph.layers}
        self._ranges = index_ranges(graph)

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> dict[str, Any]:
        """Return the share's next batch of every source, by blob name, and what is fed by hand.

        Raises:
            DataError: if a batch cannot be read, or holds a label that is none of a loss's classes.
            GraphError: if it has another shape than before, which the net cannot take.
        """
        while True:
            if (batch := self._take()) is not None:
                return batch

    def take(self, n: int) -> list[dict[str, Any]]:
        """Go past the next n batches of the whole data; return those of them that are the share's, in order.

        Batches may differ in their shapes. Raises as `next` does.
        """
        return [batch for _ in range(n) if (batch := self._take()) is not None]

    @property
    def number(self) -> int:
        """The number of the next batch of the whole, which says whose it is."""
        return self._number

    @property
    def examples(self) -> int | None:
        """How many examples the first source that tells has before they come again; None if none tells."""
        told = (getattr(source, "examples", None) for source in self._sources.values())
        return next((n for n in told if n is not None), None)

    def read(self, layer: str) -> dict[str, np.ndarray]:
        """Return the share's next batch of one source, by blob name. Raises as `next` does."""
        return self._checked(layer, next(self._sources[layer]))

    def _take(self) -> dict[str, Any] | None:
        """Go past the next batch of the whole; return it if it is the share's."""
        own = self._share.owns(self._number)
        batch: dict[str, Any] = dict(self._by_hand()) if self._by_hand else {}
        if self._own_data is not None:
            arrays_given = next(self._own_data)
            batch |= self._in_range(arrays_given) if own else {}
        for key, source in self._sources.items():
            shared = self._shared.get(key)
            arrays = next(source) if shared is None else shared.take(self._number)
            if own and arrays is not None:
                batch |= self._checked(key, arrays)
        self._number += 1
        if not own:
            return None
        self._check_shapes(batch)
        return batch

    def _find_number(self) -> int:
        return next((source.number for source in self._shared.values()), 0)

    def _checked(self, layer: str, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
        return self._in_range(dict(zip(self._tops[layer], arrays, strict=True)))

    def _in_range(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a batch; raise `DataError` if it holds a label that is none of a loss's classes."""
        for name, array in batch.items():
            for wanted in self._ranges.get(name, ()):
                self._check(name, array, wanted)
        return batch

    def _check(self, name: str, array: np.ndarray, wanted: IndexRange) -> None:
        bad = out_of_range(array, wanted.classes, wanted.ignored)
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            message = (
                f"blob '{name}' holds {array[bad].flat[0]:g} in row {row} of the batch, but the layer counts "
                f"{wanted.classes} classes, 0 to {wanted.classes - 1}; mend the labels, or the layer's num_output "
                "below it, or set ignore_label"
            )
            raise DataError(wanted.layer.problem(message))

    def _check_shapes(self, batch: Mapping[str, np.ndarray]) -> None:
        """Log that the net is compiled again for other shapes than the first, and check that it can take them."""
        shapes = tuple(array.shape for array in batch.values())
        if not self._shapes and self._by_hand is None:  # what is fed by hand may be reshaped by hand
            self._shapes.add(tuple(self._graph.blobs[name].shape for name in batch))
        if shapes in self._shapes:
            return
        if self._shapes:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(batch, shapes, strict=True))
            if not self._graph.has_host_layers:  # these find the shapes of what follows when they run
                self._reshape(batch)
            log.info("Compiling for %s (%d shapes so far)", text, len(self._shapes) + 1)
        self._shapes.add(shapes)

    def _reshape(self, batch: Mapping[str, np.ndarray]) -> None:
        try:
            reshape_graph(self._graph, {name: array.shape for name, array in batch.items()})
        except GraphError as error:
            if self._own_data is None:
                raise
            raise GraphError([*self._own_data.shape_problems(batch), *error.problems]) from error

    def get_state(self) -> dict[str, Any]:
        """Return the position of every source, and of the Python layers that have one, by layer."""
        return {key: place.get_state() for key, place in self._positions.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the positions of the layers that `state` names."""
        for key, place in self._positions.items():
            if key in state:
                place.set_state(state[key])
        self._number = self._find_number()

    def close(self) -> None:
        """Close every source."""
        for source in self._sources.values():
            source.close()
        if self._own_data is not None:
            self._own_data.close()


def _own_positions(graph: Graph) -> dict[str, Position]:
    """Return the positions that Python layers tell, and warn of those that read data and tell none."""
    layers = [layer for layer in graph.layers if layer.type.instance is not None]
    for layer in layers:
        if isinstance(layer.type.implementation, Reads) and layer.type.position is None:
            log.warning(
                "Layer '%s' (%s) has no get_state and set_state: checkpoints do not hold its place in the data",
                layer.name,
                layer.type.name,
            )
    return {layer.key: layer.type.position for layer in layers if layer.type.position is not None}
