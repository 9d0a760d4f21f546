"""Stored blobs, fitted to the shapes of a net's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..errors import Problem, WeightsError
from ..schema.blob_proto import Array, Legacy4D, shape_text
from ..sizes import counted


def fit(
    name: str,
    source: Sequence[Array | None],
    shapes: Sequence[Sequence[int]],
    optional: Collection[int] = (),
) -> tuple[Array | None, ...]:
    """Fit a layer's stored blobs to the shapes that its net wants.

    Args:
        name: the layer, for error messages.
        source: its blobs, as read from a file; None where the file leaves one out.
        shapes: what they have to be.
        optional: the blobs that the file may leave out.

    Returns:
        An array per shape; None for those left out.

    Raises:
        WeightsError: for another number of blobs, and for every shape that does not fit.
    """
    remedy = "; rename the layer to train it from scratch"
    blobs = [*source, *[None] * (len(shapes) - len(source))]
    if len(blobs) > len(shapes) or any(blob is None and i not in optional for i, blob in enumerate(blobs)):
        count = sum(blob is not None for blob in source)
        message = f"the file has {counted(count, 'blob')}, the net {len(shapes)}{remedy}"
        raise WeightsError(Problem(message, layer=name))
    problems = [
        Problem(f"blob {i} is {shape_text(blob.shape)} in the file, {shape_text(shape)} in the net{remedy}", layer=name)
        for i, (blob, shape) in enumerate(zip(blobs, shapes, strict=True))
        if blob is not None and not _fits(blob, tuple(shape))
    ]
    if problems:
        raise WeightsError(problems)
    return tuple(
        None if blob is None else np.asarray(blob).reshape(shape) for blob, shape in zip(blobs, shapes, strict=True)
    )


def _fits(blob: Array, shape: tuple[int, ...]) -> bool:
    if isinstance(blob, Legacy4D):
        return len(shape) <= 4 and blob.shape == (1,) * (4 - len(shape)) + shape
    return blob.shape == shape
