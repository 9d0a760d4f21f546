"""Memory of one run serves the next: see blocks.cc, which was compiled when this was installed."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os


@functools.cache
def keep_blocks() -> bool:
    """Lets jaxlib's large blocks of host memory be kept for its next request; whether they are.

    By default they go back to the system after each run, which then clears every page anew: up to a third of the time
    of a training step on a CPU. `CAFFEJAX_BLOCKS=off` leaves it so.
    """
    own = importlib.util.find_spec(f"{__package__}._blocks")
    if os.environ.get("CAFFEJAX_BLOCKS") == "off" or own is None or own.origin is None:
        return False
    try:
        return bool(ctypes.CDLL(own.origin).caffejax_keep_blocks())
    except (OSError, AttributeError):  # compiled for another system
        return False
