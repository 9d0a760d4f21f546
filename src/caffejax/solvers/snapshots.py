"""Snapshots: `<prefix>_iter_<n>.caffemodel` and `.solverstate` for Caffe, `<prefix>.orbax/<n>` to go on from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..checkpoints.background import Background
from ..checkpoints.loading import save_weights
from ..checkpoints.lock import locked
from ..checkpoints.orbax import CheckpointFolder, Keep
from ..errors import Problem, SolverError, WeightsError
from ..graph import Graph
from ..net import Params, Variables
from ..parallel import is_first, whole_on_host
from ..schema import format_text
from ..schema.caffe_pb2 import SolverParameter
from .caffe_states import is_caffe_state, load_state, save_state
from .native_states import from_arrays, to_arrays, to_host
from .record import checked
from .report import log
from .state import TrainState

FORMAT = 1  # of the checkpoint's record and names


class Snapshots:
    """Where a solver's snapshots go.

    Args:
        param: the solver's settings: snapshot, snapshot_prefix.
        file: the solver's prototxt, which gives the prefix where there is none.
        keep: which checkpoints stay.

    Raises:
        SolverError: if snapshots are due and their folder cannot be made or written.
    """

    def __init__(self, param: SolverParameter, file: Path | None, keep: Keep | None = None) -> None:
        self._param = param
        self.prefix = _prefix(param.snapshot_prefix, file)
        self._folder = CheckpointFolder(f"{self.prefix}.orbax", keep)
        self._background = Background()
        if param.snapshot:
            self.prepare()

    def save(
        self,
        state: TrainState,
        graph: Graph,
        iteration: int,
        record: Mapping[str, Any],
        last_update: Params | None = None,
        each: Params | None = None,
    ) -> None:
        """Start writing a snapshot: Caffe's two files and the checkpoint. Training may go on; see `wait`.

        With `snapshot_diff`, Caffe's diffs are what the last update subtracted: `last_update`, zeros if None. `each` is
        the running statistics of each of several devices. Of several processes the first writes.

        Raises:
            WeightsError: if this snapshot cannot be started, or the one before could not be written.
        """
        last_update = whole_on_host(last_update)
        if not is_first():
            return
        self.prepare()
        state, last_update, each = to_host(state), jax.tree.map(np.array, last_update), jax.tree.map(np.array, each)
        hdf5 = self._param.snapshot_format == SolverParameter.HDF5
        stem, end, kind = f"{self.prefix}_iter_{iteration}", ".h5" if hdf5 else "", "HDF5" if hdf5 else "binary proto"
        weights, solverstate = f"{stem}.caffemodel{end}", f"{stem}.solverstate{end}"
        diffs = (last_update or jax.tree.map(np.zeros_like, state.params)) if self._param.snapshot_diff else None

        own = {"format": FORMAT, "solver": format_text(self._param)}

        def write() -> None:
            save_weights(weights, graph, Variables(state.params, state.state), diffs)
            save_state(solverstate, state, graph, self._param, weights, record)
            self._folder.save(iteration, to_arrays(state, each), {**record, **own}, record.get("scores"))
            self._folder.wait()

        log.info("Snapshotting to %s file %s", kind, weights)
        log.info("Snapshotting solver state to %s file %s", kind, solverstate)
        log.info("Snapshotting solver state to checkpoint %s%s%d", self._folder.path, os.sep, iteration)
        self._background.submit(write)

    def restore(
        self, path: str | os.PathLike[str], like: TrainState, graph: Graph
    ) -> tuple[TrainState, dict[str, Any], Params | None]:
        """Read the state in a snapshot, its record, and the running statistics of each device if it has them.

        Args:
            path: a checkpoint folder, for its newest step; one step of it (`<prefix>.orbax/<n>`); or a
                .solverstate[.h5], which has no record if Caffe wrote it.
            like: a state of this solver.
            graph: the train net.

        Raises:
            WeightsError: if there is none, or it is of another net or solver type.
        """
        if is_caffe_state(Path(path)):
            return *load_state(Path(path), like, graph, self._param.type), None
        folder, step = _locate(Path(path))
        checkpoints = CheckpointFolder(folder)
        try:
            arrays, record = checkpoints.restore(step)
        finally:
            checkpoints.close()
        if record.get("weights"):
            raise WeightsError(Problem("holds weights only; convert it and give it as --weights", file=str(path)))
        if record.get("format") != FORMAT:
            raise WeightsError(
                Problem(f"is of format {record.get('format')}; this version reads {FORMAT}", file=str(path))
            )
        checked(record, str(path))
        carried = [f"{layer.key}/{len(layer.params) + i}" for layer in graph.layers for i in range(len(layer.carried))]
        state, each = from_arrays(arrays, like, str(path), carried)
        return state, record, each

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs from this prefix, if this one writes there; of several processes the first does.

        Raises:
            SolverError: if another run has it.
        """
        writes = self._param.snapshot or self._param.snapshot_after_train
        if writes and is_first():
            self.prepare()
            with locked(self.prefix):
                yield
        else:
            yield

    def check(self) -> None:
        """Raise `WeightsError` if a snapshot could not be written; never wait."""
        self._background.check()

    def wait(self) -> None:
        """Wait until the last snapshot is complete; raise `WeightsError` if it could not be written."""
        self._background.wait()

    def close(self) -> None:
        """Wait until the last snapshot is complete, and end background work."""
        try:
            self._background.close()
        finally:
            self._folder.close()

    def prepare(self) -> None:
        """Make the folder; raise `SolverError` if snapshots cannot be written to it."""
        if not is_first():
            return
        parent = Path(self.prefix).parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': {error}") from error
        if not os.access(parent, os.W_OK):
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': folder '{parent}' is not writable")


def _prefix(given: str, file: Path | None) -> str:
    """Return the prefix by Caffe's rule: in a folder, the solver file's stem; if empty, the solver file's path."""
    if not given:
        return str(file.with_suffix("")) if file else "solver"
    return str(Path(given) / (file.stem if file else "solver")) if Path(given).is_dir() else given


def _locate(path: Path) -> tuple[Path, int | None]:
    """Return the checkpoint folder and, if the path names one, the step."""
    if not path.exists():
        raise WeightsError(
            Problem("no such snapshot; give a <prefix>.orbax folder or one of its steps", file=str(path))
        )
    if path.is_file():
        raise WeightsError(
            Problem(
                "is a file; training resumes from a .solverstate[.h5], a <prefix>.orbax folder or a step in it",
                file=str(path),
            )
        )
    return (path.parent, int(path.name)) if path.name.isdigit() else (path, None)
