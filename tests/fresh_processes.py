"""Start processes in which JAX is initialised again. This module must not import JAX."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from compile_flags import make_cpu_devices_environment


def spawn_jax_process(num_devices: int = 1, **environment: str) -> ProcessPoolExecutor:
    """Return a pool of one process in which JAX simulates `num_devices` devices, with further environment variables."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_set_environment, initargs=(num_devices, environment))


def _set_environment(num_devices: int, environment: dict[str, str]) -> None:
    os.environ |= make_cpu_devices_environment(num_devices) | environment


def call_exported(exported: bytes, arrays: tuple[Any, ...]) -> Any:
    """Return the results of an exported function as NumPy arrays, in a process without caffejax."""
    import sys

    import jax
    import jax.export
    import numpy as np

    assert not any(name.startswith("caffejax") for name in sys.modules)
    return jax.tree.map(np.asarray, jax.export.deserialize(bytearray(exported)).call(*arrays))
