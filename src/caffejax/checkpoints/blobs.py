"""How stored blobs fit a net's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import Problem, WeightsError
from ..schema.blobs import Array, Legacy4D, shown


def fit(name: str, source: Sequence[NDArray[np.float32]], shapes: Sequence[Sequence[int]]) -> tuple[Array, ...]:
    """Fits a layer's stored blobs to the shapes that its net wants.

    Args:
        name: the layer, for error messages.
        source: its blobs, as read from a file.
        shapes: what they have to be.

    Raises:
        WeightsError: for another number of blobs, and for every shape that does not fit.
    """
    remedy = "; rename the layer to train it from scratch"
    if len(source) != len(shapes):
        message = f"the file has {len(source)} blobs, the net {len(shapes)}{remedy}"
        raise WeightsError(Problem(message, layer=name))
    problems = [
        Problem(f"blob {i} is {shown(blob.shape)} in the file, {shown(shape)} in the net{remedy}", layer=name)
        for i, (blob, shape) in enumerate(zip(source, shapes, strict=True))
        if not _fits(blob, tuple(shape))
    ]
    if problems:
        raise WeightsError(problems)
    return tuple(np.asarray(blob).reshape(shape) for blob, shape in zip(source, shapes, strict=True))


def _fits(blob: NDArray[np.float32], shape: tuple[int, ...]) -> bool:
    if isinstance(blob, Legacy4D):
        return len(shape) <= 4 and blob.shape == (1,) * (4 - len(shape)) + shape
    return blob.shape == shape
