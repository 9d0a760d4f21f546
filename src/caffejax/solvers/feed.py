"""What feeds a net in training and testing: its data layers' sources, read together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DataError, GraphError, Problem
from ..graph.indices import IndexRange, index_ranges
from ..net import Net


class Feed:
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
        self._by_hand = by_hand
        self._sources = net.sources()
        self._tops = {layer.key: layer.tops for layer in net.graph.layers}
        self._file = net.graph.file
        self._ranges = index_ranges(net.graph)

    def __next__(self) -> dict[str, Any]:
        """The next batch of every source, by blob name, and what is fed by hand.

        Raises:
            DataError: if a batch cannot be read, or holds a label that is none of a loss's classes.
        """
        batch: dict[str, Any] = dict(self._by_hand()) if self._by_hand else {}
        for key in self._sources:
            batch |= self.read(key)
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

    def get_state(self) -> dict[str, dict[str, int]]:
        """Every source's position, by layer."""
        return {key: dict(source.get_state()) for key, source in self._sources.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes to the positions of the layers that `state` names."""
        for key, source in self._sources.items():
            if key in state:
                source.set_state(state[key])

    def close(self) -> None:
        """Closes every source."""
        for source in self._sources.values():
            source.close()
