"""Checks of settings that layers of several families share."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

from ...base.errors import require
from ...core.layers.context import Shape
from ...core.layers.helpers import check_side_length

_MAX_ELEMENTS = 2**31 - 1  # elements of a blob: Caffe counts them with an int


def reject_fields(p: Any, names: Container[str], hint: str) -> None:
    """Raise `LayerError` if a message sets one of the fields `names` to a value other than its default.

    `hint` ends the error message, and tells how to correct the net.
    """
    for field, value in p.ListFields():
        require(
            field.name not in names or (not field.is_repeated and value == field.default_value),
            f"{field.name} does not apply to this form of the layer: {hint}",
        )


def check_plane_size(size: Shape, shape: Shape) -> None:
    """Check that a bottom of shape (num, channels, height, width) can be resized to `size`, (height, width).

    Layers call it before they allocate tables whose lengths are the height and the width.

    Raises:
        LayerError: if the result has more elements than a blob can have, or a side is longer than 2^24 cells.
    """
    count = math.prod(n for n in (*shape[:2], *size) if isinstance(n, int))
    require(
        count <= _MAX_ELEMENTS,
        f"a top of height {size[0]} and width {size[1]} with the bottom's images and channels {shape[:2]} would have "
        f"{count} elements, but a blob has at most {_MAX_ELEMENTS}; check the settings",
    )
    check_side_length(size)
