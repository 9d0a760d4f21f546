"""Frozen nets on CPUs: programs that oneDNN runs, by the functions of frozen.cc.

A program is a text, see frozen_program.h. An `Executable` runs it on NumPy arrays, without a compiler; `run` does so in
code that XLA compiles. Both take the weights as one array of bytes, packed once as oneDNN's primitives want them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import onednn

Shape = tuple[int, ...]

_ALIGNMENT = 64  # bytes; JAX takes memory that begins at a multiple of them as it is


class _Answer(ctypes.Structure):
    _fields_ = (
        ("packed", ctypes.c_int64),
        ("workspace", ctypes.c_int64),
        ("steps", ctypes.c_char_p),
        ("packing", ctypes.c_char_p),
    )


def available() -> bool:
    """Return whether programs can be run."""
    return _library() is not None


class Executable:
    """A program as oneDNN runs it. Several threads may do so at the same time.

    Args:
        program: the program.

    Attributes:
        program: the program.
        arguments: the shapes of its arguments.
        weights: the shapes of its weights.
        results: the shapes of its results.
        packed_bytes: bytes of its packed weights.
        workspace_bytes: bytes that each call needs beside its arguments and results.
        steps: the names of oneDNN's implementations, in order.
        packing: how its weights are packed: programs of the same weights with the same packing can share them.

    Raises:
        ValueError: if oneDNN cannot compute it, with the reason.
    """

    def __init__(self, program: str) -> None:
        library = _library()
        if library is None:
            raise ValueError("frozen nets need oneDNN")
        answer = _Answer()
        handle = library.caffejax_frozen_open(program.encode(), ctypes.byref(answer))
        steps = answer.steps.decode()
        if not handle:
            raise ValueError(steps)
        weakref.finalize(self, library.caffejax_frozen_close, handle).atexit = False  # threads may still run it then
        self.packed_bytes, self.workspace_bytes = int(answer.packed), int(answer.workspace)
        self.steps, self.packing = tuple(steps.split("\n")[:-1]), answer.packing.decode()
        self.program, self._library, self._handle = program, library, handle
        self.arguments, self.weights, self.results = _shapes(program)
        self._pointers = ctypes.c_void_p * len(self.arguments), ctypes.c_void_p * len(self.results)

    def pack(self, weights: Sequence[Any]) -> np.ndarray:
        """Return the weights, given in Caffe's order, as the primitives want them: (bytes,) of uint8.

        They are made float32 arrays one after the other, so that no two copies of all are needed at a time.

        Raises:
            ValueError: for arrays of other shapes or dtypes than the program's.
        """
        packed = aligned_empty((self.packed_bytes,), np.uint8)
        if len(weights) != len(self.weights):
            raise ValueError(f"{len(weights)} weights given, the program has {len(self.weights)}")
        for i, (weight, shape) in enumerate(zip(weights, self.weights, strict=True)):
            (own,) = _contiguous([np.asarray(weight, np.float32)], [shape], 1, f"weight {i}: array")
            _raise_if(self._library.caffejax_frozen_pack(self._handle, i, _address(own), _address(packed)))
        _raise_if(self._library.caffejax_frozen_mark(self._handle, _address(packed)))
        return packed

    def __call__(self, packed: np.ndarray, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program.

        Args:
            packed: its weights.
            arguments: arrays of float32 of its arguments' shapes; their first axis may be a multiple of these.

        Raises:
            ValueError: for arrays of other shapes or dtypes.
        """
        times = arguments[0].shape[0] // self.arguments[0][0] if arguments and arguments[0].ndim else 0
        own = _contiguous(arguments, self.arguments, times, "argument")
        if packed.nbytes != self.packed_bytes:
            raise ValueError(f"packed weights of {packed.nbytes} bytes are of another program")
        results = [aligned_empty((times * shape[0], *shape[1:]), np.float32) for shape in self.results]
        given, made = (kind(*map(_address, some)) for kind, some in zip(self._pointers, (own, results), strict=True))
        _raise_if(self._library.caffejax_frozen_call(self._handle, given, made, _address(packed), times))
        return results


def _shapes(program: str) -> tuple[tuple[Shape, ...], tuple[Shape, ...], tuple[Shape, ...]]:
    """Return the shapes of a program's arguments, weights and results, as frozen_program.h reads them."""
    shapes: dict[str, list[Shape]] = {"argument": [], "weight": [], "operation": []}
    results: list[int] = []
    for word, *others in map(str.split, program.split("\n")):
        fields: dict[str, list[int]] = {}
        numbers: list[int] = []
        for other in others:
            if other.isalpha():
                numbers = fields.setdefault(other, [])
            else:
                numbers.append(int(float(other)))
        if word == "result":
            results += fields["value"]
        elif word in ("argument", "weight"):
            shapes[word].append(tuple(fields["dims"]))
        elif word[0] != "+":
            shapes["operation"].append(tuple(fields["out"]))
    values = [*shapes["argument"], *shapes["operation"]]
    return tuple(shapes["argument"]), tuple(shapes["weight"]), tuple(values[number] for number in results)


def suppress(boxes: np.ndarray, threshold: float, eta: float) -> np.ndarray:
    """Return the indices of the boxes that do not overlap better ones; see `non_max_suppression` in `layers.boxes`.

    Args:
        boxes: (N, 4) of float32, the best first.
        threshold: the largest intersection over union with a better box that is kept.
        eta: below 1, the factor by which the threshold falls after every kept box while it is above 0.5.
    """
    library = _library()
    assert library is not None
    boxes, kept = np.ascontiguousarray(boxes, np.float32), np.empty(len(boxes), np.int64)
    count = library.caffejax_frozen_suppress(_address(boxes), len(boxes), threshold, eta, _address(kept))
    return kept[:count]


def aligned_empty(shape: Shape, dtype: type[np.generic]) -> np.ndarray:
    """Return a new array whose memory JAX on a CPU can take as it is; its values are not set."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + _ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -_address(memory) % _ALIGNMENT)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _contiguous(arrays: Sequence[np.ndarray], shapes: Sequence[Shape], times: int, what: str) -> list[np.ndarray]:
    """Return arrays as they lie in Caffe's order; raise `ValueError` unless they are of these shapes."""
    if len(arrays) != len(shapes) or times < 1:
        raise ValueError(f"{len(arrays)} {what}s given, the program has {len(shapes)}")
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.dtype != np.float32 or array.shape != (shape if times == 1 else (times * shape[0], *shape[1:])):
            raise ValueError(f"{what} {i} is {array.dtype} of shape {array.shape}, the program's of {shape}")
    return [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in arrays]


def _raise_if(wrong: bytes | None) -> None:
    if wrong is not None:
        raise ValueError(wrong.decode())


def run(program: str, packed: jax.Array, arguments: Sequence[jax.Array], results: Sequence[Shape]) -> list[jax.Array]:
    """Run a program in code that XLA compiles.

    Args:
        program: the program.
        packed: its weights.
        arguments: arrays of float32 of the shapes that it says; their first axis may be a multiple of these.
        results: shapes of what it gives for arguments of just these shapes.
    """
    times = _times(program, arguments)
    shapes = [jax.ShapeDtypeStruct((times * s[0], *s[1:]), np.float32) for s in results]
    call = jax.ffi.ffi_call("caffejax_frozen_run", shapes, vmap_method="sequential")
    given = [jnp.asarray(a, np.float32) for a in arguments]
    return list(call(packed, *given, program=program, times=np.int64(times)))


def _times(program: str, arguments: Sequence[jax.Array]) -> int:
    first = program.split("\n", 1)[0].split()
    return arguments[0].shape[0] // int(first[2])


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Load the functions, and tell XLA of them; None where they cannot be had."""
    own = importlib.util.find_spec(f"{__package__}._frozen")
    if own is None or own.origin is None or not onednn.available():
        return None
    try:
        found = ctypes.CDLL(own.origin)
        _declare(found)
        for name in ("type_id", "type_info"):
            getattr(found, f"caffejax_frozen_{name}").restype = ctypes.c_void_p
        jax.local_devices(backend="cpu")  # XLA wants types before functions, but JAX keeps only functions for it
        kind = {name: _capsule(getattr(found, f"caffejax_frozen_{name}")()) for name in ("type_id", "type_info")}
        jax.ffi.register_ffi_type("caffejax_frozen", kind, platform="cpu")  # type: ignore[arg-type]
        make = jax.ffi.pycapsule(found.caffejax_frozen_make)
        stages = {"instantiate": make, "execute": jax.ffi.pycapsule(found.caffejax_frozen_run)}
        jax.ffi.register_ffi_target("caffejax_frozen_run", stages, platform="cpu")
    except Exception:  # of the loader, or of a jaxlib that does not take functions compiled for another
        return None
    return found


def _declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of the functions."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.caffejax_frozen_open.restype = pointer
    library.caffejax_frozen_open.argtypes = text, ctypes.POINTER(_Answer)
    library.caffejax_frozen_close.restype = None
    library.caffejax_frozen_close.argtypes = (pointer,)
    library.caffejax_frozen_pack.restype = text
    library.caffejax_frozen_pack.argtypes = pointer, ctypes.c_int64, pointer, pointer
    library.caffejax_frozen_mark.restype = text
    library.caffejax_frozen_mark.argtypes = pointer, pointer
    library.caffejax_frozen_call.restype = text
    library.caffejax_frozen_call.argtypes = pointer, pointer, pointer, pointer, ctypes.c_int64

    library.caffejax_frozen_suppress.restype = ctypes.c_int64
    library.caffejax_frozen_suppress.argtypes = pointer, ctypes.c_int64, ctypes.c_float, ctypes.c_float, pointer


def _capsule(address: int) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, None, None)
