"""The HDF5Output layer: keeps what passes through a net."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..atomic import replacing_path
from ..errors import DataError, Problem, require
from ..layers.context import Context, Shape, Site
from ..layers.registry import register
from ..layers.types import Facts, Gradient, LayerType, OnHost, PerLayer, Signature
from .shapes import dims

_NAMES = ("data", "label")


def make_hdf5_output(ctx: Context, site: Site) -> LayerType:
    """Write its bottoms to the data sets `data` and `label` of an HDF5 file.

    The first forward pass of a net replaces the file; every further one adds its rows at the end, where Caffe
    stops with an error. After every pass the file is complete and closed. Two nets cannot write to one file: where
    both phases have the layer, `include` must keep it to one.
    """
    require(ctx.param.file_name, "hdf5_output_param has no file_name; name the file to write")
    return replace(ctx.type, runs=OnHost(_OutputFile(ctx.param.file_name).write_rows, hdf5_output_top_shapes))


def hdf5_output_top_shapes(ctx: Context, data: Any, label: Any) -> list[Shape]:
    require(
        data.shape and data.shape[:1] == label.shape[:1],
        f"its bottoms must have as many rows: {dims(data.shape) or 'a number'} and {dims(label.shape) or 'a number'}",
    )
    return []


def hdf5_output_backward(ctx: Context, data: np.ndarray, label: np.ndarray, *, y: Any, dy: Any) -> tuple[None, None]:
    return None, None


register(
    LayerType(
        Signature("HDF5Output", bottoms=2, tops=0, param="hdf5_output_param"),
        PerLayer(make_hdf5_output, on_host=True),
        Gradient(hdf5_output_backward),
        Facts(integers=True),
    )
)


class _OutputFile:
    """The file that one layer writes, and how many rows it has written there."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._written: tuple[Path, int] | None = None

    def write_rows(self, ctx: Context, data: np.ndarray, label: np.ndarray) -> tuple[()]:
        rows = {name: np.asarray(array, np.float32) for name, array in zip(_NAMES, (data, label), strict=True)}
        path, before = self._written or (Path(self._name).expanduser().absolute(), 0)
        try:
            if self._written:
                _append(path, rows, before)
            else:
                _create(path, rows)
        except (OSError, KeyError) as error:
            raise DataError(Problem(f"cannot be written: {error}", str(path))) from error
        self._written = path, before + len(data)
        return ()


def _create(path: Path, rows: dict[str, np.ndarray]) -> None:
    with replacing_path(path, DataError) as partial, h5py.File(partial, "w") as file:
        for name, array in rows.items():
            file.create_dataset(name, data=array, maxshape=(None, *array.shape[1:]), chunks=True)


def _append(path: Path, rows: dict[str, np.ndarray], before: int) -> None:
    with h5py.File(path, "r+") as file:
        sets = {name: file[name] for name in rows}
        if any(len(stored) != before for stored in sets.values()):
            message = (
                "has been written by another; if two nets have the layer, keep it to one with include { phase: ... }"
            )
            raise DataError(Problem(message, str(path)))
        for name, array in rows.items():
            if sets[name].shape[1:] != array.shape[1:]:
                message = f"a row of '{name}' is {dims(array.shape[1:])}, in the file {dims(sets[name].shape[1:])}"
                raise DataError(Problem(message, str(path)))
        for name, array in rows.items():
            sets[name].resize(before + len(array), axis=0)
            sets[name][before:] = array
