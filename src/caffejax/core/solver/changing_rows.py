"""Rows of padding in batches whose numbers of rows change, so that few programs are compiled for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..graph import Graph
from ..layers.row_padding import PaddedRows, RowsOrigin, zero_pad_rows
from ..program.callbacks import find_layers_without_padding
from .reporting import log

_MIN_ROWS = 16  # smaller numbers of rows share a program


class RowPadding:
    """A function of batches that pads the inputs whose number of rows has changed since the first batch.

    The numbers of rows, for example of ground-truth boxes, are rounded up to powers of two. Inputs that have had
    equal numbers of rows in all batches have the same rows. If a layer depends on all rows of such an input, batches
    are returned as they are, and the net is compiled for each number of rows.

    Args:
        graph: the net's graph.
        first_shapes: the shapes with which the numbers of rows are compared, by input; default: the shapes of the first
            batch.
    """

    def __init__(self, graph: Graph, first_shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._graph = graph
        self._first_shapes = first_shapes
        self._origins: dict[str, str] = {}  # inputs of one origin have had equal numbers of rows in all batches
        self._changing: frozenset[str] = frozenset()
        self._is_possible = True

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch of NumPy arrays, in which `PaddedRows` replace arrays whose number of rows changes."""
        shapes = {name: np.shape(array) for name, array in batch.items()}
        if self._first_shapes is None:
            self._first_shapes = shapes
        first = self._first_shapes
        changing = self._changing.union(name for name, shape in shapes.items() if shape[:1] != first[name][:1])
        names = sorted(shapes)
        rows = {name: (self._origins.get(name), shapes[name][:1]) for name in names}
        origins = {name: next(n for n in names if rows[n] == rows[name]) for name in names}
        if changing and (changing, origins) != (self._changing, self._origins):
            self._is_possible = self._check(changing, origins)
        self._changing, self._origins = changing, origins
        if not self._is_possible or any(shapes[name][0] == 0 for name in changing):
            return dict(batch)
        return {name: self._pad(name, np.asarray(x)) if name in changing else x for name, x in batch.items()}

    def _pad(self, name: str, array: np.ndarray) -> PaddedRows:
        n = len(array)
        rows = zero_pad_rows(array, max(_MIN_ROWS, 1 << (n - 1).bit_length()), 0)
        return PaddedRows(rows, np.int32(n), RowsOrigin(self._origins[name]))

    def _check(self, changing: frozenset[str], origins: Mapping[str, str]) -> bool:
        """Return whether all layers can run on rows of padding. If not, log their names."""
        rows = {name: RowsOrigin(origins[name]) for name in changing}
        layers = find_layers_without_padding(self._graph, rows)
        if layers:
            log.info(
                "The net is compiled for each number of rows of %s, because these layers depend on all rows: %s",
                ", ".join(f"'{name}'" for name in sorted(changing)),
                ", ".join(f"'{layer.name}'" for layer in layers),
            )
        return not layers
