"""Reading and writing of .caffemodel.h5 weights, and functions for all of Caffe's HDF5 files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from h5py import Group
from numpy.typing import ArrayLike

from ...base.atomic_write import replace_path
from ...base.errors import Problem, WeightsError, raise_if_any
from ...base.paths import make_missing_problem
from ...base.untrusted_hdf5 import HDF5_ERRORS, SizeLimit, find_item, is_link, open_hdf5_file
from ..schema.blob_proto import Array

_MAX_BLOBS = 1_000_000  # in a group; a larger number is a sign of damage

AnyPath = str | os.PathLike[str]
StoredBlobs = dict[str, tuple[Array | None, ...]]


@contextmanager
def open_hdf5(path: AnyPath, file_kind: str) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading.

    Args:
        path: the file.
        file_kind: the expected kind of file, for error messages, such as ".caffemodel.h5".

    Raises:
        WeightsError: if the file cannot be read, or HDF5 raises an error in the `with` block.
    """
    if not os.path.exists(Path(path)):
        raise WeightsError(make_missing_problem(path))
    try:
        with open_hdf5_file(path) as file:
            yield file
    except (*HDF5_ERRORS, MemoryError) as error:
        raise WeightsError(Problem(f"not a {file_kind}, or damaged or cut short: {error}", str(path))) from error


@contextmanager
def replace_hdf5(path: AnyPath) -> Iterator[h5py.File]:
    """Open a temporary HDF5 file for writing, which replaces the file `path` when the `with` block ends.

    Raises:
        WeightsError: if the file cannot be written. An existing file then stays unchanged.
    """
    with replace_path(path, WeightsError) as partial:
        try:
            with h5py.File(partial, "x") as file:
                yield file
        except (RuntimeError, ValueError, TypeError) as error:  # h5py raises them for a full disk and repeated names
            raise WeightsError(Problem(f"cannot be written: {error}", str(path))) from error


def read_arrays(group: h5py.Group, size_limit: SizeLimit) -> tuple[Array | None, ...]:
    """Read the data sets "0", "1", ... of a group as float32 arrays, with None for each missing number.

    Args:
        group: the group.
        size_limit: the limit on the number of bytes that are read from the file.

    Raises:
        ValueError: if `group` is not a group, the name of a data set is not a number, or a data set is not numeric or
            exceeds the size_limit.
    """
    _check_group(group)
    names = [name for name in group if _is_data_set(group, name)]
    arrays = {_parse_number(group, name): _read_array(group[name], size_limit) for name in names}
    return tuple(arrays.get(i) for i in range(1 + max(arrays, default=-1)))


def _iterate_layer_groups(group: h5py.Group) -> Iterator[tuple[str, h5py.Group]]:
    """Yield the name and group of each layer: a group that is empty or has data sets, with a slash inside another."""
    _check_group(group)
    visited = {group}  # a damaged or malicious file may contain a group in itself

    def walk(parent: h5py.Group, prefix: str) -> Iterator[tuple[str, h5py.Group]]:
        for name in parent:
            if is_link(parent, name) or not isinstance(child := parent[name], h5py.Group) or child in visited:
                continue
            visited.add(child)
            if not len(child) or any(_is_data_set(child, key) for key in child):
                yield f"{prefix}{name}", child
            yield from walk(child, f"{prefix}{name}/")

    return walk(group, "")


def write_arrays(group: h5py.Group, numbered_arrays: Iterable[tuple[int, ArrayLike]]) -> None:
    """Write `(number, array)` pairs to a group. Each array becomes a float32 data set whose name is the number."""
    for i, array in numbered_arrays:
        group.create_dataset(str(i), data=np.asarray(array, "<f4"))


def write_string(group: h5py.Group, name: str, value: str) -> None:
    """Write a string data set in the form that Caffe reads: fixed length, with a terminating zero byte."""
    content = value.encode()
    string_type = h5py.h5t.C_S1.copy()
    string_type.set_size(len(content) + 1)
    string_type.set_strpad(h5py.h5t.STR_NULLTERM)
    data_set = h5py.h5d.create(group.id, name.encode(), string_type, h5py.h5s.create(h5py.h5s.SCALAR))
    data_set.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(content + b"\0", f"S{len(content) + 1}"), string_type)


def _check_group(group: object) -> None:
    if not isinstance(group, h5py.Group):
        raise ValueError(f"{getattr(group, 'name', group)} is a {type(group).__name__.lower()}, not a group")


def _parse_number(group: h5py.Group, name: str) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) > 9 or int(name) >= _MAX_BLOBS:
        raise ValueError(f"'{name}' in {group.name} is not the number of a blob")
    return int(name)


def _read_array(data_set: h5py.Dataset, size_limit: SizeLimit) -> Array:
    if data_set.dtype.kind not in "fiu" or data_set.shape is None:
        raise ValueError(f"{data_set.name} holds {data_set.dtype}, not numbers")
    if data_set.size and not data_set.id.get_storage_size():  # a shape without values may claim any amount of memory
        raise ValueError(f"{data_set.name} has a shape but no values")
    size_limit.check(data_set)
    with np.errstate(over="ignore", invalid="ignore"):  # larger doubles become infinity, as in Caffe
        array = np.asarray(data_set[()], np.float32)
    array.flags.writeable = False
    return array


def _is_data_set(group: h5py.Group, name: str) -> bool:
    return not is_link(group, name) and isinstance(group[name], h5py.Dataset)


def read_caffemodel_h5(path: str | os.PathLike[str], section: str = "data") -> StoredBlobs:
    """Read the weights or gradients in a .caffemodel.h5 file.

    Args:
        path: the file.
        section: "data" for the weights, or "diff" for the gradients, which not every file has.

    Returns:
        The blobs by layer name, in the file's order. A blob that the file omits is None if a later blob is stored.

    Raises:
        WeightsError: if the file cannot be read, is not a .caffemodel.h5, or is damaged.
    """
    with open_hdf5(path, ".caffemodel.h5") as file:
        layers = find_item(file, section)
        if not isinstance(layers, Group):
            hint = " (this is a solver state: name the weights instead)" if find_item(file, "history") else ""
            raise WeightsError(Problem(f"has no group '{section}'{hint}; is it a .caffemodel.h5?", str(path)))
        size_limit = SizeLimit(file)
        return {name: read_arrays(group, size_limit) for name, group in _iterate_layer_groups(layers)}


def write_caffemodel_h5(
    path: str | os.PathLike[str],
    blobs: Mapping[str, Sequence[ArrayLike | None]],
    diffs: Mapping[str, Sequence[ArrayLike]] | None = None,
    layers: Collection[str] = (),
) -> None:
    """Write a .caffemodel.h5 file as Caffe does. An existing file is replaced once the new file is complete.

    Args:
        path: the file.
        blobs: the blobs by layer name; None for a blob to omit.
        diffs: the gradients by layer name, or None. Gradients of omitted blobs are stored, too.
        layers: the names of all layers. Layers without blobs are stored as empty groups.

    Raises:
        WeightsError: if the file cannot be written, or HDF5 cannot store the name of a layer. The message names each
            such layer.
    """
    names = [*layers, *(name for name in {**blobs, **(diffs or {})} if name not in layers)]
    sections = {"data": blobs} if diffs is None else {"data": blobs, "diff": diffs}
    numbers = {
        name: {i for section in sections.values() for i, blob in enumerate(section.get(name, ())) if blob is not None}
        for name in names
    }
    raise_if_any(WeightsError, find_name_problems(names, numbers, str(path), "rename it, or write a .caffemodel"))
    with replace_hdf5(path) as file:
        for section, section_blobs in sections.items():
            section_group = file.create_group(section)
            for name in names:
                values = ((i, value) for i, value in enumerate(section_blobs.get(name, ())) if value is not None)
                write_arrays(section_group.require_group(name), values)


def find_name_problems(
    names: Sequence[str], blob_numbers: Mapping[str, Collection[int]], file: str | None, remedy: str
) -> Iterator[Problem]:
    """Yield a problem for each layer whose name HDF5 cannot store.

    A layer is a group, and a slash in its name a group inside another. So a layer 'fc/0' has the path of the blob 0 of
    the layer 'fc'.

    Args:
        names: the names of all layers.
        blob_numbers: the numbers of the blobs of each layer that are stored, by the layer's name.
        file: the file that the problems are about, or None.
        remedy: what the user can do.
    """
    blob_paths = {f"{name}/{i}": name for name, numbers in blob_numbers.items() for i in numbers}
    for name in dict.fromkeys(names):
        parts = name.split("/")
        ancestors = ("/".join(parts[:i]) for i in range(1, len(parts) + 1))
        if names.count(name) > 1 or "\0" in name or {"", "."} & set(parts):
            message = f"HDF5 cannot store a layer of this name, or several layers of one name; {remedy}"
            yield Problem(message, file, layer=name)
        elif blob_path := next((path for path in ancestors if path in blob_paths), None):
            message = (
                f"HDF5 cannot store a layer of this name beside the layer '{blob_paths[blob_path]}', whose blob "
                f"{blob_path.rpartition('/')[2]} has the path '{blob_path}'; {remedy}"
            )
            yield Problem(message, file, layer=name)
