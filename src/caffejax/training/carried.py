"""What a test net's recurrent layers carry from batch to batch, as plain values for a snapshot's record, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import DataError
from ..graph import Graph
from ..net import Params
from .reporting import log

_FIELD = "carried"


def encode(graph: Graph, state: Params) -> dict[str, Any]:
    """Return the carried arrays of a state by layer: of each its shape, and its numbers as float32 in base64."""
    return {
        layer.key: {_FIELD: [_encode(state[layer.key][p.slot.index]) for p in layer.carried]}
        for layer in graph.layers
        if layer.carried and layer.key in state
    }


def decode(graph: Graph, record: Mapping[str, Any]) -> Params:
    """Return a state that holds only the arrays that `encode` was given.

    What was carried from batches of another size is left out, so that it starts at zero again.

    Raises:
        DataError: if it is not of that form.
    """
    found: Params = {}
    for layer in graph.layers:
        stored = record.get(layer.key)
        if not (layer.carried and isinstance(stored, Mapping) and _FIELD in stored):
            continue
        try:
            arrays = [_decode(one) for one in stored[_FIELD]]
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(layer.problem(f"what it carries is damaged in the snapshot: {error}")) from error
        if [a.shape for a in arrays] == [param.spec.shape for param in layer.carried]:
            found[layer.key] = {p.slot.index: jnp.asarray(a) for p, a in zip(layer.carried, arrays, strict=True)}
        else:
            log.warning("layer '%s' of the test net carried other shapes, and starts at zero again", layer.name)
    return found


def _encode(array: Any) -> dict[str, Any]:
    values = np.ascontiguousarray(array, "<f4")
    return {"shape": list(values.shape), "float32": base64.b64encode(values.tobytes()).decode()}


def _decode(stored: Any) -> np.ndarray:
    data, shape = base64.b64decode(stored["float32"], validate=True), [int(n) for n in stored["shape"]]
    if min(shape, default=0) < 0 or len(data) != 4 * prod(shape):
        raise ValueError(f"shape {shape} for {len(data)} bytes")
    return np.frombuffer(data, "<f4").reshape(shape).astype(np.float32)
