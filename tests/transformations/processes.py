"""Processes of their own, in which JAX starts anew. Nothing here may import JAX."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def fresh(devices: int = 1) -> ProcessPoolExecutor:
    """One process whose JAX simulates that many devices."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_settle, initargs=(devices,))


def _settle(devices: int) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    # what is compiled here runs once: its speed is of no interest
    quickly = "--xla_backend_optimization_level=0"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices} {quickly}"


def reload(exported: bytes, arrays: tuple[Any, ...]) -> Any:
    """What an exported function gives, as NumPy arrays, where caffejax is not loaded."""
    import sys

    import jax
    import jax.export
    import numpy as np

    assert not any(name.startswith("caffejax") for name in sys.modules)
    return jax.tree.map(np.asarray, jax.export.deserialize(bytearray(exported)).call(*arrays))
