"""Programs kept for shapes, bounded by memory for the whole process.

JAX keeps each program of a function, and each trace of the functions that it calls, as long as the function lives, so a
net that meets many shapes would fill the memory. Therefore each program belongs to a function object that only it has,
in a `ProgramCache`. When all caches together exceed `LIMIT_BYTES`, the programs that were used least recently are
dropped, but none of the last `MIN_PROGRAMS` of a cache: a cycle of that many shapes never compiles again, however large
the net.

The size of a program is an estimate by its number of equations. Its executable, which XLA can measure, is the smaller
part; most are traces, in small pieces (docs/development/performance.md has the measurements).
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Hashable
from typing import Any

import jax

LIMIT_BYTES = 256 * 2**20
MIN_PROGRAMS = 16  # the number of programs of each cache that are kept whatever their size
BYTES_PER_EQUATION = 32 * 2**10  # of a program with its traces: 2.6 MB for 68 equations, 4 MB for 129

_clock = itertools.count()
_lock = threading.RLock()
_JitFunction: Any = type(jax.jit(lambda: None))


class Entry:
    """A program in a cache.

    Attributes:
        program: the program.
        num_bytes: its estimated size.
        last_used: the time of its last use, on a clock that counts uses.
    """

    __slots__ = "__weakref__", "last_used", "num_bytes", "program"

    def __init__(self, program: Any, num_bytes: int) -> None:
        self.program, self.num_bytes, self.last_used = program, num_bytes, next(_clock)

    def use(self) -> Any:
        """Return the program, and record that it is used now."""
        self.last_used = next(_clock)
        return self.program


class ProgramCache:
    """The programs of one function, by any keys that determine them, such as the shapes of the arguments."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, Entry] = {}
        _caches.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[Any]:
        """Return the programs, in the order in which they were added."""
        return [entry.program for entry in list(self._entries.values())]

    def find(self, key: Hashable) -> Entry | None:
        """Return the entry of a program, which counts as used now, or None."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.use()
        return entry

    def add(self, key: Hashable, program: Any, num_bytes: int, *, is_traced: bool = False) -> Entry:
        """Store a program, and drop others if all caches are too large; return its entry.

        If another thread has stored a program for the key, return the entry of that one.

        Args:
            key: the key, which no other program of the cache has.
            program: the program.
            num_bytes: its estimated size.
            is_traced: whether a function is being traced, so that traces cannot be dropped now.
        """
        with _lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry(program, num_bytes)
                _drop_programs(is_traced)
            return entry


_caches: weakref.WeakSet[ProgramCache] = weakref.WeakSet()


def count_bytes() -> int:
    """Return the estimated size of all kept programs of the process."""
    return sum(entry.num_bytes for cache in list(_caches) for entry in list(cache._entries.values()))


def _drop_programs(is_traced: bool) -> None:
    """Drop programs until an eighth of the limit is free, if all together exceed it."""
    num_bytes = count_bytes()
    if num_bytes <= LIMIT_BYTES:
        return
    droppable: list[tuple[int, Hashable, ProgramCache]] = []
    for cache in list(_caches):
        entries = sorted(cache._entries.items(), key=lambda item: item[1].last_used)
        droppable += [(entry.last_used, key, cache) for key, entry in entries[:-MIN_PROGRAMS]]
    droppable.sort(key=lambda use: use[0])
    for _, key, cache in droppable:
        if num_bytes <= LIMIT_BYTES * 7 // 8:
            break
        num_bytes -= cache._entries.pop(key).num_bytes
    if droppable and not is_traced:
        _forget_nested_traces()


def _forget_nested_traces() -> None:
    """Drop the traces of functions that programs call: of JAX's, such as `jnp.where`, and of caffejax's.

    JAX keeps one for each shape without a limit. Functions of users, and the programs in caches, are not concerned.
    """
    # not gc.get_objects(): a tuple that another thread is building must not be in a list at the same time
    for value in gc.get_referrers(_JitFunction):
        if type(value) is _JitFunction and not hasattr(value, "__caffejax_program__"):
            package = str(getattr(value, "__module__", "")).partition(".")[0]
            if package in ("jax", "caffejax"):
                value.clear_cache()


def count_equations(jaxpr: Any, counted: set[int] | None = None) -> int:
    """Return the number of equations of a jaxpr and of those that it calls; one that is called twice counts once."""
    counted = set() if counted is None else counted
    if id(jaxpr) in counted:
        return 0
    counted.add(id(jaxpr))
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    total += count_equations(inner, counted)
    return total
