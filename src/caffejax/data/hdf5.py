"""The HDF5Data layer: batches of rows of the data sets named like its tops."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from ..errors import DataError, Problem, did_you_mean, located
from ..layers.context import Context, Source
from ..layers.registry import register_source
from .draws import Draws
from .position import examples_at, position
from .shapes import by, top

Rows = tuple[np.ndarray, ...]


class Hdf5Source:
    """Batches of rows from files, one file after the other, round and round.

    Each top is float32 (N, ...): the rows of the data set of its name. With `shuffle`, every round has its
    own order of files, and of rows within each. One file at a time is held in memory.

    Raises:
        DataError: with all that is wrong with the files.
    """

    def __init__(self, ctx: Context, files: list[Path]) -> None:
        param = ctx.layer.hdf5_data_param
        self._ctx = ctx
        self._files = files
        self._names = list(ctx.layer.top)
        self._batch_size: int = param.batch_size
        self._draws = Draws(ctx.seed, ctx.layer.name) if param.shuffle else None
        self._position = 0
        self._load = functools.lru_cache(maxsize=1)(self._read_file)
        self._row_order = functools.lru_cache(maxsize=1)(self._draw_rows)
        self._sizes, shapes = _survey(files, self._names)
        self.tops = tuple(top(self._batch_size, *shape) for shape in shapes)

    def __iter__(self) -> Hdf5Source:
        return self

    def __next__(self) -> Rows:
        """The next batch; it may span files and rounds."""
        parts: list[Rows] = []
        at, end = self._position, self._position + self._batch_size
        while at < end:
            epoch, row = divmod(at, sum(self._sizes))
            file, first = self._locate(epoch, row)
            last = min(self._sizes[file], first + end - at)
            order = self._row_order(epoch, file)[first:last] if self._draws else slice(first, last)
            parts.append(tuple(rows[order] for rows in self._load(file)))
            at += last - first
        self._position = end
        return tuple(np.concatenate(pieces) for pieces in zip(*parts, strict=True))

    def get_state(self) -> Mapping[str, int]:
        """The position of the next batch."""
        return position(self._position)

    def set_state(self, state: Mapping[str, int]) -> None:
        """Goes to a position that `get_state` gave."""
        self._position = examples_at(state)

    def close(self) -> None:
        """Lets go of the file in memory; reading on loads it again."""
        self._load.cache_clear()

    def _locate(self, epoch: int, row: int) -> tuple[int, int]:
        """Which file a row of a round lies in, and where."""
        n = len(self._files)
        for file in self._draws.permutation(n, epoch).tolist() if self._draws else range(n):
            if row < self._sizes[file]:
                return file, row
            row -= self._sizes[file]
        raise AssertionError("a round has no such row")

    def _draw_rows(self, epoch: int, file: int) -> np.ndarray:
        assert self._draws is not None
        return self._draws.permutation(self._sizes[file], epoch, file)

    def _read_file(self, file: int) -> Rows:
        path = self._files[file]
        try:
            with h5py.File(path, "r") as content:
                return tuple(np.asarray(content[name][...], np.float32) for name in self._names)
        except (OSError, KeyError) as error:
            with located(layer=self._ctx.layer.name, layer_type=self._ctx.type.name):
                raise DataError(Problem(f"cannot be read: {error}", file=str(path))) from error


def _survey(files: list[Path], names: list[str]) -> tuple[list[int], list[tuple[int, ...]]]:
    """The number of rows of each file, and the shape of a row of each data set, which all files share."""
    problems: list[Problem] = []
    sizes: list[int] = []
    wanted: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with h5py.File(path, "r") as content:
                found, wrong = _shapes(content, names)
        except OSError as error:
            missing = "no such file" if not path.exists() else f"is not an HDF5 file, or is damaged ({error})"
            found, wrong = {}, [missing]
        rows = {name: shape[0] for name, shape in found.items()}
        if len(set(rows.values())) > 1:
            wrong.append("the data sets have different numbers of rows: " + _pairs(rows))
        for name, shape in found.items():
            if shape[1:] != wanted.setdefault(name, shape[1:]):
                before = by(wanted[name]) or "a number"
                wrong.append(f"a row of '{name}' is {by(shape[1:]) or 'a number'}, in the first file {before}")
        problems += [Problem(message, file=str(path)) for message in wrong]
        sizes.append(next(iter(rows.values()), 0))
    if not problems and not sum(sizes):
        problems.append(Problem("the files have no rows"))
    if problems:
        raise DataError(problems)
    return sizes, [wanted[name] for name in names]


def _shapes(content: h5py.File, names: list[str]) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The shapes of the data sets, and what is wrong with them."""
    shapes: dict[str, tuple[int, ...]] = {}
    wrong: list[str] = []
    for name in names:
        data_set = content.get(name)
        if not isinstance(data_set, h5py.Dataset):
            has = ", ".join(sorted(content)) or "nothing"
            wrong.append(f"has no data set '{name}', only {has}{did_you_mean(name, content)}")
        elif not data_set.shape:
            wrong.append(f"data set '{name}' is a single value; its first axis must be the rows")
        elif data_set.dtype.kind not in "fiu":
            wrong.append(f"data set '{name}' has type {data_set.dtype}; integers or floats are needed")
        else:
            shapes[name] = data_set.shape
    return shapes, wrong


def _pairs(rows: Mapping[str, int]) -> str:
    return ", ".join(f"'{name}' {n}" for name, n in rows.items())


def _listed(path: Path) -> list[Path]:
    """The files that a list names: as in Caffe from the working directory, else from the list's folder."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(Problem(f"the list of files cannot be read: {error.strerror}", str(path))) from error
    if content.startswith(b"\x89HDF"):
        message = "is an HDF5 file; source must be a text file that lists such files, one a line"
        raise DataError(Problem(message, str(path)))
    names = content.decode("utf-8", "surrogateescape").split()
    if not names:
        raise DataError(Problem("the list names no files", str(path)))
    beside = [path.parent / name for name in names]
    return [b if b.exists() and not Path(n).exists() else Path(n) for n, b in zip(names, beside, strict=True)]


@register_source("HDF5Data", tops=(1, None), param="hdf5_data_param")
def open_hdf5_data(ctx: Context) -> Source:
    """Opens the files that an HDF5Data layer's list names."""
    param = ctx.layer.hdf5_data_param
    with located(layer=ctx.layer.name, layer_type=ctx.type.name):
        if ctx.layer.HasField("transform_param"):
            raise DataError("HDF5Data does not transform its data; remove transform_param")
        if not param.source:
            raise DataError("hdf5_data_param has no source; name a text file that lists HDF5 files")
        if param.batch_size < 1:
            raise DataError("hdf5_data_param.batch_size must be 1 or more")
        return Hdf5Source(ctx, _listed(ctx.path(param.source)))
