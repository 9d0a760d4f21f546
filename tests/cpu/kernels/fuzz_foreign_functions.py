"""Fuzz the foreign functions of a library: `python fuzz_foreign_functions.py ONEDNN LIBRARY NUMBER_OF_CALLS`.

It ends with an error if an invalid call succeeds, or a valid one has a wrong result.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import jax
import jax.numpy as jnp
import numpy as np
from foreign_calls import (
    FUNCTIONS,
    Call,
    alter,
    check_results,
    draw_array,
    draw_valid_call,
    is_valid,
    make_wide_calls,
)

PREFIX = "sanitized_"
PAGE, ALIGNMENT, NO_ACCESS = mmap.PAGESIZE, 64, 0
_libc = ctypes.CDLL(None, use_errno=True)


class GuardedArray:
    """A copy of an array between two inaccessible pages; it ends where the second page begins.

    XLA requires arrays that begin at a multiple of 64 bytes; the bytes around the copy are NaN.

    Attributes:
        array: the copy.
        operand: the same memory, for JAX.
    """

    def __init__(self, array: np.ndarray) -> None:
        pages = -(-array.nbytes // PAGE) * PAGE
        mapped_memory = np.frombuffer(mmap.mmap(-1, pages + 2 * PAGE), np.uint8)
        for fence in (0, PAGE + pages):
            if _libc.mprotect(ctypes.c_void_p(mapped_memory.ctypes.data + fence), PAGE, NO_ACCESS):
                raise OSError(ctypes.get_errno(), "no fence")
        self._inside = mapped_memory[PAGE : PAGE + pages]
        self._inside[:] = 0xFF  # NaN
        start = pages - -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.array = self._inside[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self._before = self._inside.copy()
        self.operand = jax.dlpack.from_dlpack(self.array)
        assert self.operand.unsafe_buffer_pointer() == self.array.ctypes.data

    def is_unchanged(self) -> bool:
        """Return whether the copy and the bytes around it are unchanged."""
        return bool(np.array_equal(self._inside, self._before))


def check_call(call: Call, random: np.random.Generator) -> bool:
    """Make a call and check its results, or its error; return whether the call is valid.

    Raises:
        AssertionError: if a valid call fails or has wrong results, an invalid call succeeds, or operands are changed.
    """
    arrays = [draw_array(random, operand) for operand in call.operands]
    guarded_arrays = [GuardedArray(array) for array in arrays if array.dtype == np.float32 and array.size]
    remaining_arrays = iter(guarded_arrays)
    operands = [next(remaining_arrays).operand if a.dtype == np.float32 and a.size else jnp.asarray(a) for a in arrays]
    is_valid_call, results, message = is_valid(call), None, ""
    try:
        results = call.run(operands, PREFIX)
    except jax.errors.JaxRuntimeError as error:
        message = str(error)
    if is_valid_call:
        assert results is not None, f"{call}: {message}"
        check_results(call, arrays, results)
    else:
        assert "INVALID_ARGUMENT" in message, f"{call}: {message or 'no error'}"
    assert all(f.is_unchanged() for f in guarded_arrays), f"{call}: wrote to what it was given"
    return is_valid_call


def main(onednn: str, library: str, count: int) -> None:
    """Register the functions, and make this many calls, about half of them valid, after the calls of wide planes."""
    ctypes.CDLL(onednn)  # its name is then known to the loader
    functions = ctypes.CDLL(library)
    for name in FUNCTIONS:
        jax.ffi.register_ffi_target(PREFIX + name, jax.ffi.pycapsule(getattr(functions, f"caffejax_{name}")), "cpu")
    random = np.random.default_rng(0)
    for call in make_wide_calls():
        print(call, file=sys.stderr)
        check_call(call, random)
    num_valid = num_calls = 0
    while num_calls < count:
        call = draw_valid_call(random, FUNCTIONS[num_calls % len(FUNCTIONS)])
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            call = alter(random, call)
        if call.has_results():
            print(call, file=sys.stderr)  # the last one is the one that went wrong
            num_valid += check_call(call, random)
            num_calls += 1
    print(f"{num_valid} right and {num_calls - num_valid} wrong calls")


if __name__ == "__main__":
    main(*sys.argv[1:3], int(sys.argv[3]))
