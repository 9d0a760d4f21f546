"""emit_constraint: which objects stay when a part of their picture is cut out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.caffe_pb2 import EmitConstraint
from .boxes import shares_within
from .picture import Picture


class Emit:
    """Which objects stay when a window is cut out.

    Args:
        constraint: the EmitConstraint message, or None if all stay of which the window shows a part.
    """

    def __init__(self, constraint: Any | None) -> None:
        self._constraint = constraint

    def __call__(self, picture: Picture, window: np.ndarray) -> Picture:
        """Return the picture with those that stay: of which the centre, or enough, lies in the window."""
        constraint, boxes = self._constraint, picture.boxes
        if constraint is None:
            return picture
        if constraint.emit_type == EmitConstraint.CENTER:
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
            return picture.keep(((centres >= window[:2]) & (centres <= window[2:])).all(axis=1))
        return picture.keep(shares_within(boxes, window) > np.float32(constraint.emit_overlap))
