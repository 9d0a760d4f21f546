"""Programs of frozen nets that oneDNN runs on CPUs, through the functions of onednn_program.cc.

`encode` turns operations into an array of numbers, see program.h. An `Executable` runs a program on NumPy arrays,
without compilation; `run` runs it in code that XLA compiles. Both take the weights as one array of bytes, packed once
in the layouts that oneDNN's primitives need.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import onednn

Shape = tuple[int, ...]
Numbers = int | float | Sequence[int]

_ALIGNMENT = 64  # bytes; JAX on a CPU shares memory with this alignment instead of copying it


class _Answer(ctypes.Structure):
    _fields_ = (
        ("packed", ctypes.c_int64),
        ("workspace", ctypes.c_int64),
        ("steps", ctypes.c_char_p),
        ("packing", ctypes.c_char_p),
    )


@dataclass
class Operation:
    """An operation of a program, with one result.

    Values are numbered: a program's arguments first, then the results of its operations.

    Attributes:
        word: the operation's name.
        fields: its settings by name; "in" lists the numbers of the values that it reads.
        out: the shape of its result.
        after: names and fields of functions that are applied to the result.
    """

    word: str
    fields: dict[str, Numbers]
    out: Shape
    after: list[tuple[str, dict[str, Numbers]]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Program:
    """A program as program.h reads it.

    Attributes:
        numbers: the program, (n,) of float64.
        arguments: the shapes of its arguments.
        weights: the shapes of its weights.
        results: the shapes of its results.
    """

    numbers: np.ndarray
    arguments: tuple[Shape, ...]
    weights: tuple[Shape, ...]
    results: tuple[Shape, ...]


def encode(
    arguments: Sequence[Shape], weights: Sequence[Shape], operations: Sequence[Operation], results: Sequence[int]
) -> Program:
    """Encode a program as an array of numbers.

    Args:
        arguments: the shapes of its arguments.
        weights: the shapes of its weights.
        operations: its operations, in order.
        results: the numbers of the values to return.

    Raises:
        ValueError: for an unknown word or field.
    """
    words, names = _numbers_of_names()

    def statement(word: str, fields: dict[str, Numbers]) -> Iterator[float]:
        yield words[word]
        yield len(fields)
        for name, values in fields.items():
            several = values if isinstance(values, Sequence) else [values]
            yield from [names[name], len(several), *several]

    numbers: list[float] = [len(arguments), len(weights), len(operations), len(results)]
    try:
        for shape in (*arguments, *weights):
            numbers += [len(shape), *shape]
        for operation in operations:
            numbers += statement(operation.word, {**operation.fields, "out": operation.out})
            numbers.append(len(operation.after))
            for after in operation.after:
                numbers += statement(*after)
    except KeyError as error:
        raise ValueError(f"oneDNN programs have no {error.args[0]!r}") from None
    shapes = [*arguments, *(operation.out for operation in operations)]
    result_shapes = tuple(shapes[number] if 0 <= number < len(shapes) else () for number in results)
    return Program(np.array([*numbers, *results], np.float64), tuple(arguments), tuple(weights), result_shapes)


def available() -> bool:
    """Return whether programs can be run."""
    return _library() is not None


class Executable:
    """A program with its oneDNN primitives. Several threads may run it at the same time.

    Args:
        program: the program.

    Attributes:
        program: the program.
        packed_bytes: bytes of its packed weights.
        workspace_bytes: bytes that each call needs in addition to its arguments and results.
        steps: the names of oneDNN's implementations, in order.
        packing: the layouts of its packed weights, as text; programs with equal weights and packings can share them.

    Raises:
        ValueError: if oneDNN cannot compute it, with the reason.
    """

    def __init__(self, program: Program) -> None:
        library = _library()
        if library is None:
            raise ValueError("frozen nets need oneDNN")
        answer = _Answer()
        numbers = program.numbers
        handle = library.caffejax_program_open(_address(numbers), len(numbers), ctypes.byref(answer))
        steps = answer.steps.decode()
        if not handle:
            raise ValueError(steps)
        weakref.finalize(
            self, library.caffejax_program_close, handle
        ).atexit = False  # at exit, threads may still run it
        self.packed_bytes, self.workspace_bytes = int(answer.packed), int(answer.workspace)
        self.steps, self.packing = tuple(steps.split("\n")[:-1]), answer.packing.decode()
        self.program, self._library, self._handle = program, library, handle
        self._pointers = ctypes.c_void_p * len(program.arguments), ctypes.c_void_p * len(program.results)

    def pack(self, weights: Sequence[Any]) -> np.ndarray:
        """Pack weights, given in Caffe's order, in the layouts of the primitives: (bytes,) of uint8.

        They are converted to float32 one by one, to need no second copy of all weights.

        Raises:
            ValueError: for arrays of other shapes or dtypes than the program's.
        """
        packed = aligned_empty((self.packed_bytes,), np.uint8)
        shapes = self.program.weights
        if len(weights) != len(shapes):
            raise ValueError(f"{len(weights)} weights given, the program has {len(shapes)}")
        for i, (weight, shape) in enumerate(zip(weights, shapes, strict=True)):
            (contiguous,) = _contiguous([np.asarray(weight, np.float32)], [shape], 1, f"weight {i}: array")
            _raise_if(self._library.caffejax_program_pack(self._handle, i, _address(contiguous), _address(packed)))
        _raise_if(self._library.caffejax_program_mark(self._handle, _address(packed)))
        return packed

    def __call__(self, packed: np.ndarray, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the program.

        Args:
            packed: its packed weights.
            arguments: float32 arrays of its arguments' shapes; the first axis may be a multiple of the program's.

        Raises:
            ValueError: for arrays of other shapes or dtypes.
        """
        program = self.program
        times = arguments[0].shape[0] // program.arguments[0][0] if arguments and arguments[0].ndim else 0
        arrays = _contiguous(arguments, program.arguments, times, "argument")
        if packed.nbytes != self.packed_bytes:
            raise ValueError(f"packed weights of {packed.nbytes} bytes are of another program")
        results = [aligned_empty((times * shape[0], *shape[1:]), np.float32) for shape in program.results]
        sources, targets = self._pointers[0](*map(_address, arrays)), self._pointers[1](*map(_address, results))
        _raise_if(self._library.caffejax_program_call(self._handle, sources, targets, _address(packed), times))
        return results


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
    count = library.caffejax_program_suppress(_address(boxes), len(boxes), threshold, eta, _address(kept))
    return kept[:count]


def aligned_empty(shape: Shape, dtype: type[np.generic]) -> np.ndarray:
    """Return an uninitialized array whose memory JAX on a CPU can share."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + _ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -_address(memory) % _ALIGNMENT)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _contiguous(arrays: Sequence[np.ndarray], shapes: Sequence[Shape], times: int, what: str) -> list[np.ndarray]:
    """Return the arrays, made contiguous; raise `ValueError` for other shapes or dtypes."""
    if len(arrays) != len(shapes) or times < 1:
        raise ValueError(f"{len(arrays)} {what}s given, the program has {len(shapes)}")
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.dtype != np.float32 or array.shape != (shape if times == 1 else (times * shape[0], *shape[1:])):
            raise ValueError(f"{what} {i} is {array.dtype} of shape {array.shape}, the program's of {shape}")
    return [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in arrays]


def _raise_if(wrong: bytes | None) -> None:
    if wrong is not None:
        raise ValueError(wrong.decode())


def run(program: Program, packed: jax.Array, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a program in code that XLA compiles.

    Args:
        program: the program.
        packed: its packed weights, (bytes,) of uint8.
        arguments: float32 arrays of the program's shapes; the first axis may be a multiple of the program's.
    """
    times = arguments[0].shape[0] // program.arguments[0][0]
    shapes = [jax.ShapeDtypeStruct((times * s[0], *s[1:]), np.float32) for s in program.results]
    call = jax.ffi.ffi_call("caffejax_program_run", shapes, vmap_method="sequential")
    arrays = [jnp.asarray(a, np.float32) for a in arguments]
    return list(call(packed, *arrays, program=program.numbers, times=np.int64(times)))


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Load the functions and register them with XLA; return None if they are missing or do not fit this jaxlib."""
    spec = importlib.util.find_spec(f"{__package__}._onednn_program")
    if spec is None or spec.origin is None or not onednn.available():
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        _declare(library)
        jax.local_devices(backend="cpu")  # XLA wants types before functions, but JAX keeps only functions for it
        kind = {name: _capsule(getattr(library, f"caffejax_program_{name}")()) for name in ("type_id", "type_info")}
        jax.ffi.register_ffi_type("caffejax_program", kind, platform="cpu")  # type: ignore[arg-type]
        make = jax.ffi.pycapsule(library.caffejax_program_make)
        stages = {"instantiate": make, "execute": jax.ffi.pycapsule(library.caffejax_program_run)}
        jax.ffi.register_ffi_target("caffejax_program_run", stages, platform="cpu")
    except Exception:  # of the loader, or of a jaxlib with another version of the interface
        return None
    return library


def _declare(library: ctypes.CDLL) -> None:
    """Declare the functions' types to ctypes."""
    pointer, text, integer, real = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_float
    for name, result, *arguments in (
        ("open", pointer, pointer, integer, ctypes.POINTER(_Answer)),
        ("close", None, pointer),
        ("pack", text, pointer, integer, pointer, pointer),
        ("mark", text, pointer, pointer),
        ("call", text, pointer, pointer, pointer, pointer, integer),
        ("names", text),
        ("type_id", pointer),
        ("type_info", pointer),
        ("suppress", integer, pointer, integer, real, real, pointer),
    ):
        function = getattr(library, f"caffejax_program_{name}")
        function.restype, function.argtypes = result, arguments


@functools.cache
def _numbers_of_names() -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of the words and of the fields in programs, by name."""
    library = _library()
    lines = library.caffejax_program_names().decode().split("\n") if library else ["", ""]
    words, fields = ({name: i for i, name in enumerate(line.split())} for line in lines)
    return words, fields


def _capsule(address: int) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, None, None)
