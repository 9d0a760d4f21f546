"""Mutations of HDF5 files: bytes of their tables, or other types, shapes, links and groups written by HDF5."""

from __future__ import annotations

import io
from random import Random

import h5py
import numpy as np

from .byte_mutations import damage
from .numbers import draw_edge

_SIGNATURES = (b"TREE", b"HEAP", b"SNOD", b"\x89HDF", b"OHDR", b"FRHP", b"BTHD")


def change_hdf5(rng: Random, content: bytes) -> bytes:
    """Change the file in one of these ways."""
    choice = rng.random()
    if choice < 0.2:
        return damage(rng, content)
    if choice < 0.6:
        return change_tables(rng, content)
    return change_objects(rng, content)


def change_tables(rng: Random, content: bytes) -> bytes:
    """Change numbers near the begin of one of the file's own tables."""
    result = bytearray(content)
    offsets = [i for mark in _SIGNATURES for i in range(0, len(result), 8) if result.startswith(mark, i)] or [0]
    for _ in range(rng.choice((1, 1, 2, 4))):
        offset = min(len(result) - 1, rng.choice(offsets) + rng.randrange(rng.choice((24, 100, 600))))
        size = rng.choice((1, 2, 4, 8))
        result[offset : offset + size] = draw_edge(rng, 8 * size).to_bytes(size, "little")[: len(result) - offset]
    return bytes(result)


def change_objects(rng: Random, content: bytes) -> bytes:
    """Put something else in the place of an object, as HDF5 itself writes it."""
    buffer = io.BytesIO(content)
    try:
        with h5py.File(buffer, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            name = rng.choice(sorted(names))
            item = file[name]
            array = item[()] if isinstance(item, h5py.Dataset) else np.zeros(3, np.float32)
            del file[name]
            _put_object(rng, file, name, array, sorted(names))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return damage(rng, content)
    return buffer.getvalue()


def _put_object(rng: Random, file: h5py.File, name: str, array: np.ndarray, names: list[str]) -> None:
    choice = rng.randrange(12)
    if choice == 0:
        file.create_group(name)
    elif choice == 1:
        file[name] = h5py.SoftLink(rng.choice(["/nowhere", f"/{name}", "/", f"/{rng.choice(names)}"]))
    elif choice == 2:
        file[name] = h5py.ExternalLink(rng.choice(["nowhere.h5", "/etc/passwd", "."]), "/x")
    elif choice == 3:
        file[name] = rng.choice(["text", b"bytes", np.array([b"a", b"b"]), 1 + 2j, True])
    elif choice == 4:
        file.create_dataset(name, data=h5py.Empty("f4"))
    elif choice == 5:
        file[name] = np.asarray(array).reshape(-1)[: rng.randrange(4)]
    elif choice == 6:
        file[name] = np.asarray(array)[None]
    elif choice == 7:
        file.create_dataset(name, (draw_edge(rng, 12), 3), rng.choice(["f4", "i8", "f8", "u1"]))
    elif choice == 8:
        file[name] = np.zeros(3, [("a", "f4"), ("b", "i4")])
    elif choice == 9:
        file.create_dataset(
            name, data=np.broadcast_to(np.float64(rng.choice([1e300, np.nan, -np.inf])), np.shape(array))
        )
    elif choice == 10:
        file.create_dataset(rng.choice([f"{name}1000000000000", f"{name}/x", "\u0663", "-1", "x" * 2000]), data=array)
    else:
        file[name] = file["/"]
