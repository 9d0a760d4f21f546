"""Snapshots: `<prefix>_iter_<n>.caffemodel` and `.solverstate` for Caffe, `<prefix>.orbax/<n>` to go on from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..checkpoints.loading import save_weights
from ..checkpoints.lock import lock_prefix
from ..checkpoints.orbax import CheckpointFolder, Keep
from ..errors import CaffejaxError, Problem, SolverError, WeightsError
from ..graph import Graph
from ..net import Params, Variables
from ..options import OnSnapshotError
from ..parallel import all_processes, gather_to_first, is_first
from ..paths import check_there
from ..schema import format_text
from ..schema.caffe_pb2 import SolverParameter
from .caffe_states import is_caffe_state, load_state, save_state
from .native_states import StateReader, to_arrays, to_host
from .record import validate_record
from .reporting import log
from .train_step import TrainState, Updater

FORMAT = 1  # of the checkpoint's record and names


class Background:
    """A thread for one job at a time. What goes wrong in it is raised by the next call of any method."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[object] | None = None

    def submit(self, job: Callable[[], object]) -> None:
        """Start a job once the one before is done."""
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="caffejax-save")
        self._job = self._pool.submit(job)

    def check(self) -> None:
        """Raise what went wrong in a job that has ended. Never wait."""
        if self._job is not None and self._job.done():
            self.wait()

    def settle(self) -> None:
        """Wait until the job has ended; raise nothing yet."""
        if self._job is not None:
            wait([self._job])

    def wait(self) -> None:
        """Wait for the job, and raise what went wrong in it."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def close(self) -> None:
        """Wait for the job and end the thread."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None


class Snapshots:
    """Writes and reads a solver's snapshots.

    Args:
        param: the solver's settings: snapshot, snapshot_prefix.
        file: the solver's prototxt, which gives the prefix where there is none.
        keep: which checkpoints stay.
        checkpoint_only: write no files of Caffe's.
        on_error: "stop" if a snapshot that cannot be written is an error at once; "continue" if only the newest must be
            there in the end. Several processes stop: the others wait for what one cannot write.

    Attributes:
        prefix: what all their names begin with.
        on_error: as given.

    Raises:
        SolverError: if snapshots are due and their folder cannot be made or written.
    """

    def __init__(
        self,
        param: SolverParameter,
        file: Path | None,
        keep: Keep | None = None,
        checkpoint_only: bool = False,
        on_error: OnSnapshotError = "stop",
    ) -> None:
        self._param, self._checkpoint_only = param, checkpoint_only
        self.prefix = prefix_of(param, file)
        self._folder = CheckpointFolder(f"{self.prefix}.orbax", keep, together=True)
        self._background = Background()
        self.on_error: OnSnapshotError = on_error
        self._missing: CaffejaxError | None = None  # why the newest is not there
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

        All processes write the checkpoint, each the parts of arrays that it has. The first writes Caffe's files, for
        which arrays that are cut come together in its memory, one at a time.

        With `snapshot_diff`, Caffe's diffs are what the last update subtracted: `last_update`, zeros if None. `each` is
        the running statistics of each of several devices.

        Raises:
            WeightsError, SolverError: if this snapshot cannot be started, or the one before could not be written, and
                `on_error` says "stop".
        """
        try:
            self.prepare()
        except SolverError as error:
            return self._failed(error)
        self._attend(self._background.wait)  # to the one before
        self._missing = None
        own = {**record, "format": FORMAT, "solver": format_text(self._param)}
        several = jax.process_count() > 1
        if several:  # each has its parts of the arrays, and all start together
            self._folder.save(iteration, to_arrays(state, each), own, record.get("scores"))
        if not several or not self._checkpoint_only:
            state, last_update = to_host(state), gather_to_first(last_update)
        each = each if several else jax.tree.map(np.array, each)
        write_caffe = self._caffe_files(state, graph, iteration, record, last_update)
        log.info("Snapshotting solver state to checkpoint %s%s%d", self._folder.path, os.sep, iteration)

        def write() -> None:
            if not several:
                write_caffe()
                self._folder.save(iteration, to_arrays(state, each), own, record.get("scores"))
                return
            try:
                write_caffe()
            finally:
                self._folder.wait()  # others wait for this one, whatever becomes of Caffe's files

        self._background.submit(write)

    def _caffe_files(
        self, host: TrainState, graph: Graph, iteration: int, record: Mapping[str, Any], last_update: Params | None
    ) -> Callable[[], None]:
        """Return what writes Caffe's files, in the first process, of what has come together there."""
        if self._checkpoint_only or not is_first():
            return lambda: None
        hdf5 = self._param.snapshot_format == SolverParameter.HDF5
        stem, end, kind = f"{self.prefix}_iter_{iteration}", ".h5" if hdf5 else "", "HDF5" if hdf5 else "binary proto"
        weights, solverstate = f"{stem}.caffemodel{end}", f"{stem}.solverstate{end}"
        diffs = (last_update or jax.tree.map(np.zeros_like, host.params)) if self._param.snapshot_diff else None

        def write() -> None:
            save_weights(weights, graph, Variables(host.params, host.state), diffs)
            save_state(solverstate, host, graph, self._param, weights, record)

        log.info("Snapshotting to %s file %s", kind, weights)
        log.info("Snapshotting solver state to %s file %s", kind, solverstate)
        return write

    def restore(
        self, path: str | os.PathLike[str], updater: Updater, graph: Graph
    ) -> tuple[TrainState, dict[str, Any], Params | None]:
        """Read the state in a snapshot, its record, and the running statistics of each device if it has them.

        Args:
            path: a checkpoint folder, for its newest step; one step of it (`<prefix>.orbax/<n>`); or a
                .solverstate[.h5], which has no record if Caffe wrote it.
            updater: what is to go on with it: of several devices or processes each reads its part of a checkpoint.
            graph: the train net.

        Raises:
            WeightsError: if there is none, or it is of another net or solver type.
        """
        if is_caffe_state(Path(path)):
            return *load_state(Path(path), updater.sharded_state[0], graph, self._param.type), None
        folder, step = _locate(Path(path))
        carried = [f"{layer.key}/{len(layer.params) + i}" for layer in graph.layers for i in range(len(layer.carried))]
        reader = StateReader(updater.abstract_state, str(path), carried)

        def target(record: dict[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
            _check_record(record, str(path))
            return reader.target(shapes)

        checkpoints = CheckpointFolder(folder)
        try:
            arrays, record = checkpoints.restore(step, target, all_processes)
        finally:
            checkpoints.close()
        state, each = reader.state(arrays)
        return state, record, each

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs from this prefix, if this one writes there; of several processes the first does.

        Raises:
            SolverError: if another run has it.
        """
        writes = self._param.snapshot or self._param.snapshot_after_train
        if writes and is_first():
            self.prepare()
            with lock_prefix(self.prefix):
                try:
                    yield
                finally:
                    self._background.settle()  # where training has failed, its last snapshot may be under way
        else:
            yield

    def check(self) -> None:
        """Raise `WeightsError` if a snapshot could not be written, or warn, as `on_error` says; never wait."""
        self._attend(self._background.check)

    def wait(self) -> None:
        """Wait until the last snapshot is complete; raise `WeightsError` if it could not be written."""
        self._background.wait()
        self._check_newest()

    def close(self) -> None:
        """Wait until the last snapshot is complete, and end background work; raise `WeightsError` likewise."""
        try:
            self._background.close()
        finally:
            self._folder.close()
        self._check_newest()

    def _attend(self, to: Callable[[], None]) -> None:
        try:
            to()
        except WeightsError as error:
            self._failed(error)

    def _failed(self, error: CaffejaxError) -> None:
        if self.on_error == "stop":
            raise error
        self._missing = error
        for problem in error.problems:
            log.warning("%s. Training goes on; the next snapshot is tried again", problem)

    def _check_newest(self) -> None:
        error, self._missing = self._missing, None
        if error is not None:
            raise error

    def prepare(self) -> None:
        """Make the folder; raise `SolverError` if snapshots cannot be written to it."""
        if not is_first():
            return
        parent = Path(self.prefix).parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': {error}") from error
        check_folder(self.prefix)


def check_folder(prefix: str) -> None:
    """Raise `SolverError` if it can be seen that snapshots cannot be written; nothing is made."""
    parent = Path(prefix).parent
    there = next((folder for folder in (parent, *parent.parents) if os.path.exists(folder)), parent)
    if not (there.is_dir() and os.access(there, os.W_OK)):
        what = "not writable" if there.is_dir() else "no folder"
        raise SolverError(f"cannot write to snapshot prefix '{prefix}': '{there}' is {what}")


def check_snapshot(path: str | os.PathLike[str]) -> None:
    """Raise `WeightsError` if there is no snapshot to go on from."""
    if is_caffe_state(Path(path)):
        check_there([path], WeightsError)
    else:
        _locate(Path(path))


def _check_record(record: dict[str, Any], path: str) -> None:
    if record.get("weights"):
        raise WeightsError(Problem("holds weights only; convert it and give it as --weights", file=path))
    if record.get("format") != FORMAT:
        raise WeightsError(Problem(f"is of format {record.get('format')}; this version reads {FORMAT}", file=path))
    validate_record(record, path)


def prefix_of(param: SolverParameter, file: Path | None) -> str:
    """Return the prefix by Caffe's rule: in a folder, the solver file's stem; if empty, the solver file's path."""
    given = param.snapshot_prefix
    if not given:
        return str(file.with_suffix("")) if file else "solver"
    return str(Path(given) / (file.stem if file else "solver")) if os.path.isdir(given) else given


def _locate(path: Path) -> tuple[Path, int | None]:
    """Return the checkpoint folder and, if the path names one, the step."""
    if not os.path.exists(path):
        raise WeightsError(
            Problem("no such snapshot; give a <prefix>.orbax folder or one of its steps", file=str(path))
        )
    if os.path.isfile(path):
        raise WeightsError(
            Problem(
                "is a file; training resumes from a .solverstate[.h5], a <prefix>.orbax folder or a step in it",
                file=str(path),
            )
        )
    return (path.parent, int(path.name)) if path.name.isdigit() else (path, None)
