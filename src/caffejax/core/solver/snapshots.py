"""Snapshots of training: a checkpoint folder `<prefix>.orbax/<n>` and Caffe's files, where n is the iteration.

Caffe's files are `<prefix>_iter_<n>.caffemodel` and `<prefix>_iter_<n>.solverstate`.

A lock file for the prefix prevents two training runs from writing the same snapshots at the same time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...base.config import TrainConfig
from ...base.errors import CaffejaxError, Problem, SolverError, WeightsError, locate_errors
from ...base.paths import check_exist
from ...base.variables import Params, Variables
from ..checkpoints.failed_saves import remove_temporary_folders
from ..checkpoints.load_save import save_weights
from ..checkpoints.orbax import CheckpointFolder, DamagedStepError, KeepRule
from ..graph import Graph
from ..parallel.coordination import is_true_in_all_processes
from ..parallel.global_arrays import gather_to_first
from ..parallel.mesh import is_first
from ..schema import format_text
from ..schema.caffe_pb2 import SolverParameter
from .caffe_optimizer import CaffeState
from .reporting import log
from .shared_folder import check_shared_folder
from .snapshot_record import validate_record
from .solverstate_io import is_caffe_state, load_state, save_state
from .state_compatibility import check_slot_count, check_stored_rule, stored_rule
from .state_files import find_readable_state, has_prefix, move_states_aside
from .train_state_io import StateRestorer, to_arrays
from .train_step import TrainState
from .update_rules import RULES
from .updater import Updater

# errors of network file systems that do not support locks
_UNSUPPORTED_LOCK_ERRORS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def lock_prefix(prefix: str) -> Iterator[None]:
    """Return a context manager that holds a lock on the file `<prefix>.lock`.

    Unfinished files of killed runs are removed at the start and at the end of the `with` block. The lock file contains
    the process number and host of the run that holds the lock. The operating system releases the lock when the process
    ends, so a lock cannot remain after its run.

    Raises:
        SolverError: if another run holds the lock, or if the file cannot be written. The message names the process and
            host of the other run.
    """
    path = Path(f"{prefix}.lock")
    try:
        fd = _open_and_lock(path)
    except OSError as error:
        message = f"cannot be written: {error.strerror}; choose a different folder in the solver's snapshot_prefix"
        raise SolverError(Problem(message, str(path))) from error
    try:
        remove_partial_files(prefix)
        yield
    finally:
        with suppress(OSError):
            remove_partial_files(prefix)
        for _ in range(2):  # the first try may fail for a temporary reason
            with suppress(OSError):  # removed before the lock is released, because the next run creates a new file
                path.unlink(missing_ok=True)
        os.close(fd)


def _open_and_lock(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _UNSUPPORTED_LOCK_ERRORS:
                log.warning("%s: %s; a second run with this prefix cannot be detected", path, error.strerror)
                return fd
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
            os.close(fd)
            by = f"by {holder}" if holder.startswith("process ") and holder.isprintable() else "by another process"
            message = f"another run trains with this snapshot prefix: the file is locked {by}"
            raise SolverError(Problem(f"{message}; wait, or choose a different prefix", str(path))) from None
        with suppress(FileNotFoundError):  # the previous run may have removed it between opening and locking
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                break
        os.close(fd)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return fd


def remove_partial_files(prefix: str) -> None:
    """Remove unfinished checkpoints and temporary files of a snapshot prefix. The caller must hold the lock."""
    stem = Path(prefix)
    partial_files = [p for p in stem.parent.glob(".*.tmp") if p.name.startswith(f".{stem.name}_iter_")]
    for path in partial_files:
        with suppress(OSError):
            path.unlink()
    if names := [*remove_temporary_folders(Path(f"{prefix}.orbax")), *(path.name for path in partial_files)]:
        log.info("Removed unfinished files of an earlier run: %s", ", ".join(names))


FORMAT_VERSION = 1  # the version of a checkpoint's record and names


class Snapshots:
    """Writes and reads a solver's snapshots.

    Args:
        param: the solver's settings.
        file: the solver's prototxt, or None. Its name is the prefix if the settings have no snapshot_prefix.
        keep: the rule for which checkpoints are kept.
        config: the solver's options, of which `checkpoint_only` and `on_snapshot_error` are used.

    Attributes:
        prefix: the prefix of the paths of all snapshots.

    Raises:
        SolverError: if the settings request snapshots and their folder cannot be created or written to.
    """

    def __init__(self, param: SolverParameter, file: Path | None, keep: KeepRule, config: TrainConfig) -> None:
        self._param, self._checkpoint_only, self._on_error = param, config.checkpoint_only, config.on_snapshot_error
        self.prefix = snapshot_prefix(param, file)
        self._folder = CheckpointFolder(f"{self.prefix}.orbax", keep, is_collective=True)
        self._job: Future[None] | None = None  # writes the last snapshot
        self._last_iteration = -1  # states of this prefix up to there belong to this run
        self._newest_error: CaffejaxError | None = None  # the reason why the newest snapshot is missing
        if param.snapshot:
            self.prepare()

    def save(
        self,
        state: TrainState,
        graph: Graph,
        iteration: int,
        record: Mapping[str, Any],
        last_update: Params | None = None,
        device_statistics: Params | None = None,
    ) -> None:
        """Start to write a snapshot in the background: the checkpoint and Caffe's two files.

        All processes write their shards of the checkpoint. The first process writes Caffe's files, and gathers sharded
        arrays in its memory for this, one at a time. `wait` waits until the snapshot is complete.

        Args:
            state: the train state, which may be sharded.
            graph: the train net.
            iteration: the number of updates so far.
            record: the positions in the data, seed and scores to store; see `snapshot_record.validate_record`.
            last_update: the arrays that the last update subtracted from the parameters, or None for zeros. If
                `snapshot_diff` is set, they are stored as Caffe's diffs.
            device_statistics: the running statistics of each device, stacked on axis 0, or None for one device.

        Raises:
            WeightsError: if `on_snapshot_error` is "stop" and the previous snapshot could not be written.
            SolverError: if `on_snapshot_error` is "stop" and the folder of snapshots cannot be written to.
        """
        if not self._handle_errors(self.prepare):
            return
        self._handle_errors(self._finish_job)  # raises or logs an error of the previous snapshot
        self._newest_error = None
        full_record = {**record, "format": FORMAT_VERSION, "solver": format_text(self._param)}
        is_multiprocess = jax.process_count() > 1
        last_iteration, self._last_iteration = min(self._last_iteration, iteration), iteration
        first_moved = min(last_iteration + 1, iteration)
        check_shared_folder(self.prefix)

        def save_checkpoint() -> None:
            arrays = to_arrays(state, device_statistics)
            self._folder.save(iteration, arrays, full_record, record.get("scores"), first_moved)

        if is_multiprocess:  # all processes must start the save together, because each process writes its shards
            save_checkpoint()
        if not is_multiprocess or not self._checkpoint_only:
            state, last_update = gather_to_first((state.replace(key=jax.random.key_data(state.key)), last_update))
        if not is_multiprocess:
            device_statistics = jax.tree.map(np.array, device_statistics)
        write_caffe_files = self._make_caffe_writer(state, graph, iteration, record, last_update)
        log.info("Snapshotting solver state to checkpoint %s%s%d", self._folder.path, os.sep, iteration)

        def write() -> None:
            try:
                if is_first():
                    self._move_states_aside(last_iteration, iteration)
                write_caffe_files()
                if not is_multiprocess:
                    save_checkpoint()
            finally:
                if is_multiprocess:
                    self._folder.wait()  # other processes wait for this one, even if Caffe's files fail

        self._submit(write)

    def _submit(self, job: Callable[[], None]) -> None:
        pool = ThreadPoolExecutor(1, thread_name_prefix="caffejax-save")
        self._job = pool.submit(job)
        pool.shutdown(wait=False)  # the thread ends with its job

    def _finish_job(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def _move_states_aside(self, last_iteration: int, iteration: int) -> None:
        try:
            move_states_aside(self.prefix, last_iteration, None if self._checkpoint_only else iteration)
        except WeightsError:
            self._last_iteration = last_iteration  # the next snapshot tries again
            raise

    def _make_caffe_writer(
        self,
        host_state: TrainState,
        graph: Graph,
        iteration: int,
        record: Mapping[str, Any],
        last_update: Params | None,
    ) -> Callable[[], None]:
        """Return a function that writes Caffe's files. In all processes except the first, it does nothing."""
        if self._checkpoint_only or not is_first():
            return lambda: None
        hdf5 = self._param.snapshot_format == SolverParameter.HDF5
        extension, format_name = (".h5", "HDF5") if hdf5 else ("", "binary proto")
        stem = f"{self.prefix}_iter_{iteration}"
        weights, solverstate = f"{stem}.caffemodel{extension}", f"{stem}.solverstate{extension}"
        diffs = (last_update or jax.tree.map(np.zeros_like, host_state.params)) if self._param.snapshot_diff else None
        has_caffe_state = isinstance(host_state.opt_state, CaffeState)

        def write() -> None:
            save_weights(weights, graph, Variables(host_state.params, host_state.state), diffs)
            if has_caffe_state:
                save_state(solverstate, host_state, graph, self._param, weights, record)

        log.info("Snapshotting to %s file %s", format_name, weights)
        if has_caffe_state:
            log.info("Snapshotting solver state to %s file %s", format_name, solverstate)
        else:
            log.info("No .solverstate is written, which cannot hold the state of an optax transformation")
        return write

    def restore(
        self, path: str | os.PathLike[str], updater: Updater, graph: Graph
    ) -> tuple[TrainState, dict[str, Any], Params | None]:
        """Read a snapshot. Each process reads only its shards of a checkpoint.

        Args:
            path: a .solverstate[.h5] file, a checkpoint folder `<prefix>.orbax`, or a step in it, `<prefix>.orbax/<n>`.
                For a folder, its newest step is read.
            updater: the updater that will continue from the state, which determines the shapes and shardings.
            graph: the train net.

        Returns:
            The train state, the record (see `snapshot_record`), and the running statistics of each device. The record
            is empty if Caffe wrote the file. The statistics are None if the snapshot does not contain them.

        Raises:
            WeightsError: if the snapshot does not exist, cannot be read, or belongs to a different net or solver type.
        """
        with locate_errors(file=os.fspath(path)):
            if is_caffe_state(Path(path)):
                state, record = load_state(Path(path), updater.sharded_state[0], graph, self._param.type)
                statistics = None
            else:
                state, record, statistics = self._restore_checkpoint(Path(path), updater, graph)
        self._last_iteration = int(state.iteration) if has_prefix(Path(path), self.prefix) else -1
        return state, record, statistics

    def _restore_checkpoint(
        self, path: Path, updater: Updater, graph: Graph
    ) -> tuple[TrainState, dict[str, Any], Params | None]:
        folder, step = _split_step(path)
        recurrent_state = ["/".join(p.slot) for layer in graph.layers for p in layer.recurrent_state]
        restorer = StateRestorer(updater.abstract_state, str(path), recurrent_state, graph.blob_names)

        def restore_target(record: dict[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
            _check_record(record)
            check_stored_rule(record, self._param.type, str(path), "it")
            if stored_rule(record) is None and self._param.type in RULES and "history" in shapes:
                num_blobs = len(graph.unique_params)
                check_slot_count(num_blobs * len(shapes["history"]), num_blobs, self._param.type, "it")
            return restorer.restore_target(shapes)

        try:
            with closing(CheckpointFolder(folder)) as checkpoints:
                arrays, record = checkpoints.restore(step, restore_target, is_true_in_all_processes)
        except DamagedStepError as error:
            if (other := find_readable_state(str(folder).removesuffix(".orbax"))) is None:
                raise
            hint = f"{other} can be read: resume with --snapshot={other}"
            raise WeightsError(replace(p, message=f"{hint}; {p.message}") for p in error.problems) from error
        state, statistics = restorer.to_train_state(arrays)
        return state, record, statistics

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Return a context manager that locks the prefix of the snapshots, so that no other run writes to it.

        The first process holds the lock. If the settings request no snapshots, nothing is locked.

        Raises:
            SolverError: if another run holds the lock.
        """
        writes_snapshots = self._param.snapshot or self._param.snapshot_after_train
        if writes_snapshots and is_first():
            self.prepare()
            with lock_prefix(self.prefix):
                try:
                    yield
                finally:
                    if self._job is not None:  # if training failed, its last snapshot may not be complete yet
                        wait([self._job])
        else:
            yield

    def check(self) -> None:
        """Raise `WeightsError` if a snapshot could not be written; with `on_snapshot_error` "continue", log a warning.

        This method does not wait for a snapshot that is being written.
        """
        if self._job is not None and self._job.done():
            self._handle_errors(self._finish_job)

    def wait(self) -> None:
        """Wait until the last snapshot is complete, and raise `WeightsError` if it could not be written."""
        self._finish_job()
        self._raise_newest_error()

    def close(self) -> None:
        """Wait like `wait`, and close the checkpoint folder."""
        try:
            self._finish_job()
        finally:
            self._folder.close()
        self._raise_newest_error()

    def _handle_errors(self, action: Callable[[], None]) -> bool:
        """Return whether an action succeeds. Otherwise log the error, or with `on_snapshot_error` "stop" raise it."""
        try:
            action()
        except (SolverError, WeightsError) as error:
            if self._on_error == "stop":
                raise
            self._newest_error = error
            for problem in error.problems:
                log.warning("%s. Training continues; the next snapshot will be attempted", problem)
            return False
        return True

    def _raise_newest_error(self) -> None:
        error, self._newest_error = self._newest_error, None
        if error is not None:
            raise error

    def prepare(self) -> None:
        """Create the folder of the snapshots, and raise `SolverError` if it is not writable."""
        if not is_first():
            return
        parent = Path(self.prefix).parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': {error}") from error
        check_folder(self.prefix)


def check_folder(prefix: str) -> None:
    """Raise `SolverError` if the user cannot write snapshots with a prefix. No file or folder is created."""
    parent = Path(prefix).parent
    existing_folder = next((folder for folder in (parent, *parent.parents) if os.path.exists(folder)), parent)
    if not (existing_folder.is_dir() and os.access(existing_folder, os.W_OK)):
        reason = "not writable" if existing_folder.is_dir() else "not a folder"
        raise SolverError(f"cannot write to snapshot prefix '{prefix}': '{existing_folder}' is {reason}")


def check_snapshot(path: str | os.PathLike[str]) -> None:
    """Raise `WeightsError` if a path is not an existing .solverstate file, checkpoint folder or step in a folder."""
    if is_caffe_state(Path(path)):
        check_exist([path], WeightsError)
    else:
        _split_step(Path(path))


def _check_record(record: dict[str, Any]) -> None:
    if record.get("weights"):
        raise WeightsError(
            "contains only weights, so training cannot resume from it; convert it to a .caffemodel with `caffejax "
            "convert`, and pass that file as --weights"
        )
    if record.get("format") != FORMAT_VERSION:
        raise WeightsError(
            f"has format {record.get('format')}, but this version of caffejax reads format {FORMAT_VERSION}"
        )
    validate_record(record)


def snapshot_prefix(param: SolverParameter, file: Path | None) -> str:
    """Return the prefix of the paths of snapshots, according to Caffe's rule.

    If the setting snapshot_prefix is empty, the prefix is the path of the solver file without its extension, or
    "solver" without a file. If snapshot_prefix is a folder, the name of the solver file without its extension is
    appended.
    """
    prefix = param.snapshot_prefix
    if not prefix:
        return str(file.with_suffix("")) if file else "solver"
    return str(Path(prefix) / (file.stem if file else "solver")) if os.path.isdir(prefix) else prefix


def _split_step(path: Path) -> tuple[Path, int | None]:
    """Return `(folder, step)` for a step in a checkpoint folder, or `(folder, None)` for the folder itself."""
    if not os.path.exists(path):
        raise WeightsError(
            Problem("no such snapshot; give a <prefix>.orbax folder or one of its steps", file=str(path))
        )
    if os.path.isfile(path):
        raise WeightsError(
            Problem(
                "is a file; training resumes from a .solverstate[.h5], a <prefix>.orbax folder or a step in it; "
                "to start from the weights of a .caffemodel, name it with --weights",
                file=str(path),
            )
        )
    return (path.parent, int(path.name)) if path.name.isdigit() else (path, None)
