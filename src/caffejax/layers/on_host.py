"""What layers on the host share: floats to compute in, and random numbers from their keys."""

from __future__ import annotations

import jax
import numpy as np

from .context import Context


def promoted(x: np.ndarray) -> np.ndarray:
    """Return bfloat16 and other short floats as float32, all else as it is."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def generator(ctx: Context) -> np.random.Generator:
    """Return a generator that the layer's key in this pass starts."""
    return np.random.default_rng(np.asarray(jax.random.key_data(ctx.key)).ravel())
