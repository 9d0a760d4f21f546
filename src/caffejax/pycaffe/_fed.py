"""The layers of a net that are fed: their next batches, put into their tops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from ..data.loader import Loader
from ..data.memory_data import ArraySource
from ..errors import GraphError, Problem
from ..graph import Layer
from ..layers import Reads
from ._arrays import takes_arrays
from ._memories import Memories


class FedLayers:
    """Puts the next batches into the tops of layers that are fed; Input layers' tops are written to by the caller.

    Args:
        loader: what feeds data layers.
        memories: where the tops are.

    Attributes:
        arrays: what feeds MemoryData layers, by the layers' keys.
    """

    def __init__(self, loader: Loader, memories: Memories) -> None:
        self.arrays: dict[str, ArraySource] = {}
        self._loader, self._memories = loader, memories
        self._finish: dict[str, Any] = {}

    def check(self, layers: Iterable[Layer]) -> None:
        """Raise `GraphError` if one of these layers has no arrays to take batches of."""
        for layer in layers:
            if takes_arrays(layer) and layer.key not in self.arrays:
                raise GraphError(Problem("has no data; call set_input_arrays first", layer=layer.name))

    def read(self, layers: Iterable[Layer]) -> None:
        """Read the next batch of each of these layers."""
        for layer in layers:
            if layer.key in self.arrays:
                self._store(layer, next(self.arrays[layer.key]))
            elif isinstance(layer.type.runs, Reads):
                self._store(layer, tuple(self._loader.read(layer.key).values()))

    def read_arrays(self, layers: Iterable[Layer]) -> None:
        """Read the next batch of those of these layers that arrays feed."""
        self.read(layer for layer in layers if layer.key in self.arrays)

    def _store(self, layer: Layer, arrays: tuple[Any, ...]) -> None:
        tops = jax.device_put(arrays, self._memories.device)
        if layer.look is not None and layer.look.finish is not None:
            if layer.key not in self._finish:
                self._finish[layer.key] = jax.jit(lambda arrays: layer.finish(arrays))
            tops = self._finish[layer.key](tops)
        for name, array in zip(layer.tops, tops, strict=True):
            self._memories.store(name, array)
