"""Frozen nets on CPUs: programs that oneDNN runs, by the functions of frozen.cc.

A program is a text, see frozen_program.h. Its weights are packed once, as its primitives want them, into an array of
bytes; running it takes that array and the arguments.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import onednn

Shape = tuple[int, ...]


class Built(NamedTuple):
    """What is known of a program once it is built.

    Attributes:
        packed: bytes of its packed weights.
        workspace: bytes that each call needs beside its arguments and results.
        steps: the names of oneDNN's implementations, in order.
        packing: how its weights are packed: programs of the same weights with the same packing can share them.
    """

    packed: int
    workspace: int
    steps: tuple[str, ...]
    packing: str


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


def build(program: str) -> Built:
    """Build a program.

    Raises:
        ValueError: if oneDNN cannot compute it, with the reason.
    """
    library = _library()
    if library is None:
        raise ValueError("frozen nets need oneDNN")
    answer = library.caffejax_frozen_ask(program.encode())
    steps = answer.steps.decode()
    if answer.packed < 0:
        raise ValueError(steps)
    return Built(answer.packed, answer.workspace, tuple(steps.split("\n")[:-1]), answer.packing.decode())


def pack(program: str, built: Built, weights: Sequence[jax.Array]) -> jax.Array:
    """Return a program's weights, given in Caffe's order, as its primitives want them: (bytes,) of uint8."""
    result = jax.ShapeDtypeStruct((built.packed,), np.uint8)
    call = jax.ffi.ffi_call("caffejax_frozen_pack", result)
    packed: jax.Array = jax.jit(functools.partial(call, program=program, times=np.int64(1)))(*weights)
    return packed


def run(program: str, packed: jax.Array, arguments: Sequence[jax.Array], results: Sequence[Shape]) -> list[jax.Array]:
    """Run a program.

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
        found.caffejax_frozen_ask.restype = _Answer
        found.caffejax_frozen_ask.argtypes = (ctypes.c_char_p,)
        for name in ("type_id", "type_info"):
            getattr(found, f"caffejax_frozen_{name}").restype = ctypes.c_void_p
        jax.local_devices(backend="cpu")  # XLA wants types before functions, but JAX keeps only functions for it
        kind = {name: _capsule(getattr(found, f"caffejax_frozen_{name}")()) for name in ("type_id", "type_info")}
        jax.ffi.register_ffi_type("caffejax_frozen", kind, platform="cpu")  # type: ignore[arg-type]
        make = jax.ffi.pycapsule(found.caffejax_frozen_make)
        for name in ("run", "pack"):
            stages = {"instantiate": make, "execute": jax.ffi.pycapsule(getattr(found, f"caffejax_frozen_{name}"))}
            jax.ffi.register_ffi_target(f"caffejax_frozen_{name}", stages, platform="cpu")
    except Exception:  # of the loader, or of a jaxlib that does not take functions compiled for another
        return None
    return found


def _capsule(address: int) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, None, None)
