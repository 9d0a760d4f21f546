"""The shapes of a model's inputs and outputs, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from onnx import ValueInfoProto, helper


class Shaped(NamedTuple):
    """What has a shape, of numbers and names such as "batch", and a dtype."""

    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]


def shapes_of(values: Iterable[ValueInfoProto]) -> dict[str, Shaped]:
    """Return the shape and dtype of values, by name."""
    found = {}
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
        found[value.name] = Shaped(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return found
