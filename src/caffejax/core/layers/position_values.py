"""The values of positions that snapshots store as JSON: counts and arrays."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.errors import DataError, is_integer

_MAX_COUNT = 2**62


def decode_count(position: Any, field: str) -> int:
    """Return the count in the field `field` of a position, which must be an object.

    Raises:
        DataError: if the position does not have the field, or its value is not an integer from 0 to 2^62 - 1.
    """
    count = position.get(field) if isinstance(position, Mapping) else None
    if not is_integer(count) or not 0 <= count < _MAX_COUNT:
        text = f"is not the position of a data source or a layer: it needs the count '{field}'"
        raise DataError(f"{str(position)[:60]} {text}")
    return int(count)


def encode_array(array: Any) -> dict[str, Any]:
    """Return an array as JSON values: its shape, and its float32 numbers in base64."""
    values = np.ascontiguousarray(array, "<f4")
    return {"shape": list(values.shape), "float32": base64.b64encode(values.tobytes()).decode()}


def decode_array(stored: Any) -> np.ndarray:
    """Return the float32 array that `encode_array` encoded.

    Raises:
        TypeError, ValueError or KeyError: if `stored` is damaged.
    """
    data, shape = base64.b64decode(stored["float32"], validate=True), [int(n) for n in stored["shape"]]
    if min(shape, default=0) < 0 or len(data) != 4 * math.prod(shape):
        raise ValueError(f"shape {shape} does not match {len(data)} bytes of data")
    return np.frombuffer(data, "<f4").reshape(shape).astype(np.float32)
