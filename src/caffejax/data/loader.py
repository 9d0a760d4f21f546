"""What feeds a net in training and testing: its data layers' sources, read together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DataError, GraphError, Problem
from ..graph.indices import IndexRange, index_ranges
from ..graph.reshape import reshape_graph
from ..layers import Position
from ..net import Net

log = logging.getLogger("caffejax.data")


class Loader:
    """Batches for all of a net's data layers.

    Args:
        net: the net.
        by_hand: gives the arrays of the blobs that no source feeds: tops of Input layers.

    Raises:
        GraphError: for an Input layer, if nothing feeds it.
        DataError: if a source cannot be opened.
    """

    def __init__(self, net: Net, by_hand: Callable[[], Mapping[str, Any]] | None = None) -> None:
        if not net.graph.layers:
            raise GraphError(Problem("the net has no layers in this phase", file=net.graph.file))
        inputs = [layer for layer in net.graph.layers if layer.type.input_shapes is not None]
        if inputs and by_hand is None:
            raise GraphError(
                Problem(
                    "nothing feeds this layer; a net that is trained or tested here needs data layers instead",
                    file=net.graph.file,
                    layer=layer.name,
                    layer_type=layer.type.name,
                )
                for layer in inputs
            )
        self._net = net
        self._by_hand = by_hand
        self._sources = net.sources()
        self._positions = {**self._sources, **_own_positions(net)}
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._tops = {layer.key: layer.tops for layer in net.graph.layers}
        self._file = net.graph.file
        self._ranges = index_ranges(net.graph)

    def __next__(self) -> dict[str, Any]:
        """The next batch of every source, by blob name, and what is fed by hand.

        Raises:
            DataError: if a batch cannot be read, or holds a label that is none of a loss's classes.
            GraphError: if it has another shape than before, which the net cannot take.
        """
        batch: dict[str, Any] = dict(self._by_hand()) if self._by_hand else {}
        for key in self._sources:
            batch |= self.read(key)
        self._check_shapes(batch)
        return batch

    def read(self, layer: str) -> dict[str, np.ndarray]:
        """The next batch of one source, by blob name; raises as `next` does."""
        batch = dict(zip(self._tops[layer], next(self._sources[layer]), strict=True))
        for name, array in batch.items():
            for wanted in self._ranges.get(name, ()):
                self._check(name, array, wanted)
        return batch

    def _check(self, name: str, array: np.ndarray, wanted: IndexRange) -> None:
        whole = np.trunc(array)
        bad = ~((whole >= 0) & (whole < wanted.classes))  # NaN is bad too
        if wanted.ignored is not None:
            bad &= whole != wanted.ignored
        if bad.any():
            row = int(np.argwhere(bad)[0][0])
            message = (
                f"blob '{name}' holds {array[bad].flat[0]:g} in row {row} of the batch, but the layer counts "
                f"{wanted.classes} classes, 0 to {wanted.classes - 1}; mend the labels, or the layer's num_output "
                "below it, or set ignore_label"
            )
            layer = wanted.layer
            raise DataError(Problem(message, file=self._file, layer=layer.name, layer_type=layer.type.name))

    def _check_shapes(self, batch: Mapping[str, np.ndarray]) -> None:
        """Says so when other shapes than the first make what runs on them be compiled again, if that is possible."""
        shapes = tuple(array.shape for array in batch.values())
        if shapes in self._shapes:
            return
        self._shapes.add(shapes)
        if len(self._shapes) > 1:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(batch, shapes, strict=True))
            log.info("Compiling for %s (%d shapes so far)", text, len(self._shapes))
            if not self._net.has_host_layers:  # these find the shapes of what follows when they run
                reshape_graph(self._net.graph, {name: array.shape for name, array in batch.items()})

    def get_state(self) -> dict[str, Any]:
        """The position of every source, and of the Python layers that have one, by layer."""
        return {key: place.get_state() for key, place in self._positions.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes to the positions of the layers that `state` names."""
        for key, place in self._positions.items():
            if key in state:
                place.set_state(state[key])

    def close(self) -> None:
        """Closes every source."""
        for source in self._sources.values():
            source.close()


def _own_positions(net: Net) -> dict[str, Position]:
    """The positions that Python layers tell; says which layers read data and tell none."""
    layers = [layer for layer in net.graph.layers if layer.type.instance is not None]
    for layer in layers:
        if layer.type.open_source is not None and layer.type.position is None:
            log.warning(
                "Layer '%s' (%s) has no get_state and set_state: checkpoints do not hold its place in the data",
                layer.name,
                layer.type.name,
            )
    return {layer.key: layer.type.position for layer in layers if layer.type.position is not None}
