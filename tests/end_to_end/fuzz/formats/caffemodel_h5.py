"""Weights in .caffemodel.h5 files."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from caffejax import read_caffemodel
from caffejax.core.checkpoints.caffe_hdf5 import write_caffemodel_h5

from ..harness import Files, Harness, mutate_one_file, read_files
from ..mutators.hdf5 import change_hdf5
from ._weights import BLOBS, load_blobs


@functools.cache
def _make_intact_sets() -> list[Files]:
    with tempfile.TemporaryDirectory() as folder:
        write_caffemodel_h5(Path(folder) / "weights.caffemodel.h5", {**BLOBS, "data": []}, layers=["data", *BLOBS])
        return [read_files(Path(folder))]


def _read(folder: Path) -> Any:
    path = folder / "weights.caffemodel.h5"
    result = read_caffemodel(path)
    load_blobs(path)
    return result


HARNESS = Harness(_make_intact_sets, mutate_one_file(change_hdf5), _read)
