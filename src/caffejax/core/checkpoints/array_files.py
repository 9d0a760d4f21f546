"""Files of named arrays: .npz and .safetensors."""

from __future__ import annotations

import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...base.atomic_write import replace_file, replace_path
from ...base.errors import Problem, WeightsError, raise_if_any
from ...base.host_memory import get_free_memory
from ...base.human_readable import format_bytes
from ...base.paths import make_missing_problem
from ..schema.blob_proto import Array

AnyPath = str | os.PathLike[str]

_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the compressions that NumPy writes
_ENCRYPTED_FLAG = 1
# errors of zipfile and NumPy for a damaged member; NumPy parses the header of an .npy as Python
DAMAGE_ERRORS = (
    *(ValueError, TypeError, EOFError, OSError, RecursionError, MemoryError, SyntaxError, tokenize.TokenError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: AnyPath) -> dict[str, Array]:
    """Read the arrays of an .npz file, by name.

    Pickled objects are refused, so that no code in the file runs. The sizes that the file declares are checked against
    the free memory before memory is allocated.

    Raises:
        WeightsError: if the file cannot be read, is not an .npz file, needs more than the free memory, or has members
            that are damaged or not arrays. The message names each such member.
    """
    try:
        if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError("it is a device, a pipe or a socket; name a file")
        with zipfile.ZipFile(path) as archive:
            return _read_members(archive, path)
    except FileNotFoundError as error:
        raise WeightsError(make_missing_problem(path)) from error
    except zipfile.BadZipFile as error:
        with open(path, "rb") as file:
            is_npy = file.read(6) == b"\x93NUMPY"
        reason = "it contains one array, as an .npy file does; write it with np.savez" if is_npy else str(error)
        raise WeightsError(Problem(f"not an .npz file, or damaged or cut short: {reason}", str(path))) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise WeightsError(Problem(f"cannot be read: {error}", str(path))) from error


def _read_members(archive: zipfile.ZipFile, path: AnyPath) -> dict[str, Array]:
    members = archive.infolist()
    total_size, free_bytes = sum(member.file_size for member in members), get_free_memory()
    if total_size > free_bytes:
        message = f"its arrays need {format_bytes(total_size)}, but only {format_bytes(free_bytes)} of memory are free"
        raise WeightsError(Problem(message, str(path)))
    arrays: dict[str, Array] = {}
    names = Counter(member.filename for member in members)
    problems = [Problem(f"it has two members '{name}'", str(path)) for name, count in names.items() if count > 1]
    for member in members:
        try:
            arrays[member.filename.removesuffix(".npy")] = _read_array(archive, member)
        except DAMAGE_ERRORS as error:
            problems.append(Problem(f"its member '{member.filename}' is not an array, or damaged: {error}", str(path)))
    raise_if_any(WeightsError, problems)
    return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    if member.flag_bits & _ENCRYPTED_FLAG:
        raise ValueError("it is encrypted")
    if member.compress_type not in _COMPRESSIONS:
        raise ValueError(f"NumPy does not write compression type {member.compress_type}; use np.savez")
    with archive.open(member) as file:
        return parse_npy(file)


def parse_npy(file: IO[bytes]) -> Array:
    """Read the array of an .npy file; raise one of `DAMAGE_ERRORS` if it is damaged or has Python objects."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADER_READERS:
        raise ValueError(f"it has the unknown .npy version {version}")
    shape, is_column_major, dtype = _HEADER_READERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape {shape} has a negative size")
    content = file.read()
    if len(content) != (n_bytes := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"{dtype} of shape {shape} takes {n_bytes} bytes, but there are {len(content)} bytes")
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if is_column_major else "C")


def write_npz(path: AnyPath, arrays: Mapping[str, Array]) -> None:
    """Write named arrays to an .npz file, without compression.

    Raises:
        WeightsError: if the file cannot be written or a name contains a NUL character. An existing file then stays
            unchanged.
    """
    problems = (f"{name!r}: names in an .npz end at a NUL character; rename it" for name in arrays if "\0" in name)
    raise_if_any(WeightsError, problems, str(path))
    with replace_file(path, WeightsError) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():  # np.savez would take names such as "file" for its arguments
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_safetensors(path: AnyPath) -> dict[str, Array]:
    """Read the arrays of a .safetensors file, by name.

    Raises:
        WeightsError: if the file cannot be read or is not a .safetensors file, or the package safetensors is missing.
    """
    safetensors = _import_safetensors()
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError, KeyError) as error:  # KeyError: a dtype that NumPy does not have
        if not os.path.exists(Path(path)):
            raise WeightsError(make_missing_problem(path)) from error
        raise WeightsError(Problem(f"not a .safetensors file, or damaged or cut short: {error}", str(path))) from error


def write_safetensors(path: AnyPath, arrays: Mapping[str, Array]) -> None:
    """Write named arrays to a .safetensors file.

    Raises:
        WeightsError: if the file cannot be written, or the package safetensors is missing. An existing file then stays
            unchanged.
    """
    safetensors = _import_safetensors()
    with replace_path(path, WeightsError) as partial:
        partial.touch()
        mode = partial.stat().st_mode  # the mode by the umask; safetensors' mode is only for the owner
        try:
            safetensors.numpy.save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, partial)
            partial.chmod(mode)
        except safetensors.SafetensorError as error:
            raise WeightsError(Problem(f"cannot be written: {error}", str(path))) from error


def _import_safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise WeightsError("the package for .safetensors files is missing: pip install safetensors") from error
    return safetensors
