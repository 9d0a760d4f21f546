"""The files that training reads and writes, looked for before anything is built of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import WeightsError, check_all, located
from ..paths import check_there, find
from ..schema.caffe_pb2 import SolverParameter
from . import settings
from .snapshots import check_folder, check_snapshot, prefix_of


def weights_files(
    param: SolverParameter, file: Path | None, given: Sequence[str | os.PathLike[str]]
) -> list[str | os.PathLike[str]]:
    """Return the files of weights to start from: those that the settings name, then those given."""
    folder = file.parent if file else None
    return [*(find(name, folder) for entry in param.weights for name in entry.split(",")), *given]


def check_files(
    param: SolverParameter,
    file: Path | None,
    weights: Sequence[str | os.PathLike[str]],
    snapshot: str | os.PathLike[str] | None = None,
    *,
    writes: bool,
) -> None:
    """Look for nets, weights, the snapshot to go on from, and, if training `writes` some, the folder for snapshots.

    Args:
        param: the settings.
        file: where they came from, if from a file.
        weights: what is given beside those that the settings name.
        snapshot: what is to be restored.
        writes: whether there will be snapshots.

    Raises:
        SchemaError, WeightsError, SolverError: naming all that is not there or cannot be written.
    """

    def nets() -> None:
        with located(file=os.fspath(file) if file else None):
            settings.check_net_files(param, file.parent if file else None)

    checks: list[Callable[[], object]] = [nets, partial(check_there, weights_files(param, file, weights), WeightsError)]
    if snapshot is not None:
        checks.append(partial(check_snapshot, snapshot))
    if writes:
        checks.append(partial(check_folder, prefix_of(param, file)))
    check_all(*checks)
