"""The HDF5Data and HDF5Output layers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...base import paths
from ...base.atomic_write import replace_path
from ...base.errors import DataError, Problem, did_you_mean, locate_errors, raise_if_any, require
from ...base.human_readable import format_shape
from ...base.untrusted_hdf5 import HDF5_ERRORS, RefusedError, SizeLimit, find_item, open_hdf5_file
from ..layers.context import Context, LayerDefinition, Shape
from ..layers.data_source import SourceSpec, TopSpecs
from ..layers.declaration import register
from ..layers.helpers import no_gradient
from ..layers.position_values import decode_count
from ..layers.types import HostFunction, LayerType, OutputFiles
from ..schema.caffe_pb2 import HDF5OutputParameter
from .data_identity import checksum_arrays
from .data_layer import DataLayer, float32_top, list_source_problems
from .image_list import truncate_problems
from .prefetch import Batch, Batches
from .sampling import CounterRng

Rows = tuple[np.ndarray, ...]  # one array for each data set

_MAX_COPIED_NUMBERS = 2**14  # numbers; copying them takes less time than passing them between threads
_OUTPUT_NAMES = ("data", "label")


class _Hdf5Batches:
    """Batches of rows from HDF5 files, in order. The first file follows the last.

    Each top is float32 (N, ...), with rows of the data set that has the top's name. With `shuffle`, each epoch has a
    different order of the files and of the rows in each file. Only one file at a time is in memory.
    """

    def __init__(self, definition: LayerDefinition, files: list[Path], tops: TopSpecs) -> None:
        param = definition.layer.hdf5_data_param
        self.tops = tops
        self._definition = definition
        self._files = files
        self._names = list(definition.layer.top)
        self.batch_size: int = param.batch_size
        numbers_per_batch = sum(math.prod(top.shape) for top in tops)
        self.num_threads = 1 if len(files) > 1 or numbers_per_batch > _MAX_COPIED_NUMBERS else 0
        self._rng = CounterRng(definition.config.seed, definition.layer.name) if param.shuffle else None
        self._loaded_file: tuple[int, Rows] | None = None  # the last file read
        self._cached_order: tuple[tuple[int, int], np.ndarray] | None = None  # the last order and its epoch and file
        counts_by_path: dict[Path, int] = {}
        for path in dict.fromkeys(files):  # a list may repeat files
            with _open_file(path) as content:
                counts_by_path[path] = len(_get_data_set(content, self._names[0]))
        self._row_counts = [counts_by_path[path] for path in files]
        self.num_examples = sum(self._row_counts)

    def read(self, start: int) -> Batch:
        parts: list[Rows] = []
        position, end = start, start + self.batch_size
        while position < end:
            epoch, row = divmod(position, self.num_examples)
            file_index, first_row = self._locate(epoch, row)
            end_row = min(self._row_counts[file_index], first_row + end - position)
            rows_of_file = slice(first_row, end_row)
            selection = self._row_order(epoch, file_index)[rows_of_file] if self._rng else rows_of_file
            parts.append(tuple(rows[selection] for rows in self._load(file_index)))
            position += end_row - first_row
        return Batch(tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))

    def checksum(self) -> int:
        parts = [np.array(self._row_counts)]
        for path in dict.fromkeys((self._files[0], self._files[-1])):
            with _open_file(path) as content:
                parts += [_get_data_set(content, name)[row] for name in self._names for row in (0, -1)]
        return checksum_arrays(parts)

    def close(self) -> None:
        self._loaded_file = None

    def _locate(self, epoch: int, row: int) -> tuple[int, int]:
        n = len(self._files)
        for file_index in self._rng.permutation(n, epoch).tolist() if self._rng else range(n):
            if row < self._row_counts[file_index]:
                return file_index, row
            row -= self._row_counts[file_index]
        raise AssertionError("an epoch has no such row")

    def _row_order(self, epoch: int, file_index: int) -> np.ndarray:
        assert self._rng is not None
        if self._cached_order is None or self._cached_order[0] != (epoch, file_index):
            order = self._rng.permutation(self._row_counts[file_index], epoch, file_index)
            self._cached_order = (epoch, file_index), order
        return self._cached_order[1]

    def _load(self, file_index: int) -> Rows:
        if self._loaded_file is None or self._loaded_file[0] != file_index:
            layer = self._definition.layer
            with locate_errors(layer=layer.name, layer_type=layer.type), _open_file(self._files[file_index]) as content:
                allowance = SizeLimit(content, self._definition.config.max_hdf5_bytes, "max_hdf5_bytes")
                data_sets = [_get_data_set(content, name) for name in self._names]
                for data_set in data_sets:
                    allowance.check(data_set)
                with np.errstate(over="ignore", invalid="ignore"):  # larger numbers become infinity, as in Caffe
                    rows = tuple(np.asarray(data_set[...], np.float32) for data_set in data_sets)
            self._loaded_file = file_index, rows
        return self._loaded_file[1]


@contextmanager
def _open_file(path: Path) -> Iterator[h5py.File]:
    """Open a file whose metadata `probe` has already checked. Errors name the file."""
    try:
        with open_hdf5_file(path) as content:
            yield content
    except (*HDF5_ERRORS, MemoryError) as error:
        raise DataError(Problem(f"cannot be read: {error}", file=str(path))) from error


def _get_data_set(content: h5py.File, name: str) -> h5py.Dataset:
    data_set = find_item(content, name)
    if not isinstance(data_set, h5py.Dataset):
        raise RefusedError(f"no longer has a data set '{name}'")
    return data_set


def _row_shapes(files: list[Path], names: list[str], max_bytes: int) -> list[tuple[int, ...]]:
    """Return the shape of one row of each data set in `names`. Only metadata is read, of all files."""
    problems: list[Problem] = []
    has_rows = False
    row_shapes: dict[str, tuple[int, ...]] = {}
    for path in dict.fromkeys(files):
        try:
            with open_hdf5_file(path) as content:
                shapes, messages = _read_shapes(content, names, max_bytes)
        except HDF5_ERRORS as error:
            message = "no such file" if not os.path.exists(path) else f"is not an HDF5 file, or is damaged ({error})"
            shapes, messages = {}, [message]
        row_counts = {name: shape[0] for name, shape in shapes.items()}
        if len(set(row_counts.values())) > 1:
            listed_counts = ", ".join(f"'{name}' {n}" for name, n in row_counts.items())
            messages.append(f"the data sets have different numbers of rows: {listed_counts}")
        for name, shape in shapes.items():
            if shape[1:] != row_shapes.setdefault(name, shape[1:]):
                row, first_row = (format_shape(s) or "a number" for s in (shape[1:], row_shapes[name]))
                messages.append(f"a row of '{name}' is {row}, but {first_row} in the first file")
        problems += [Problem(message, file=str(path)) for message in messages]
        has_rows |= any(row_counts.values())
    if not problems and not has_rows:
        problems.append(Problem("the files have no rows"))
    raise_if_any(DataError, truncate_problems(problems))
    return [row_shapes[name] for name in names]


def _read_shapes(content: h5py.File, names: list[str], max_bytes: int) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    shapes: dict[str, tuple[int, ...]] = {}
    messages: list[str] = []
    allowance = SizeLimit(content, max_bytes, "max_hdf5_bytes")
    for name in names:
        try:
            data_set = find_item(content, name)
            if isinstance(data_set, h5py.Dataset):
                allowance.check(data_set)
        except RefusedError as error:
            messages.append(str(error))
            continue
        if isinstance(data_set, h5py.Group):
            messages.append(f"'{name}' is a group, not a data set; it holds {', '.join(sorted(data_set)) or 'nothing'}")
        elif not isinstance(data_set, h5py.Dataset):
            available = ", ".join(sorted(content)) or "nothing"
            messages.append(f"has no data set '{name}', only {available}{did_you_mean(name, content)}")
        elif not data_set.shape:
            messages.append(f"data set '{name}' is a single value; its first axis must be the rows")
        elif data_set.dtype.kind not in "fiu":
            messages.append(f"data set '{name}' has type {data_set.dtype}; integers or floats are needed")
        else:
            shapes[name] = data_set.shape
    return shapes, messages


def _read_file_list(path: Path) -> list[Path]:
    # paths are relative to the working directory, as in Caffe, or to the list's folder if no such file exists
    content = paths.read_bytes(path, DataError, "the list of files")
    if content.startswith(b"\x89HDF"):
        message = "is an HDF5 file; source must be a text file that lists HDF5 files, one per line"
        raise DataError(Problem(message, str(path)))
    names = content.decode("utf-8", "surrogateescape").split()
    if not names:
        raise DataError(Problem("the list names no files", str(path)))
    files = {name: paths.find_file(name, path.parent) for name in dict.fromkeys(names)}  # a list may repeat files
    return [files[name] for name in names]


class Hdf5DataLayer(DataLayer):
    """Batches of rows from the HDF5 files that a list names. Each top is the data set with the top's name."""

    prefetch = 4

    def check_settings(self) -> None:
        """Check hdf5_data_param, and refuse a transform_param."""
        param, problems = self.layer_param.hdf5_data_param, []
        if self.layer_param.HasField("transform_param"):
            problems.append("HDF5Data does not transform its data; remove transform_param")
        problems += list_source_problems(param, "hdf5_data_param", "a text file that lists HDF5 files")
        raise_if_any(DataError, problems)

    def probe(self) -> SourceSpec:
        """Check the metadata of all files. All problems are reported at once."""
        param = self.layer_param.hdf5_data_param
        files = _read_file_list(self.definition.path(param.source))
        shapes = _row_shapes(files, list(self.layer_param.top), self.definition.config.max_hdf5_bytes)
        return SourceSpec(tuple(float32_top(param.batch_size, *shape) for shape in shapes))

    def open(self, tops: TopSpecs) -> Batches:
        """Open the files."""
        files = _read_file_list(self.definition.path(self.layer_param.hdf5_data_param.source))
        return _Hdf5Batches(self.definition, files, tops)


register("HDF5Data", Hdf5DataLayer.implementation(), bottoms=0, tops=(1, None), param="hdf5_data_param")


@register(
    "HDF5Output",
    bottoms=2,
    tops=0,
    param="hdf5_output_param",
    per_layer=True,
    on_host=True,
    backward=no_gradient,
    accepts_integers=True,
)
def make_hdf5_output(p: HDF5OutputParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Write the layer's two bottoms to the data sets `data` and `label` of an HDF5 file.

    The first forward pass of a net replaces the file. Each further pass appends its rows; Caffe would stop with an
    error. After each pass the file is complete and closed. A training that resumes from a snapshot continues the file
    after the rows that it had at the snapshot. Two nets cannot write to one file: if both phases have the
    layer, `include` must restrict it to one phase.
    """
    require(p.file_name, "hdf5_output_param has no file_name; name the file to write")
    file, path = _OutputFile(p.file_name), Path(p.file_name).expanduser().absolute()
    output = OutputFiles(str(path), path.parent)
    implementation = HostFunction(file.write_rows, _output_top_shapes, position=file, output=output)
    return replace(ctx.type, implementation=implementation)


def _output_top_shapes(data: Any, label: Any) -> list[Shape]:
    shapes = " and ".join(format_shape(bottom.shape) or "a number" for bottom in (data, label))
    is_equal = data.shape and data.shape[:1] == label.shape[:1]
    require(is_equal, f"its bottoms must have equal numbers of rows, not {shapes}")
    return []


class _OutputFile:
    def __init__(self, name: str) -> None:
        self._path_text = name
        self._path: Path | None = None  # absolute, from the first pass on
        self._num_rows = 0
        self._is_restored = False  # whether rows after `_num_rows` were written after the snapshot

    def get_state(self) -> dict[str, int]:
        return {"rows": self._num_rows}

    def set_state(self, state: Any) -> None:
        """Continue after a number of rows that `get_state` returned. Rows behind them are removed by the next pass."""
        self._num_rows, self._is_restored = decode_count(state, "rows"), True

    def write_rows(self, data: np.ndarray, label: np.ndarray) -> tuple[()]:
        rows = {name: np.asarray(array, np.float32) for name, array in zip(_OUTPUT_NAMES, (data, label), strict=True)}
        self._path = self._path or Path(self._path_text).expanduser().absolute()
        try:
            if not self._num_rows:
                with replace_path(self._path, DataError) as partial_path, h5py.File(partial_path, "w") as file:
                    for name, array in rows.items():
                        file.create_dataset(name, data=array, maxshape=(None, *array.shape[1:]), chunks=True)
            elif self._is_restored and not self._path.exists():
                message = f"is absent, but had {self._num_rows} rows at the snapshot; put it back, or remove the layer"
                raise DataError(Problem(message, str(self._path)))
            else:
                with locate_errors(file=str(self._path)):
                    _append(self._path, rows, self._num_rows, is_restored=self._is_restored)
        except (OSError, KeyError) as error:
            raise DataError(Problem(f"cannot be written: {error}", str(self._path))) from error
        self._num_rows, self._is_restored = self._num_rows + len(data), False
        return ()


def _append(path: Path, rows: dict[str, np.ndarray], num_written: int, *, is_restored: bool) -> None:
    with h5py.File(path, "r+") as file:
        data_sets = {name: file[name] for name in rows}
        lengths = [len(data_set) for data_set in data_sets.values()]
        if is_restored and min(lengths) < num_written:
            message = f"has {min(lengths)} rows, but had {num_written} at the snapshot; put back the file of that time"
            raise DataError(message)
        if not is_restored and any(length != num_written for length in lengths):
            raise DataError(
                "is also written by another process or net; if two nets have the layer, restrict it to one with "
                "include { phase: ... }"
            )
        for name, array in rows.items():
            if data_sets[name].shape[1:] != array.shape[1:]:
                shapes = format_shape(array.shape[1:]), format_shape(data_sets[name].shape[1:])
                raise DataError(f"a row of '{name}' is {shapes[0]}, but {shapes[1]} in the file")
        for name, array in rows.items():
            data_sets[name].resize(num_written + len(array), axis=0)
            data_sets[name][num_written:] = array
