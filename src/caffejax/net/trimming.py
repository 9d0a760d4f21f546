"""Blobs without the rows of padding that compiled code gives some of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from ..graph import Graph
from ..layers.rows import count, trimmed
from ..schedule.cut import padded_blobs
from .variables import Blobs


def trimmed_blobs(graph: Graph, blobs: Blobs) -> Blobs:
    """Return blobs with the rows that there are; see `Net.trimmed`."""
    begun = padded_blobs(graph.layers)
    rows = {name: count(blobs[name]) for name in set(begun.values()) if name in blobs}
    return {name: _first_rows(begun, rows, name, blob) for name, blob in blobs.items()}


def _first_rows(begun: Mapping[str, str], rows: Mapping[str, int], name: str, blob: jax.Array) -> jax.Array:
    root = begun.get(name)
    if root is None or root not in rows:
        return blob
    return trimmed(blob, rows[root]) if root == name else blob[: rows[root]]
