"""Weights in the memory layouts that the primitives of oneDNN programs need.

A `StoredWeight` is packed once for each layout. Programs for several shapes of inputs share what is packed. Once a
weight is packed, it is no longer stored in Caffe's order; it is unpacked if somebody asks for it.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

_ALIGNMENT = 64  # bytes; JAX on a CPU shares memory with this alignment instead of copying it


class Layout:
    """The layout of a packed weight. The first weight must be packed while the program exists.

    Args:
        library: the functions of onednn_program.cc.
        program: the address of the program.
        index: the number of the layout in the program.
        line: the description of the layout by onednn_program.cc.

    Attributes:
        weight: the number of the weight in the program.
        nbytes: the size of the packed weight.
        how: "plain" if it equals the weight in Caffe's order, "reordered", or "transformed" if its numbers differ from
            the weight's.
        name: the layout; layouts of equal names pack a weight equally.
    """

    def __init__(self, library: ctypes.CDLL, program: int, index: int, line: str) -> None:
        weight, nbytes, self.how, name = line.split(" ", 3)
        self.weight, self.nbytes = int(weight), int(nbytes)
        self.name = self.how if self.how == "plain" else f"{self.how} {name}"
        self._library, self._program, self._index = library, program, index

    def pack(self, weight: np.ndarray) -> np.ndarray:
        """Return a float32 weight in this layout, (nbytes,) of uint8."""
        packed = aligned_empty((self.nbytes,), np.uint8)
        raise_if(self._library.caffejax_program_pack(self._handle, address(weight), address(packed)))
        return packed

    def unpack(self, packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return a packed weight in Caffe's order, float32 of this shape. It must not be transformed."""
        if self.how == "plain":
            return packed.reshape(shape)
        weight = aligned_empty(shape, np.float32)
        raise_if(self._library.caffejax_program_unpack(self._handle, address(packed), address(weight)))
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
        shape, dtype, ndim: as for arrays.
        source: the array; or once it is packed, the layout and the packed array.
    """

    def __init__(self, array: Any) -> None:
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype, self.ndim = np.dtype(array.dtype), len(self.shape)
        self.source: Any = array
        self._packed: weakref.WeakValueDictionary[str, np.ndarray] = weakref.WeakValueDictionary()  # those in use
        self._unpacked: Callable[[], np.ndarray | None] = lambda: None  # the array in Caffe's order, while it is in use

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the weight in Caffe's order."""
        source, array = self.source, self._unpacked()
        if not isinstance(source, tuple):
            array = np.asarray(source)
        elif array is None:
            layout, packed = source
            array = layout.unpack(packed, self.shape)
            array.flags.writeable = False
            self._unpacked = weakref.ref(array)
        return array.astype(dtype or self.dtype, copy=bool(copy))

    def pack(self, layout: Layout) -> np.ndarray:
        """Return the weight in a layout. Calls with equal layouts return the same array."""
        packed = self._packed.get(layout.name)
        if packed is None:
            array = np.asarray(self, np.float32, order="C")
            packed = self._plain(array) if layout.how == "plain" else layout.pack(array)
            self._packed[layout.name] = packed
            if self.dtype == np.float32 and layout.how != "transformed" and not isinstance(self.source, tuple):
                self.source = layout, packed
        return packed

    def _plain(self, array: np.ndarray) -> np.ndarray:
        """Return an aligned array of the same numbers that is never written to, without a copy where possible."""
        if isinstance(self.source, jax.Array | tuple) and not address(array) % _ALIGNMENT:
            return array.view()
        aligned = aligned_empty(array.shape, np.float32)
        aligned[...] = array
        return aligned


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """The packed weights of a program.

    Attributes:
        arrays: the packed weights, NumPy or JAX arrays, in the order of the program's layouts.
        mark: a number that tells layouts of the program from others.
    """

    arrays: Sequence[Any]
    mark: int

    @property
    def nbytes(self) -> int:
        """The size of all of them."""
        return sum(int(array.nbytes) for array in self.arrays)

    @cached_property
    def pointers(self) -> Any:
        """The addresses of the NumPy arrays, as a C array."""
        return (ctypes.c_void_p * len(self.arrays))(*map(address, self.arrays))


def aligned_empty(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return an uninitialized array aligned to 64 bytes, whose memory JAX on a CPU can share."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + _ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -address(memory) % _ALIGNMENT)


def address(array: np.ndarray) -> int:
    """Return the address of an array's memory."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def raise_if(wrong: bytes | None) -> None:
    """Raise ValueError if a function of onednn_program.cc returned an error message."""
    if wrong is not None:
        raise ValueError(wrong.decode())
