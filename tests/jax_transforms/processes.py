"""Processes of their own, in which JAX starts anew. Nothing here may import JAX."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from quickly import with_devices


def fresh(devices: int = 1) -> ProcessPoolExecutor:
    """One process whose JAX simulates that many devices."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_settle, initargs=(devices,))


def _settle(devices: int) -> None:
    os.environ |= with_devices(devices)


def reload(exported: bytes, arrays: tuple[Any, ...]) -> Any:
    """What an exported function gives, as NumPy arrays, where caffejax is not loaded."""
    import sys

    import jax
    import jax.export
    import numpy as np

    assert not any(name.startswith("caffejax") for name in sys.modules)
    return jax.tree.map(np.asarray, jax.export.deserialize(bytearray(exported)).call(*arrays))
