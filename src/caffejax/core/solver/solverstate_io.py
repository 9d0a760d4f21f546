"""Conversion of training states to Caffe's .solverstate files and back."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import Problem, WeightsError
from ...base.variables import Variables
from ..checkpoints.load_save import load_weights
from ..checkpoints.match_by_name import MissingLayersError
from ..graph import Graph, Param, Slot
from ..parallel import reshard
from ..schema.blob_proto import Array, format_shape
from ..schema.caffe_pb2 import SolverParameter
from .caffe_optimizer import CaffeState
from .evaluate import decode_recurrent_state, encode_recurrent_state
from .lr_schedules import current_step
from .reporting import log
from .snapshot_record import format_record, parse_record
from .state_compatibility import check_signs, check_slot_count, check_stored_rule, stored_rule
from .train_state_io import other_net_problem
from .train_step import TrainState

if TYPE_CHECKING:
    from ..checkpoints.solverstate import SolverState


_MAX_CARRIED_NUMBERS = 2**20  # they take more than 5 bytes each in the record, whose length is limited


def is_caffe_state(path: Path) -> bool:
    """Return whether the path of a snapshot ends in .solverstate or .solverstate.h5, like Caffe's snapshots."""
    return path.name.endswith((".solverstate", ".solverstate.h5"))


def save_state(
    path: str,
    state: TrainState,
    graph: Graph,
    param: SolverParameter,
    learned_net: str,
    record: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a training state as a .solverstate.

    Args:
        path: the file.
        state: the state that `to_host` returned.
        graph: the train net.
        param: the solver's settings.
        learned_net: the path of the weights file, which is stored in the .solverstate.
        record: the state that Caffe does not store, as JSON values; see `snapshot_record`. The record and the random
            key are written to a field that Caffe ignores.

    Raises:
        WeightsError: if the record is too large or the file cannot be written. An existing file then stays unchanged.
    """
    iteration = int(state.iteration)
    arrays = tuple(_history_array(p, slot) for slot in state.opt_state.history for p in graph.unique_params)
    num_reductions = current_step(param, max(0, iteration - 1))  # the step at the last update
    carried = _encode_carried_arrays(state, graph, path)
    record = {**record, "key": np.asarray(state.key).tolist()} | ({"carried": carried} if carried else {})
    text = format_record(record, path)
    from ..checkpoints.solverstate import SolverState, write_solverstate  # h5py takes long to import

    write_solverstate(path, SolverState(iteration, learned_net, arrays, num_reductions, text))


def load_state(path: Path, template: TrainState, graph: Graph, type: str) -> tuple[TrainState, dict[str, Any]]:
    """Load a .solverstate and the weights that it names.

    Args:
        path: the file.
        template: a state of this solver. The result has the shardings of this state. If Caffe wrote the file, the
            result also has the random key of this state, because Caffe stores no key.
        graph: the train net.
        type: the solver's type, such as "SGD", for error messages.

    Returns:
        The state, and the record that `save_state` wrote. The record is empty if Caffe wrote the file.

    Raises:
        WeightsError: if the .solverstate or the weights cannot be read, or belong to a different net or solver type.
    """
    from ..checkpoints.solverstate import read_solverstate

    stored = read_solverstate(path)
    record = parse_record(stored.record, str(path))
    variables = Variables(template.params, template.state)
    namesake = weights_namesake(path)
    check_stored_rule(record, type, str(path), str(namesake))
    if type == "optax":
        message = "a .solverstate holds the state of a rule of Caffe's, and this solver has another optimizer"
        remedy = f"resume from a checkpoint, or pass {namesake} as weights= instead of resume="
        raise WeightsError(Problem(f"{message}; {remedy}", file=str(path)))
    if stored.learned_net:
        weights = find_weights(path, stored.learned_net)
        if weights is None:
            message = (
                f"its weights are missing: there is no file '{stored.learned_net}' in the working directory, and no "
                f"'{path.parent / Path(stored.learned_net).name}'"
            )
            raise WeightsError(Problem(f"{message}; put the file into the same folder as this one", file=str(path)))
        try:
            variables = load_weights(weights, graph, variables, strict=True)
        except MissingLayersError as error:
            raise WeightsError(other_net_problem(str(path), str(weights), error.missing, error.unused)) from error
    slots = template.opt_state.history
    num_blobs = len(graph.unique_params)
    check_slot_count(len(stored.history), num_blobs, type, str(path), str(namesake))
    problems = list(_find_differences(stored, graph, len(slots)))
    if not problems and stored_rule(record) is None:
        history_by_slot = [stored.history[i * num_blobs : (i + 1) * num_blobs] for i in range(len(slots))]
        check_signs(history_by_slot, type, str(path), str(namesake))
    if problems:
        raise WeightsError([Problem(message, file=str(path)) for message in problems])
    param_indices = {p.slot: i for i, p in enumerate(graph.unique_params)}

    def load_slot(slot_index: int, tree: Any) -> Any:
        return {
            key: {
                name: np.asarray(
                    stored.history[slot_index * len(param_indices) + param_indices[Slot(key, name)]], current.dtype
                )
                for name, current in blobs.items()
            }
            for key, blobs in tree.items()
        }

    iteration: Any = np.int32(stored.iteration)
    history = tuple(load_slot(i, tree) for i, tree in enumerate(slots))
    carried = decode_recurrent_state(graph, record.get("carried", {}))
    new_state = TrainState(
        params=variables.params,
        state={layer: {**blobs, **carried.get(layer, {})} for layer, blobs in variables.state.items()},
        opt_state=CaffeState(iteration, history),
        iteration=jax.device_put(iteration),  # jnp.int32 would compile a program
        key=jax.random.wrap_key_data(jnp.array(record["key"], jnp.uint32)) if "key" in record else template.key,
        rule=template.rule,
    )
    sharded_state: TrainState = reshard(new_state, jax.tree.map(lambda x: x.sharding, template))
    return sharded_state, record


def _encode_carried_arrays(state: TrainState, graph: Graph, path: str) -> dict[str, Any]:
    """Return what layers carry from pass to pass as JSON values, or, with a warning, nothing if it is too large."""
    layers = [layer for layer in graph.layers if layer.recurrent_state]
    if sum(math.prod(p.spec.shape) for layer in layers for p in layer.recurrent_state) <= _MAX_CARRIED_NUMBERS:
        return encode_recurrent_state(graph, state.state)
    log.warning(
        "%s is without the arrays that layers carry from pass to pass, because they are too large (layer '%s'): a run "
        "that resumes from it begins with the initial ones; resume from the checkpoint instead",
        path,
        layers[0].name,
    )
    return {}


def find_weights(path: Path, stored_path: str) -> Path | None:
    """Return the path of the weights file of the .solverstate `path`, or None.

    It is the file of the stored name in the same folder, since a state that was moved with its weights belongs to
    them, or else `stored_path`.
    """
    candidates = path.parent / Path(stored_path).name, Path(stored_path)
    return next((c for c in candidates if os.path.isfile(c)), None)  # a device, which may never end, is not accepted


def weights_namesake(path: Path) -> Path:
    """Return the path of the weights that Caffe writes with the .solverstate[.h5] `path`."""
    stem, _, suffix = path.name.rpartition(".solverstate")
    return path.with_name(f"{stem}.caffemodel{suffix}")


def _find_differences(stored: SolverState, graph: Graph, num_slots: int) -> Iterator[str]:
    expected = list(graph.unique_params) * num_slots
    for i, (param, array) in enumerate(zip(expected, stored.history, strict=True)):
        if array.shape != param.spec.shape:
            description = f"history blob {i} (layer '{param.slot.layer}', blob {param.index})"
            yield (
                f"{description} has shape {format_shape(array.shape)} in the file, but "
                f"{format_shape(param.spec.shape)} in the net; resume with the net that wrote the file"
            )


def _history_array(param: Param, tree: Any) -> Array:
    """Return the history of a blob as float32: zeros for running statistics, for which Caffe also stores zeros."""
    if not param.spec.learnable:
        return np.zeros(param.spec.shape, np.float32)
    return np.asarray(tree[param.slot.layer][param.slot.name], np.float32)
