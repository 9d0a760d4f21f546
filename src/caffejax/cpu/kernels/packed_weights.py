"""Weights in the memory layouts that the primitives of oneDNN programs need.

A `StoredWeight` is packed once for each layout. Programs for different input shapes share the packed arrays. A packed
weight is no longer stored in Caffe's order; it is unpacked on request.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

_ALIGNMENT = 64  # bytes; JAX on a CPU shares memory with this alignment instead of copying it


class Layout:
    """The layout of a packed weight. The program must still exist when its layout is used for the first time.

    Args:
        library: the functions of onednn_program.cc.
        program: the address of the program.
        index: the number of the layout in the program.
        line: a line of text in which onednn_program.cc describes the layout.

    Attributes:
        weight: the number of the weight in the program.
        nbytes: the size of the packed weight.
        kind: "plain" if the packed weight equals the weight in Caffe's order, "reordered" if only the order differs, or
            "transformed" if the numbers differ.
        name: the name of the layout. Layouts with equal names pack a weight in the same way.
    """

    def __init__(self, library: ctypes.CDLL, program: int, index: int, description: str) -> None:
        weight, nbytes, self.kind, name = description.split(" ", 3)
        self.weight, self.nbytes = int(weight), int(nbytes)
        self.name = self.kind if self.kind == "plain" else f"{self.kind} {name}"
        self._library, self._program, self._index = library, program, index

    def pack(self, weight: np.ndarray) -> np.ndarray:
        """Return a float32 weight in this layout, (nbytes,) of uint8."""
        packed_array = aligned_empty((self.nbytes,), np.uint8)
        raise_if_error(self._library.caffejax_program_pack(self._handle, address(weight), address(packed_array)))
        return packed_array

    def unpack(self, packed_array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return a packed weight in Caffe's order, as float32 of this shape. The layout must not be "transformed"."""
        if self.kind == "plain":
            return packed_array.reshape(shape)
        weight = aligned_empty(shape, np.float32)
        raise_if_error(self._library.caffejax_program_unpack(self._handle, address(packed_array), address(weight)))
        return weight

    @cached_property
    def _handle(self) -> int:
        handle: int = self._library.caffejax_program_layout(self._program, self._index)
        weakref.finalize(self, self._library.caffejax_program_drop_layout, handle).atexit = False
        return handle


class StoredWeight:
    """A weight that is stored once, in Caffe's order or packed. NumPy can convert it to an array.

    Args:
        array: the weight, or a value that NumPy converts to it.

    Attributes:
        shape, dtype, ndim: the attributes of an array.
        source: the array, or the layout and the packed array if the weight is packed.
    """

    def __init__(self, array: Any) -> None:
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype, self.ndim = np.dtype(array.dtype), len(self.shape)
        self.source: Any = array
        self._packed_arrays: weakref.WeakValueDictionary[str, np.ndarray] = (
            weakref.WeakValueDictionary()
        )  # by layout, while in use
        # returns the array in Caffe's order, while it is in use
        self._get_unpacked: Callable[[], np.ndarray | None] = lambda: None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the weight in Caffe's order."""
        source, array = self.source, self._get_unpacked()
        if not isinstance(source, tuple):
            array = np.asarray(source)
        elif array is None:
            layout, packed_array = source
            array = layout.unpack(packed_array, self.shape)
            array.flags.writeable = False
            self._get_unpacked = weakref.ref(array)
        return array.astype(dtype or self.dtype, copy=bool(copy))

    def pack(self, layout: Layout) -> np.ndarray:
        """Return the weight in a layout. Calls with equal layouts return the same array."""
        packed_array = self._packed_arrays.get(layout.name)
        if packed_array is None:
            array = np.asarray(self, np.float32, order="C")
            packed_array = self._align(array) if layout.kind == "plain" else layout.pack(array)
            self._packed_arrays[layout.name] = packed_array
            if self.dtype == np.float32 and layout.kind != "transformed" and not isinstance(self.source, tuple):
                self.source = layout, packed_array
        return packed_array

    def _align(self, array: np.ndarray) -> np.ndarray:
        """Return an aligned array with the numbers of `array`, which is copied only if necessary.

        The result must not be written to.
        """
        if isinstance(self.source, jax.Array | tuple) and not address(array) % _ALIGNMENT:
            return array.view()
        aligned_array = aligned_empty(array.shape, np.float32)
        aligned_array[...] = array
        return aligned_array


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """The packed weights of a program.

    Attributes:
        arrays: the packed weights, NumPy or JAX arrays, in the order of the program's layouts.
        layouts_hash: a hash of the layouts, which identifies the program.
    """

    arrays: Sequence[Any]
    layouts_hash: int

    @property
    def nbytes(self) -> int:
        """The size of all arrays, in bytes."""
        return sum(int(array.nbytes) for array in self.arrays)

    @cached_property
    def pointers(self) -> Any:
        """The addresses of the NumPy arrays, as a C array."""
        return (ctypes.c_void_p * len(self.arrays))(*map(address, self.arrays))


def aligned_empty(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return an uninitialized array aligned to 64 bytes, whose memory JAX on a CPU can share.

    Its memory is in small pages. NumPy requests huge pages for large arrays, but a virtual machine may take several
    times as long to provide them: the first result of FCN-8s took 0.8 seconds more. Calls are 1 % faster with them.
    """
    with _huge_pages_lock:  # NumPy has one setting for all threads
        advised = _advise_huge_pages(False)
        try:
            memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + _ALIGNMENT, np.uint8)
        finally:
            _advise_huge_pages(advised)
    return np.ndarray(shape, dtype, memory, -address(memory) % _ALIGNMENT)


try:  # the function behind NumPy's environment variable NUMPY_MADVISE_HUGEPAGE, which has no public name
    from numpy._core.multiarray import _set_madvise_hugepage as _advise_huge_pages  # type: ignore[attr-defined]
except ImportError:

    def _advise_huge_pages(advised: bool) -> bool:
        return advised


_huge_pages_lock = threading.Lock()


def address(array: np.ndarray) -> int:
    """Return the address of an array's memory."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def raise_if_error(message: bytes | None) -> None:
    """Raise `ValueError` if a function of onednn_program.cc returned an error message instead of None."""
    if message is not None:
        raise ValueError(message.decode())
