"""Shapes: of tops, and in messages."""

import jax
import numpy as np


def dims(shape: tuple[int, ...]) -> str:
    """Format a shape for messages: `(3, 32, 40)` as "3x32x40"."""
    return "x".join(map(str, shape))


def float32_top(*shape: int) -> jax.ShapeDtypeStruct:
    """Return a float32 top of that shape: Caffe's data layers give no other type."""
    return jax.ShapeDtypeStruct(shape, np.float32)
