"""What Caffe's MemoryData layer asks of the arrays that feed it."""

from __future__ import annotations

import numpy as np

from ..errors import GraphError, Problem
from ..graph import Layer


def check_arrays(layer: Layer, data: np.ndarray, labels: np.ndarray) -> None:
    """Raises `GraphError` unless a MemoryData layer can read these arrays, as Caffe wants them."""
    if layer.type.name != "MemoryData":
        raise GraphError("set_input_arrays needs a net whose first layer is MemoryData")
    p = layer.context.param
    problems: list[str] = []
    for what, array, shape in (
        ("data", data, (p.channels, p.height, p.width)),
        ("labels", labels, (1, 1, 1)),
    ):
        if not array.flags.c_contiguous:
            problems.append(f"{what} array must be C contiguous")
        if array.dtype != np.float32:
            problems.append(f"{what} array must be float32, not {array.dtype}")
        if array.ndim != 4 or array.shape[1:] != shape:
            problems.append(f"{what} array must be of shape (N, {', '.join(map(str, shape))}), not {array.shape}")
    if len(data) != len(labels):
        problems.append(f"data and labels must have the same first dimension, not {len(data)} and {len(labels)}")
    if len(data) % p.batch_size or not len(data):
        problems.append(f"the arrays' first dimension must be a multiple of the batch size {p.batch_size}")
    if problems:
        raise GraphError(Problem(m, layer=layer.name, layer_type=layer.type.name) for m in problems)
