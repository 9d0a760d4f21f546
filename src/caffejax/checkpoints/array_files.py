"""Files of named arrays: .npz and .safetensors. The sizes that a file claims are checked before memory is allocated."""

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

import numpy as np

from ..atomic import replacing, replacing_path
from ..errors import Problem, WeightsError
from ..host_memory import free_memory
from ..human_readable import in_words
from ..paths import not_there
from ..schema.blob_proto import Array

AnyPath = str | os.PathLike[str]

_TAKEN = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # what NumPy writes
_ENCRYPTED = 1
# of a member: what zipfile and NumPy raise for damage, of an .npy's head, which is Python, too
_DAMAGE = (
    *(ValueError, TypeError, EOFError, OSError, RecursionError, MemoryError, SyntaxError, tokenize.TokenError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
_FORMS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: AnyPath) -> dict[str, Array]:
    """Read the arrays of an .npz file. Nothing in it is ever run.

    Raises:
        WeightsError: for a file that cannot be read or is none, and with all members of it that are no arrays, claim
            more than they hold, or take more memory than there is.
    """
    try:
        _check_kind(path)
        with zipfile.ZipFile(path) as archive:
            return _members(archive, path)
    except FileNotFoundError as error:
        raise WeightsError(not_there(path)) from error
    except zipfile.BadZipFile as error:
        raise WeightsError(Problem(f"no .npz, or damaged or cut short: {_reason(path, error)}", str(path))) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise WeightsError(Problem(f"cannot be read: {error}", str(path))) from error


def _members(archive: zipfile.ZipFile, path: AnyPath) -> dict[str, Array]:
    """Read each member. None gives more than the size in its head, by which memory is judged."""
    members = archive.infolist()
    size, free = sum(member.file_size for member in members), free_memory()
    if size > free:
        message = f"its arrays take {in_words(size)}, of memory there are {in_words(free)} left"
        raise WeightsError(Problem(message, str(path)))
    found: dict[str, Array] = {}
    names = Counter(member.filename for member in members)
    problems = [Problem(f"'{name}' stands twice in it", str(path)) for name, count in names.items() if count > 1]
    for member in members:
        try:
            found[member.filename.removesuffix(".npy")] = _array(archive, member)
        except _DAMAGE as error:
            problems.append(Problem(f"'{member.filename}' in it is no array, or damaged: {error}", str(path)))
    if problems:
        raise WeightsError(problems)
    return found


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    if member.flag_bits & _ENCRYPTED:
        raise ValueError("it is encrypted")
    if member.compress_type not in _TAKEN:
        raise ValueError(f"compression {member.compress_type} is none of NumPy's")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _FORMS:
            raise ValueError(f"form {version} of .npy")
        shape, by_columns, dtype = _FORMS[version](file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        if min(shape, default=0) < 0:
            raise ValueError(f"shape {shape}")
        content = file.read()
    if len(content) != (size := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"{dtype} of shape {shape} takes {size} bytes, there are {len(content)}")
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if by_columns else "C")


def write_npz(path: AnyPath, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file.

    Raises:
        WeightsError: if it cannot be written; what was there before stays whole.
    """
    cut = [f"{name!r}: names in an .npz end at a NUL character; rename it" for name in arrays if "\0" in name]
    if cut:
        raise WeightsError(Problem(problem, str(path)) for problem in cut)
    with replacing(path, WeightsError) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():  # not np.savez, which takes some names for arguments of its own
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _check_kind(path: AnyPath) -> None:
    """Raise `OSError` for a device or a pipe, of which reading need not come to an end."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError("it is a device, a pipe or a socket; name a file")


def _reason(path: AnyPath, error: Exception) -> str:
    with open(path, "rb") as file:
        single = file.read(6) == b"\x93NUMPY"
    return "it is one array, an .npy; np.savez makes an .npz" if single else str(error)


Arrays = Mapping[str, Array]


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
        partial.touch()
        mode = partial.stat().st_mode  # as other files have it: the package's can be read by their owner alone
        try:
            save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, partial)
            partial.chmod(mode)
        except SafetensorError as error:
            raise WeightsError(Problem(f"cannot be written: {error}", str(path))) from error


def _import_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        message = "the package for .safetensors files is missing: pip install safetensors"
        raise WeightsError(message) from error


def _unreadable(path: AnyPath, what: str, error: Exception) -> WeightsError:
    if not os.path.exists(Path(path)):
        return WeightsError(not_there(path))
    return WeightsError(Problem(f"no {what}, or damaged or cut short: {error}", str(path)))
