"""Training states as our own checkpoints have them, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from ..errors import Problem, WeightsError
from ..net import Params
from ..parallel import place_like
from .report import log
from .rules import History, find_history, with_history
from .state import TrainState

_EACH = "devices"  # where a checkpoint has the statistics of each device


def to_host(state: TrainState) -> TrainState:
    """Copy a state to NumPy, the key as its data: later steps, which may reuse the buffers, leave it alone."""
    with_data = state.replace(key=jax.random.key_data(state.key))  # type: ignore[attr-defined]
    copied: TrainState = jax.tree.map(lambda x: x if isinstance(x, np.ndarray) else np.array(x), with_data)
    return copied


def to_arrays(state: TrainState, each: Params | None = None) -> dict[str, Any]:
    """Return a state from `to_host` as nested dictionaries of names, for any reader of a checkpoint.

    `each` is the running statistics of each of several devices.
    """
    histories = enumerate(find_history(state.opt_state).history)
    return {
        **({_EACH: _named(each)} if each else {}),
        "params": _named(state.params),
        "state": _named(state.state),
        "history": {str(i): _named(tree) for i, tree in histories},
        "iteration": state.iteration,
        "key": state.key,
    }


def _named(tree: Params) -> dict[str, Any]:
    return {layer: {str(i): b for i, b in enumerate(blobs) if b is not None} for layer, blobs in tree.items()}


def from_arrays(
    arrays: Mapping[str, Any], like: TrainState, file: str, carried: Collection[str] = ()
) -> tuple[TrainState, Params | None]:
    """Make the state of a checkpoint's arrays, placed as `like` is, and the statistics of each device, if there.

    `carried` names, as layer/index, what layers carry from one batch to the next: where the batch was of another size,
    it starts at zero again.

    Raises:
        WeightsError: naming every array that only one of the two has, or in another shape.
    """
    flat = _flat({name: tree for name, tree in arrays.items() if name != _EACH})
    wanted = _flat(to_arrays(to_host(like)))
    for name in (f"state/{place}" for place in carried):
        if name in flat and flat[name].shape != wanted[name].shape:
            log.warning("%s: '%s' is of another batch size, and starts at zero again", file, name)
            flat[name] = np.zeros_like(wanted[name])
    problems = [Problem(message, file=file) for message in _differences(flat, wanted)]
    if problems:
        raise WeightsError(problems)

    def loaded(place: str, tree: Params) -> Params:
        return {
            layer: tuple(
                None if b is None else place_like(flat[f"{place}/{layer}/{i}"], b) for i, b in enumerate(blobs)
            )
            for layer, blobs in tree.items()
        }

    history = History(
        tuple(loaded(f"history/{i}", tree) for i, tree in enumerate(find_history(like.opt_state).history))
    )
    state = TrainState(
        params=loaded("params", like.params),
        state=loaded("state", like.state),
        opt_state=with_history(like.opt_state, history),
        iteration=place_like(flat["iteration"], like.iteration),
        key=place_like(jax.random.wrap_key_data(flat["key"]), like.key),
    )
    return state, _each(_flat(arrays.get(_EACH, {})), like.state)


def _each(flat: Mapping[str, Any], like: Params) -> Params | None:
    """Return the statistics of each device, if the checkpoint has them of all the state."""
    names = {f"{layer}/{i}": b for layer, blobs in like.items() for i, b in enumerate(blobs) if b is not None}
    if set(flat) != set(names) or any(flat[name].shape[1:] != b.shape for name, b in names.items()):
        return None
    return {
        layer: tuple(None if b is None else flat[f"{layer}/{i}"] for i, b in enumerate(blobs))
        for layer, blobs in like.items()
    }


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
