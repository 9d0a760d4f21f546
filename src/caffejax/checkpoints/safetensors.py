"""Files of named arrays, .safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..atomic import replacing_path
from ..errors import Problem, WeightsError
from ..paths import not_there
from ..schema.blob_proto import Array

AnyPath = str | os.PathLike[str]
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
