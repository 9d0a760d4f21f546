"""Conversion of training states to Caffe's .solverstate files and back."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import WeightsError, locate_errors, raise_if_any
from ...base.variables import Variables
from ..checkpoints.load_save import load_weights, make_diff_array
from ..checkpoints.match_by_name import MissingLayersError
from ..graph import Graph
from ..graph.graph import map_params
from ..parallel.global_arrays import reshard
from ..schema.blob_proto import format_shape
from ..schema.caffe_pb2 import SolverParameter
from .caffe_optimizer import CaffeState
from .evaluate import decode_recurrent_state, encode_recurrent_state
from .lr_schedules import current_step
from .reporting import log
from .snapshot_record import format_record, parse_record
from .state_compatibility import check_signs, check_slot_count, check_stored_rule, stored_rule
from .train_state_io import other_net_error
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
    record: Mapping[str, Any],
) -> None:
    """Write a training state as a .solverstate.

    Args:
        path: the file.
        state: the state, with NumPy arrays, and the key as its uint32 data.
        graph: the train net.
        param: the solver's settings.
        learned_net: the path of the weights file, which is stored in the .solverstate.
        record: the state that Caffe does not store, as JSON values; see `snapshot_record`. The record and the random
            key are written to a field that Caffe ignores.

    Raises:
        WeightsError: if the record is too large or the file cannot be written. An existing file then stays unchanged.
    """
    iteration = int(state.iteration)
    arrays = tuple(make_diff_array(p, slot) for slot in state.opt_state.history for p in graph.unique_params)
    num_reductions = current_step(param, max(0, iteration - 1))  # the step at the last update
    carried = _encode_carried_arrays(state, graph, path)
    record = {**record, "key": np.asarray(state.key).tolist()} | ({"carried": carried} if carried else {})
    with locate_errors(file=path):
        text = format_record(record)
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
            The caller adds the file to the messages.
    """
    from ..checkpoints.solverstate import read_solverstate

    stored = read_solverstate(path)
    record = parse_record(stored.record)
    variables = Variables(template.params, template.state)
    namesake = weights_namesake(path)
    check_stored_rule(record, type, str(path), str(namesake))
    if type == "optax":
        message = "a .solverstate holds the state of a rule of Caffe's, and this solver has another optimizer"
        remedy = f"resume from a checkpoint, or pass {namesake} as weights= instead of resume="
        raise WeightsError(f"{message}; {remedy}")
    if stored.learned_net:
        weights = find_weights(path, stored.learned_net)
        if weights is None:
            raise WeightsError(
                f"its weights are missing: there is no file '{stored.learned_net}' in the working directory, and no "
                f"'{path.parent / Path(stored.learned_net).name}'; put the file into the same folder as this one"
            )
        try:
            variables = load_weights(weights, graph, variables, strict=True)
        except MissingLayersError as error:
            raise other_net_error(str(weights), error.missing, error.unused) from error
    params, num_slots = graph.unique_params, len(template.opt_state.history)
    check_slot_count(len(stored.history), len(params), type, str(namesake))
    raise_if_any(WeightsError, _find_differences(stored, graph, num_slots))
    slots = [stored.history[i * len(params) : (i + 1) * len(params)] for i in range(num_slots)]
    if stored_rule(record) is None:
        check_signs(slots, type, str(path), str(namesake))

    def load_slot(arrays: Sequence[np.ndarray]) -> Any:
        array_of = {param.slot: array for param, array in zip(params, arrays, strict=True)}
        learned = (param for param in params if param.spec.learnable)
        return map_params(learned, lambda param: np.asarray(array_of[param.slot], np.float32))

    iteration: Any = np.int32(stored.iteration)
    history = tuple(map(load_slot, slots))
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
