"""What Caffe's MemoryData layer asks of the arrays that feed it."""

from __future__ import annotations

import numpy as np

from ..errors import GraphError
from ..graph import Layer
from ..layers import Fed


def takes_arrays(layer: Layer) -> bool:
    """Whether a layer is fed from arrays, of which it takes the next batch each time: a MemoryData layer."""
    return isinstance(layer.type.runs, Fed) and layer.type.runs.from_arrays


def check_arrays(layer: Layer, top: tuple[int, ...], data: np.ndarray, labels: np.ndarray) -> None:
    """Raises `GraphError` unless a MemoryData layer can read these arrays, as Caffe wants them.

    Args:
        layer: the layer.
        top: the shape of its first top.
        data, labels: the arrays.
    """
    if not takes_arrays(layer):
        raise GraphError("set_input_arrays needs a net whose first layer is MemoryData")
    batch_size, *image = top
    problems: list[str] = []
    for what, array, shape in (
        ("data", data, tuple(image)),
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
    if len(data) % batch_size or not len(data):
        problems.append(f"the arrays' first dimension must be a multiple of the batch size {batch_size}")
    if problems:
        raise GraphError(map(layer.problem, problems))
