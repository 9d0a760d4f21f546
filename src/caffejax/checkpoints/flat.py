"""Weights in files of named arrays, .npz and .safetensors: `<layer>/<i>`."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..atomic import replacing, replacing_path
from ..errors import Problem, WeightsError
from ..schema.blobs import Array

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

AnyPath = str | os.PathLike[str]
Arrays = Mapping[str, Array]


def read_npz(path: AnyPath) -> dict[str, Array]:
    """Read the arrays of an .npz file.

    Raises:
        WeightsError: for a file that cannot be read, is none, or holds Python objects.
    """
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            _check_sizes(file.zip)
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, ".npz", error) from error


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise `ValueError` for a member that is no array, or claims more numbers than it has: room is made for them."""
    for info in archive.infolist():
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version not in _HEADERS:
                raise ValueError(f"{info.filename} is of format {version}")
            shape, _, dtype = _HEADERS[version](member)
        if dtype.itemsize * math.prod(shape) > info.file_size:
            raise ValueError(f"{info.filename} has shape {shape}, but {info.file_size} bytes")


def write_npz(path: AnyPath, arrays: Arrays) -> None:
    """Write an .npz file.

    Raises:
        WeightsError: if it cannot be written; what was there before stays whole.
    """
    with replacing(path, WeightsError) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():  # not np.savez, which takes some names for arguments of its own
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_safetensors(path: AnyPath) -> dict[str, Array]:
    """Read the arrays of a .safetensors file.

    Raises:
        WeightsError: for a file that cannot be read or is none, or where the package is missing.
    """
    _import_safetensors()
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError, KeyError) as error:  # KeyError: a type that NumPy does not have
        raise _unreadable(path, ".safetensors", error) from error


def write_safetensors(path: AnyPath, arrays: Arrays) -> None:
    """Write a .safetensors file.

    Raises:
        WeightsError: if it cannot be written, where what was before stays whole, or the package is missing.
    """
    _import_safetensors()
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing_path(path, WeightsError) as partial:
        try:
            save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, partial)
        except SafetensorError as error:
            raise WeightsError(Problem(f"cannot be written: {error}", str(path))) from error


def _import_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        message = "the package for .safetensors files is missing: pip install safetensors"
        raise WeightsError(message) from error


def _unreadable(path: AnyPath, what: str, error: Exception) -> WeightsError:
    if not Path(path).exists():
        return WeightsError(Problem("no such file; check the path and the working directory", str(path)))
    return WeightsError(Problem(f"no {what}, or damaged or cut short: {error}", str(path)))
