"""HDF5 files as Caffe lays them out: opened with errors that name them, and arrays in and out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from h5py import Group
from numpy.typing import ArrayLike

from ..atomic import replacing_path
from ..errors import Problem, WeightsError
from ..paths import not_there
from ..schema.blob_proto import Array
from ..untrusted_hdf5 import HDF5_ERRORS, Allowance, find, is_linked, opened

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MAX_BLOBS = 1_000_000  # of a group; a number beyond is damage

AnyPath = str | os.PathLike[str]


def is_hdf5(path: AnyPath) -> bool:
    """Return whether a file is HDF5, going by its first bytes. One that cannot be read is not."""
    try:
        with open(path, "rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except (OSError, ValueError):
        return False


@contextmanager
def open_hdf5(path: AnyPath, what: str) -> Iterator[h5py.File]:
    """Open a file to read from; `what` it should be is for messages.

    Raises:
        WeightsError: if it cannot be read, also by what reads from it.
    """
    if not os.path.exists(Path(path)):
        raise WeightsError(not_there(path))
    try:
        with opened(path) as file:
            yield file
    except (*HDF5_ERRORS, MemoryError) as error:
        raise WeightsError(Problem(f"no {what}, or damaged or cut short: {error}", str(path))) from error


@contextmanager
def replace_hdf5(path: AnyPath) -> Iterator[h5py.File]:
    """Open a file to write to, which takes the place of `path` once it is complete.

    Raises:
        WeightsError: if it cannot be written; what was there before stays whole.
    """
    with replacing_path(path, WeightsError) as partial:
        try:
            with h5py.File(partial, "x") as file:
                yield file
        except (
            RuntimeError,
            ValueError,
            TypeError,
        ) as error:  # h5py's, for a disk that fills up, and for names taken twice
            raise WeightsError(Problem(f"cannot be written: {error}", str(path))) from error


def read_arrays(group: h5py.Group, allowance: Allowance) -> tuple[Array | None, ...]:
    """Read a group's numbered data sets as float32, in order; None for a number that is left out.

    Args:
        group: the group.
        allowance: how much may be read of its file.

    Raises:
        ValueError: for a name that is no number, a data set that holds no numbers or claims too much, and no group.
    """
    _check_group(group)
    found = {_number(group, name): _array(group[name], allowance) for name in group if _is_data_set(group, name)}
    return tuple(found.get(i) for i in range(1 + max(found, default=-1)))


def blob_groups(group: h5py.Group) -> Iterator[tuple[str, h5py.Group]]:
    """List the groups with data sets, or with nothing, by path. A slash in a layer's name makes a group in a group.

    Raises:
        ValueError: for what is no group.
    """
    _check_group(group)
    seen = {group}  # a damaged or hostile file may have a group within itself

    def walk(outer: h5py.Group, prefix: str) -> Iterator[tuple[str, h5py.Group]]:
        for name in outer:
            if is_linked(outer, name) or not isinstance(inner := outer[name], h5py.Group) or inner in seen:
                continue
            seen.add(inner)
            if not len(inner) or any(_is_data_set(inner, key) for key in inner):
                yield f"{prefix}{name}", inner
            yield from walk(inner, f"{prefix}{name}/")

    return walk(group, "")


def write_arrays(group: h5py.Group, numbered: Iterable[tuple[int, Array]]) -> None:
    """Write arrays under their numbers."""
    for i, array in numbered:
        group.create_dataset(str(i), data=np.asarray(array, "<f4"))


def write_string(group: h5py.Group, name: str, value: str) -> None:
    """Write a string as Caffe does and needs it: of fixed length, the closing zero included."""
    content = value.encode()
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(content) + 1)
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    data_set = h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    data_set.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(content + b"\0", f"S{len(content) + 1}"), kind)


def _check_group(group: object) -> None:
    if not isinstance(group, h5py.Group):
        raise ValueError(f"{getattr(group, 'name', group)} is a {type(group).__name__.lower()}, not a group")


def _number(group: h5py.Group, name: str) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) > 9 or int(name) >= _MAX_BLOBS:
        raise ValueError(f"'{name}' in {group.name} is no number of a blob")
    return int(name)


def _array(data_set: h5py.Dataset, allowance: Allowance) -> Array:
    if data_set.dtype.kind not in "fiu" or data_set.shape is None:
        raise ValueError(f"{data_set.name} holds {data_set.dtype}, not numbers")
    if data_set.size and not data_set.id.get_storage_size():  # a shape alone may claim any amount of memory
        raise ValueError(f"{data_set.name} has a shape but no values")
    allowance.check(data_set)
    with np.errstate(over="ignore", invalid="ignore"):  # what no float holds becomes infinity, as in Caffe
        array = np.asarray(data_set[()], np.float32)
    array.flags.writeable = False
    return array


def _is_data_set(group: h5py.Group, name: str) -> bool:
    return not is_linked(group, name) and isinstance(group[name], h5py.Dataset)


Stored = dict[str, tuple[Array | None, ...]]


def read_caffemodel_h5(path: str | os.PathLike[str], section: str = "data") -> Stored:
    """Read the weights of a net.

    Args:
        path: the file.
        section: "data", or "diff" for gradients where the file has them.

    Returns:
        Blobs by layer name, in the file's order; None for a blob that the file leaves out before others.

    Raises:
        WeightsError: for a file that cannot be read, is none, or is damaged.
    """
    with open_hdf5(path, ".caffemodel.h5") as file:
        found = find(file, section)
        if not isinstance(found, Group):
            hint = " (this is a solver state: name the weights instead)" if find(file, "history") else ""
            raise WeightsError(Problem(f"has no group '{section}'{hint}; is it a .caffemodel.h5?", str(path)))
        allowance = Allowance(file)
        return {name: read_arrays(group, allowance) for name, group in blob_groups(found)}


def write_caffemodel_h5(
    path: str | os.PathLike[str],
    blobs: Mapping[str, Sequence[ArrayLike | None]],
    diffs: Mapping[str, Sequence[ArrayLike]] | None = None,
    layers: Collection[str] = (),
) -> None:
    """Write weights as Caffe does. A file that is there already is replaced once the new one is complete.

    Args:
        path: the file.
        blobs: by layer name; None for one to leave out.
        diffs: gradients to store beside the blobs; of all blobs, left out or not.
        layers: names of all layers, to have those without blobs in the file too.

    Raises:
        WeightsError: if the file cannot be written, or for names that one file cannot hold.
    """
    names = [*layers, *(name for name in {**blobs, **(diffs or {})} if name not in layers)]
    wrong = [name for name in dict.fromkeys(names) if names.count(name) > 1 or not _is_path(name)]
    if wrong:
        message = "HDF5 cannot hold a layer of this name, or several; rename it, or write a .caffemodel"
        raise WeightsError(Problem(message, str(path), layer=name) for name in wrong)
    with replace_hdf5(path) as file:
        for section, tree in (("data", blobs), ("diff", diffs)):
            if tree is None:
                continue
            top = file.create_group(section)
            for name in names:
                values = enumerate(tree.get(name, ()))
                write_arrays(top.require_group(name), ((i, np.asarray(v)) for i, v in values if v is not None))


def _is_path(name: str) -> bool:
    """Return whether a name leads to a group of its own."""
    return "\0" not in name and not {"", "."} & set(name.split("/"))
