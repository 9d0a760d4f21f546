"""Random numbers for layers on the host, drawn from their keys."""

from __future__ import annotations

import jax
import numpy as np

from ..context import Context


def generator(ctx: Context) -> np.random.Generator:
    """Return a generator that the layer's key in this pass starts."""
    return np.random.default_rng(np.asarray(jax.random.key_data(ctx.key)).ravel())
