"""MatWrite, which writes blobs to MATLAB files."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_write import replace_path
from ...base.errors import DataError, Problem, require
from ...core.layers.context import Context, LayerDefinition, Shape
from ...core.layers.declaration import register
from ...core.layers.helpers import as_nchw, no_gradient
from ...core.layers.position_values import decode_count
from ...core.layers.types import (
    HostFunction,
    LayerType,
    OutputFiles,
)
from ...core.schema.caffe_pb2 import MatWriteParameter


@register(
    "MatWrite",
    bottoms=(1, None),
    tops=0,
    param="mat_write_param",
    per_layer=True,
    on_host=True,
    backward=no_gradient,
    accepts_integers=True,
    origin="DeepLab",
)
def make_mat_write(p: MatWriteParameter, definition: LayerDefinition, *, ctx: Context) -> LayerType:
    """Write each bottom to a MATLAB file, as the variable `data` with shape (width, height, channels, num).

    The file is `<prefix><name>_blob_<index>.mat`, where the index of the first bottom is 0. Each line of the file
    `source` begins with the name for one pass; the last `strip` characters of the name are removed. If `source` is not
    set, the name is `iter_<pass>`. Only the first of every `period` passes is written.
    """
    require(p.period >= 1, f"period must be at least 1, not {p.period}")
    require(p.strip >= 0, f"strip must not be negative: {p.strip}")
    writer, names = _MatWriter(p, definition), f"<a name in {p.source}>" if p.HasField("source") else "iter_*"
    folder = Path(f"{p.prefix}iter").expanduser().absolute().parent
    output = OutputFiles(f"{p.prefix}{names}_blob_*.mat", folder)
    implementation = HostFunction(writer.write, mat_write_top_shapes, position=writer, output=output)
    return replace(ctx.type, implementation=implementation)


def mat_write_top_shapes(*bottoms: Any) -> list[Shape]:
    for i, bottom in enumerate(bottoms):
        as_nchw(bottom.shape, f"bottom {i}")
    return []


class _MatWriter:
    """The writer of one layer's files. It counts the passes."""

    def __init__(self, p: Any, definition: LayerDefinition) -> None:
        self._p, self._definition = p, definition
        self._num_passes = 0

    def get_state(self) -> dict[str, int]:
        """Return the number of passes."""
        return {"passes": self._num_passes}

    def set_state(self, state: Any) -> None:
        """Continue after a number of passes that `get_state` returned."""
        self._num_passes = decode_count(state, "passes")

    @cached_property
    def _names(self) -> list[str]:
        path = self._definition.path(self._p.source)
        try:
            words_by_line = [line.split() for line in path.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(Problem(f"cannot be read: {error}", str(path))) from error
        names = [w[0] for w in words_by_line if w]
        require(all(len(n) > self._p.strip for n in names), f"strip: {self._p.strip} removes all characters of a name")
        return [n[: len(n) - self._p.strip] for n in names]

    def write(self, *bottoms: np.ndarray) -> tuple[()]:
        pass_index = self._num_passes
        self._num_passes += 1
        if pass_index % self._p.period == 0:
            stem = self._p.prefix + self._name(pass_index)
            for i, bottom in enumerate(bottoms):
                _write(Path(f"{stem}_blob_{i}.mat").expanduser().absolute(), bottom)
        return ()

    def _name(self, pass_index: int) -> str:
        if not self._p.HasField("source"):
            return f"iter_{pass_index}"
        require(
            pass_index < len(self._names),
            f"'{self._p.source}' has {len(self._names)} names, but this is pass {pass_index + 1}",
        )
        return self._names[pass_index]


def _write(path: Path, array: np.ndarray) -> None:
    from scipy.io import savemat  # JAX depends on scipy, but importing this module is slow

    data = np.asarray(array, np.float32 if array.dtype != np.float64 else None).reshape(as_nchw(array.shape))
    try:
        with replace_path(path, DataError) as partial_path, open(partial_path, "wb") as file:
            savemat(file, {"data": data.T})
    except OSError as error:
        raise DataError(Problem(f"cannot be written: {error}", str(path))) from error
