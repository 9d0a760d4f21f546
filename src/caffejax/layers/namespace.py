"""Functions of arrays that are NumPy's or JAX's: on NumPy arrays they compute at once, without compiling anything."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def namespace_of(*arrays: Any) -> ModuleType:
    """Return `numpy` if all arrays are NumPy's, else `jax.numpy`."""
    return np if all(isinstance(a, np.ndarray) for a in arrays) else jnp


def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return 1 / np.sqrt(x) if isinstance(x, np.ndarray) else jax.lax.rsqrt(x)


def stop_gradient(x: Any) -> Any:
    """Return x, through which no gradient passes."""
    return x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)
