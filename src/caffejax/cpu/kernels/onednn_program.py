"""Programs of nets compiled for inference, which oneDNN runs on CPUs through the functions of onednn_program.cc.

A program is a text that program.h specifies, made by `write_program`. An `Executable` runs it on NumPy arrays, without
compilation by XLA. `run` calls it in code that XLA compiles. Both take the weights packed in the layouts that oneDNN's
primitives need.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import onednn
from .packed_weights import Layout, PackedWeights, StoredWeight, address, aligned_empty, raise_if_error

Shape = tuple[int, ...]
FieldValue = int | float | tuple[int, ...] | list[int]

_SMALL_RESULT = 4096  # numbers


class _ProgramInfo(ctypes.Structure):
    _fields_ = (
        ("layouts_hash", ctypes.c_int64),
        ("workspace_bytes", ctypes.c_int64),
        ("steps", ctypes.c_char_p),
        ("packing", ctypes.c_char_p),
    )


@dataclass
class Operation:
    """An operation of a program, with one result.

    The values of a program are numbered: first its arguments, then the results of its operations.

    Attributes:
        name: the operation's name.
        fields: the operation's settings by name. "in" lists the numbers of the values that the operation reads.
        out_shape: the shape of the result.
        epilogue: the names and fields of functions that are applied to the result, in order.
    """

    name: str
    fields: dict[str, FieldValue]
    out_shape: Shape
    epilogue: list[tuple[str, dict[str, FieldValue]]] = field(default_factory=list)

    def values(self, name: str) -> tuple[int, ...]:
        """Return the values of a field as integers."""
        numbers = self.fields[name]
        return tuple(int(n) for n in numbers) if isinstance(numbers, tuple | list) else (int(numbers),)

    @property
    def epilogue_inputs(self) -> tuple[int, ...]:
        """The numbers of the values that the epilogue combines with the result."""
        return tuple(n for _, fields in self.epilogue if isinstance(n := fields.get("value"), int))


@dataclass(frozen=True, eq=False)
class Program:
    """A program.

    Attributes:
        text: the program, in the format of program.h.
        argument_shapes: the shapes of the arguments.
        weight_shapes: the shapes of the weights.
        result_shapes: the shapes of the results.
    """

    text: str
    argument_shapes: tuple[Shape, ...]
    weight_shapes: tuple[Shape, ...]
    result_shapes: tuple[Shape, ...]


def write_program(
    argument_shapes: Sequence[Shape],
    weight_shapes: Sequence[Shape],
    operations: Sequence[Operation],
    result_numbers: Sequence[int],
) -> Program:
    """Write a program.

    Args:
        argument_shapes: the shapes of the arguments.
        weight_shapes: the shapes of the weights.
        operations: the operations, in the order in which they run.
        result_numbers: the numbers of the values to return.
    """
    lines = [
        *(_write_statement("argument", {"dims": shape}) for shape in argument_shapes),
        *(_write_statement("weight", {"dims": shape}) for shape in weight_shapes),
    ]
    for operation in operations:
        lines.append(_write_statement(operation.name, {**operation.fields, "out": operation.out_shape}))
        lines += [_write_statement(f"+{name}", fields) for name, fields in operation.epilogue]
    lines += [_write_statement("result", {"value": number}) for number in result_numbers]
    value_shapes = [*argument_shapes, *(operation.out_shape for operation in operations)]
    result_shapes = tuple(value_shapes[number] for number in result_numbers)
    return Program("\n".join(lines), tuple(argument_shapes), tuple(weight_shapes), result_shapes)


def _write_statement(word: str, fields: Mapping[str, FieldValue]) -> str:
    words = [word]
    for name, values in fields.items():
        words += [name, *map(str, values if isinstance(values, tuple | list) else (values,))]
    return " ".join(words)


def is_available() -> bool:
    """Return whether oneDNN and the functions of onednn_program.cc can be loaded, so that programs can run."""
    return _library() is not None


class Executable:
    """A program together with the oneDNN primitives that run it. Several threads may call it at the same time.

    Args:
        program: the program.

    Attributes:
        program: the program.
        layouts: the layouts of the packed weights.
        packed_bytes: the size of the packed weights, in bytes.
        workspace_bytes: the memory that each call needs in addition to arguments and results, in bytes.
        steps: the names of oneDNN's implementations, in order.
        layouts_hash: a hash of the layouts of the packed weights.

    Raises:
        ValueError: if oneDNN cannot compute the program. The message gives the reason.
    """

    def __init__(self, program: Program) -> None:
        library = _library()
        if library is None:
            raise ValueError("programs need oneDNN, which cannot be loaded")
        info = _ProgramInfo()
        handle = library.caffejax_program_open(program.text.encode(), ctypes.byref(info))
        steps_or_error = info.steps.decode()
        if not handle:
            raise ValueError(steps_or_error)
        # not at exit, because threads may still run it then
        weakref.finalize(self, library.caffejax_program_close, handle).atexit = False
        self.program, self._handle, self._call = program, handle, library.caffejax_program_call
        self.layouts = tuple(
            Layout(library, handle, i, line) for i, line in enumerate(info.packing.decode().splitlines())
        )
        self.packed_bytes = sum(layout.nbytes for layout in self.layouts)
        self.steps, self.workspace_bytes = tuple(steps_or_error.split("\n")[:-1]), int(info.workspace_bytes)
        self.layouts_hash = int(info.layouts_hash)

    def pack(self, weights: Sequence[Any]) -> PackedWeights:
        """Return the weights packed in the layouts of the primitives.

        The weights are packed one by one, so that memory need not hold a second copy of all weights. The largest are
        packed first, so that later weights fit into the memory that is then free.

        Args:
            weights: arrays of the shapes `program.weight_shapes`, or `StoredWeight`s, which are packed once for all
                programs.

        Raises:
            ValueError: if the number or the shapes of the weights differ from the program's.
        """
        expected_shapes = self.program.weight_shapes
        if [tuple(weight.shape) for weight in weights] != list(expected_shapes):
            raise ValueError(
                f"the weights must have shapes {list(expected_shapes)}, not {[tuple(w.shape) for w in weights]}"
            )
        stored_weights = [weight if isinstance(weight, StoredWeight) else StoredWeight(weight) for weight in weights]
        largest_first = sorted(self.layouts, key=lambda layout: -layout.nbytes)
        packed_arrays = {layout: stored_weights[layout.weight].pack(layout) for layout in largest_first}
        return PackedWeights([packed_arrays[layout] for layout in self.layouts], self.layouts_hash)

    def __call__(self, packed_weights: PackedWeights, arguments: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Run the program.

        Args:
            packed_weights: the packed weights, from `pack`.
            arguments: float32 arrays in C order, of the shapes `program.argument_shapes`. If their first axes are n
                times as long, the program runs n times.

        Returns:
            Float32 arrays of the shapes `program.result_shapes`, whose first axes are then also n times as long.

        Raises:
            ValueError: if the arrays have other shapes, dtypes or orders.
        """
        if packed_weights.layouts_hash != self.layouts_hash or len(packed_weights.arrays) != len(self.layouts):
            raise ValueError(f"the packed weights ({packed_weights.nbytes} bytes) belong to a different program")
        shapes = self.program.argument_shapes
        num_repeats = max(1, arguments[0].shape[0] // shapes[0][0]) if arguments and arguments[0].ndim else 1
        results = tuple([_empty_result(shape, num_repeats) for shape in self.program.result_shapes])
        raise_if_error(self._call(self._handle, arguments, results, packed_weights.pointers, num_repeats))
        return results


def _empty_result(shape: Shape, num_repeats: int) -> np.ndarray:
    """Return an uninitialized float32 array of a shape whose first axis is repeated."""
    if num_repeats != 1:
        shape = num_repeats * shape[0], *shape[1:]
    if math.prod(shape) <= _SMALL_RESULT:  # JAX copies the array sooner than it could be aligned
        return np.empty(shape, np.float32)
    return aligned_empty(shape, np.float32)


def non_max_suppression(boxes: np.ndarray, threshold: float, eta: float) -> np.ndarray | None:
    """Return the indices of the boxes that remain after non-maximum suppression, as int64; None without oneDNN.

    The function `non_max_suppression` in `forks.detection.boxes` gives the same result.

    Args:
        boxes: (N, 4) of float32, sorted by descending score.
        threshold: the largest intersection over union that a box may have with the boxes of higher score that remain.
        eta: a factor by which the threshold is multiplied after each box that remains, if the factor is below 1 and
            the threshold above 0.5.
    """
    library = _library()
    if library is None:
        return None
    boxes, selected_indices = np.ascontiguousarray(boxes, np.float32), np.empty(len(boxes), np.int64)
    count = library.caffejax_program_suppress(address(boxes), len(boxes), threshold, eta, address(selected_indices))
    return selected_indices[:count]


def run(program: Program, packed_weights: PackedWeights, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a program in code that XLA compiles.

    Args:
        program: the program.
        packed_weights: the packed weights, as JAX arrays.
        arguments: float32 arrays of the shapes `program.argument_shapes`. If their first axes are n times as long, the
            program runs n times.
    """
    num_repeats = arguments[0].shape[0] // program.argument_shapes[0][0]
    result_structs = [jax.ShapeDtypeStruct((num_repeats * s[0], *s[1:]), np.float32) for s in program.result_shapes]
    call = jax.ffi.ffi_call("caffejax_program_run", result_structs, vmap_method="sequential")
    arrays = [jnp.asarray(a, np.float32) for a in arguments]
    attributes = {
        "program": program.text,
        "layouts_hash": np.int64(packed_weights.layouts_hash),
        "times": np.int64(num_repeats),
    }
    return list(call(*packed_weights.arrays, *arrays, **attributes))


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Load the functions of onednn_program.cc and register them with XLA.

    The result is the loaded library, or None if it cannot be loaded.
    """
    spec = importlib.util.find_spec(f"{__package__}._onednn_program")
    if spec is None or spec.origin is None or not onednn.is_available():
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        # called with Python's lock, because it reads arrays
        library.caffejax_program_call = ctypes.PyDLL(spec.origin).caffejax_program_call  # type: ignore[attr-defined]
        _declare_signatures(library)
        jax.local_devices(backend="cpu")  # XLA needs types before functions; JAX delays functions only
        type_functions = {
            name: _make_capsule(getattr(library, f"caffejax_program_{name}")()) for name in ("type_id", "type_info")
        }
        jax.ffi.register_ffi_type("caffejax_program", type_functions, platform="cpu")  # type: ignore[arg-type]
        instantiate = jax.ffi.pycapsule(library.caffejax_program_make)
        handlers = {"instantiate": instantiate, "execute": jax.ffi.pycapsule(library.caffejax_program_run)}
        jax.ffi.register_ffi_target("caffejax_program_run", handlers, platform="cpu")
    except Exception:  # from the dynamic loader, or from a jaxlib with a different interface
        return None
    return library


def _declare_signatures(library: ctypes.CDLL) -> None:
    """Declare the result and argument types of the library's functions to ctypes."""
    pointer, text, integer, floating = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_float
    for name, result, *arguments in (
        ("open", pointer, text, ctypes.POINTER(_ProgramInfo)),
        ("close", None, pointer),
        ("layout", pointer, pointer, integer),
        ("drop_layout", None, pointer),
        ("pack", text, pointer, pointer, pointer),
        ("unpack", text, pointer, pointer, pointer),
        ("call", text, pointer, ctypes.py_object, ctypes.py_object, pointer, integer),
        ("type_id", pointer),
        ("type_info", pointer),
        ("suppress", integer, pointer, integer, floating, floating, pointer),
    ):
        function = getattr(library, f"caffejax_program_{name}")
        function.restype, function.argtypes = result, arguments


def _make_capsule(address: int) -> object:
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new_capsule(address, None, None)
