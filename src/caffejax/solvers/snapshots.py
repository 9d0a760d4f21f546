"""Snapshots: `<prefix>_iter_<n>.caffemodel` and `.solverstate` for Caffe, `<prefix>.orbax/<n>` to go on from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checkpoints.loading import save_weights
from ..checkpoints.orbax import CheckpointFolder
from ..errors import Problem, SolverError, WeightsError
from ..graph import Graph
from ..net import Params, Variables
from ..schema import format_text
from ..schema.caffe_pb2 import SolverParameter
from .caffe_states import is_caffe_state, load_state, save_state
from .report import log
from .rules import History, the_history, with_history
from .state import TrainState

FORMAT = 1  # of the checkpoint's record and names


class Snapshots:
    """Where a solver's snapshots go.

    Args:
        param: the solver's settings: snapshot, snapshot_prefix.
        file: the solver's prototxt, which gives the prefix where there is none.

    Raises:
        SolverError: if snapshots are due and their folder cannot be made or written.
    """

    def __init__(self, param: SolverParameter, file: Path | None) -> None:
        self._param = param
        self.prefix = _prefix(param.snapshot_prefix, file)
        self._folder = CheckpointFolder(f"{self.prefix}.orbax")
        if param.snapshot:
            self._prepare()

    def save(
        self,
        state: TrainState,
        graph: Graph,
        iteration: int,
        record: Mapping[str, Any],
        last_update: Params | None = None,
    ) -> None:
        """Writes Caffe's two files and the checkpoint of a snapshot; the checkpoint completes in the background.

        With `snapshot_diff`, Caffe's diffs are what the last update subtracted: `last_update`, zeros if None.
        """
        self._prepare()
        hdf5 = self._param.snapshot_format == SolverParameter.HDF5
        stem, end, kind = f"{self.prefix}_iter_{iteration}", ".h5" if hdf5 else "", "HDF5" if hdf5 else "binary proto"
        weights, solverstate = f"{stem}.caffemodel{end}", f"{stem}.solverstate{end}"
        diffs = (last_update or jax.tree.map(jnp.zeros_like, state.params)) if self._param.snapshot_diff else None
        log.info("Snapshotting to %s file %s", kind, weights)
        save_weights(weights, graph, Variables(state.params, state.state), diffs)
        log.info("Snapshotting solver state to %s file %s", kind, solverstate)
        save_state(solverstate, state, graph, self._param, weights)
        log.info("Snapshotting solver state to checkpoint %s%s%d", self._folder.path, os.sep, iteration)
        own = {"format": FORMAT, "solver": format_text(self._param)}
        self._folder.save(iteration, _to_arrays(state), {**record, **own})

    def restore(
        self, path: str | os.PathLike[str], like: TrainState, graph: Graph
    ) -> tuple[TrainState, dict[str, Any]]:
        """The state in a snapshot, and its record.

        Args:
            path: a checkpoint folder, for its newest step; one step of it (`<prefix>.orbax/<n>`); or a
                .solverstate[.h5], which has no record: it says nothing of keys and places in the data.
            like: a state of this solver.
            graph: the train net.

        Raises:
            WeightsError: if there is none, or it is of another net or solver type.
        """
        if is_caffe_state(Path(path)):
            return load_state(Path(path), like, graph, self._param.type), {}
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
        return _from_arrays(arrays, like, str(path)), record

    def close(self) -> None:
        """Waits until the last checkpoint is complete."""
        self._folder.close()

    def _prepare(self) -> None:
        parent = Path(self.prefix).parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': {error}") from error
        if not os.access(parent, os.W_OK):
            raise SolverError(f"cannot write to snapshot prefix '{self.prefix}': folder '{parent}' is not writable")


def _prefix(given: str, file: Path | None) -> str:
    """Caffe's rule: the prefix; in a folder, the solver file's stem; without one, the solver file's path."""
    if not given:
        return str(file.with_suffix("")) if file else "solver"
    return str(Path(given) / (file.stem if file else "solver")) if Path(given).is_dir() else given


def _locate(path: Path) -> tuple[Path, int | None]:
    """The checkpoint folder and, if the path names one, the step."""
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


def _to_arrays(state: TrainState) -> dict[str, Any]:
    """The state as nested dictionaries of names, which any reader of the checkpoint can make sense of."""
    histories = enumerate(the_history(state.opt_state).history)
    return {
        "params": _named(state.params),
        "state": _named(state.state),
        "history": {str(i): _named(tree) for i, tree in histories},
        "iteration": state.iteration,
        "key": jax.random.key_data(state.key),
    }


def _named(tree: Params) -> dict[str, Any]:
    return {layer: {str(i): b for i, b in enumerate(blobs) if b is not None} for layer, blobs in tree.items()}


def _from_arrays(arrays: Mapping[str, Any], like: TrainState, file: str) -> TrainState:
    """The state in a checkpoint's arrays, placed as `like` is."""
    flat = _flat(arrays)
    problems = [Problem(message, file=file) for message in _differences(flat, _flat(_to_arrays(like)))]
    if problems:
        raise WeightsError(problems)

    def loaded(place: str, tree: Params) -> Params:
        return {
            layer: tuple(
                None if b is None else jax.device_put(arrays_at(f"{place}/{layer}/{i}"), b.sharding)
                for i, b in enumerate(blobs)
            )
            for layer, blobs in tree.items()
        }

    def arrays_at(name: str) -> np.ndarray:
        return flat[name]

    history = History(tuple(loaded(f"history/{i}", tree) for i, tree in enumerate(the_history(like.opt_state).history)))
    return TrainState(
        params=loaded("params", like.params),
        state=loaded("state", like.state),
        opt_state=with_history(like.opt_state, history),
        iteration=jax.device_put(flat["iteration"], like.iteration.sharding),
        key=jax.device_put(jax.random.wrap_key_data(flat["key"]), like.key.sharding),
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    found = [f"has no '{name}', which this solver needs" for name in wanted if name not in stored]
    found += [f"has '{name}', which this solver does not know" for name in stored if name not in wanted]
    found += [
        f"'{name}' has shape {stored[name].shape}, this solver needs {value.shape}"
        for name, value in wanted.items()
        if name in stored and stored[name].shape != value.shape
    ]
    return found
