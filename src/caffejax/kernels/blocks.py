"""Memory of one run serves the next: see blocks.cc, which was compiled when this was installed."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os

from ..machine import memory


def keep_blocks(seconds: float = 30, share: float = 0.5) -> bool:
    """Let jaxlib's large blocks of host memory be kept for its next request; return whether they are.

    Args:
        seconds: how long a block that nobody asks for is kept.
        share: of the machine's memory, or its control group's: how much is kept at most.
    """
    if os.environ.get("CAFFEJAX_BLOCKS") == "off" or (found := library()) is None:
        return False
    return bool(found.caffejax_keep_blocks(ctypes.c_double(seconds), ctypes.c_size_t(int(share * memory()))))


def kept() -> bool:
    """Return whether they are kept."""
    found = library()
    return found is not None and bool(found.caffejax_replaced())


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load what was compiled; None without it, or on a system other than the one it was compiled for."""
    own = importlib.util.find_spec(f"{__package__}._blocks")
    if own is None or own.origin is None:
        return None
    try:
        found = ctypes.CDLL(own.origin)
        found.caffejax_idle.restype = ctypes.c_size_t
    except (OSError, AttributeError):
        return None
    return found
