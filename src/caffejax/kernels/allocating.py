"""The C library's allocator, told to keep what it was given back.

XLA asks for the memory of every run anew, and frees it at the end. By default glibc hands blocks of that size back to
the system, which finds and clears each page again: a quarter to a half of the time of a training step.
"""

from __future__ import annotations

import ctypes
import functools
import os

# of malloc.h: no blocks of their own for large sizes; nothing back to the system; what is asked of it at least; one
# heap for all threads, since each of the others' is limited to 64 MB
_OPTIONS = {-4: 0, -1: -1, -2: 64 << 20, -8: 1}


@functools.cache
def keep_memory() -> None:
    """Sets glibc's malloc, if it is that, for the whole process; threads that have run before keep their heaps.

    `CAFFEJAX_MALLOC=off` leaves it as it is, and so do settings of glibc's own in the environment (MALLOC_ARENA_MAX,
    GLIBC_TUNABLES and others).
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if chosen or "malloc" in os.environ.get("GLIBC_TUNABLES", "") or os.environ.get("CAFFEJAX_MALLOC") == "off":
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    for option, value in _OPTIONS.items():
        if set_option is not None:
            set_option(option, value)
