"""What feeds a net in training and testing: its data layers' sources, read together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import GraphError, Problem
from ..layers import Source
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

    @property
    def sources(self) -> Mapping[str, Source]:
        """The sources, by layer."""
        return self._sources

    def __next__(self) -> dict[str, np.ndarray]:
        """The next batch of every source, by blob name, and what is fed by hand."""
        return {
            top: array
            for key, source in self._sources.items()
            for top, array in zip(self._tops[key], next(source), strict=True)
        } | dict(self._by_hand() if self._by_hand else {})

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
