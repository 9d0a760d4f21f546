"""Blobs without the rows of padding that compiled code gives some of them."""

from __future__ import annotations

import jax

from ..execution.schedule import padded_blobs
from ..graph import Graph
from ..layers.rows import axis_of_rows_in, count, first_rows
from ..variables import Blobs


def trimmed_blobs(graph: Graph, blobs: Blobs) -> Blobs:
    """Return blobs with the rows that there are; see `Net.trimmed`."""
    begun = padded_blobs(graph.layers)
    rows = {name: count(blobs[name]) for name in set(begun.values()) if name in blobs}
    return {
        name: _first_rows(blob, blobs[root], rows[root]) if (root := begun.get(name)) in rows else blob
        for name, blob in blobs.items()
    }


def _first_rows(blob: jax.Array, root: jax.Array, rows: int) -> jax.Array:
    axis = axis_of_rows_in(blob, root)
    return blob if axis is None else first_rows(blob, rows, axis)
