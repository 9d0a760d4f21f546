"""Training states as our own checkpoints have them, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import Problem, SolverError, WeightsError
from ..net import Params
from ..parallel import gather_to_first
from .reporting import log
from .train_step import TrainState
from .update_rules import History, find_history, with_history

_EACH = "devices"  # where a checkpoint has the statistics of each device


def to_host(state: TrainState) -> TrainState:
    """Return a state as NumPy's arrays, the key as its data, which later steps leave alone; see `gather_to_first`."""
    copied: TrainState = gather_to_first(state.replace(key=_data(state.key)))  # type: ignore[attr-defined]
    return copied


def to_arrays(state: TrainState, each: Params | None = None) -> dict[str, Any]:
    """Return a state as nested dictionaries of names, for any reader of a checkpoint.

    `each` is the running statistics of each of several devices.
    """
    histories = enumerate(find_history(state.opt_state).history)
    return {
        **({_EACH: _named(each)} if each else {}),
        "params": _named(state.params),
        "state": _named(state.state),
        "history": {str(i): _named(tree) for i, tree in histories},
        "iteration": state.iteration,
        "key": _data(state.key),
    }


def _data(key: Any) -> Any:
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _named(tree: Params) -> dict[str, Any]:
    return {layer: {str(i): b for i, b in blobs.items()} for layer, blobs in tree.items()}


def check_state(state: TrainState, wanted: TrainState) -> None:
    """Raise `SolverError` unless a state, which somebody sets, has the arrays of the one that is wanted."""
    kinds: list[Any] = [jax.tree.structure(s.opt_state, is_leaf=_is_history) for s in (state, wanted)]
    if kinds[0] == kinds[1]:
        problems = _differences(_flat(to_arrays(state)), _flat(to_arrays(wanted)), ())
    else:
        problems = ["its optimizer state is of another solver type"]
    if problems:
        raise SolverError([f"train_state does not match this solver: {problem}" for problem in problems])


def _is_history(tree: Any) -> bool:
    return isinstance(tree, History)


@dataclass(frozen=True)
class StateReader:
    """The target structure of restoring a checkpoint, and the conversion of its arrays to a `TrainState`.

    Attributes:
        wanted: the shapes of a state of this solver, as `Placement.wanted` gives them, with shardings.
        file: where the checkpoint is.
        carried: names, as layer/index, of what layers carry from one batch to the next: where the batch was of another
            size, it starts at zero again.
    """

    wanted: TrainState
    file: str
    carried: Collection[str] = ()

    def target(self, shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what to read arrays of these shapes into: as wanted; each device's statistics to the host.

        Raises:
            WeightsError: naming every array that only one of the two has, or in another shape.
        """
        flat, wanted = _flat({name: tree for name, tree in shapes.items() if name != _EACH}), self._flat_wanted()
        restart = {f"state/{place}" for place in self.carried}
        if messages := _differences(flat, wanted, restart):
            raise WeightsError([Problem(message, file=self.file) for message in messages])

        def into(place: str, shape: Any) -> Any:
            own = wanted.get(place)
            as_wanted = own is not None and own.sharding is not None and own.shape == tuple(shape.shape)
            return own if as_wanted else np.empty(shape.shape, shape.dtype)

        return _mapped(into, shapes)

    def state(self, arrays: Mapping[str, Any]) -> tuple[TrainState, Params | None]:
        """Make the state of what was read, and the statistics of each device, if there."""
        flat, wanted = _flat(arrays), self._flat_wanted()
        for name in (f"state/{place}" for place in self.carried):
            if name in flat and flat[name].shape != wanted[name].shape:
                log.warning("%s: '%s' is of another batch size, and starts at zero again", self.file, name)
                flat[name] = np.zeros(wanted[name].shape, wanted[name].dtype)

        def loaded(place: str, tree: Params) -> Params:
            return {layer: {i: flat[f"{place}/{layer}/{i}"] for i in blobs} for layer, blobs in tree.items()}

        like = self.wanted
        histories = enumerate(find_history(like.opt_state).history)
        state = TrainState(
            params=loaded("params", like.params),
            state=loaded("state", like.state),
            opt_state=with_history(like.opt_state, History(tuple(loaded(f"history/{i}", t) for i, t in histories))),
            iteration=flat["iteration"],
            key=jax.random.wrap_key_data(flat["key"]),
        )
        return state, _each(_flat(arrays.get(_EACH, {})), like.state)

    def _flat_wanted(self) -> dict[str, Any]:
        return _flat(to_arrays(self.wanted))


def _each(flat: Mapping[str, Any], like: Params) -> Params | None:
    """Return the statistics of each device, if the checkpoint has them of all the state."""
    names = _flat(_named(like))
    if set(flat) != set(names) or any(flat[name].shape[1:] != b.shape for name, b in names.items()):
        return None
    return {layer: {i: flat[f"{layer}/{i}"] for i in blobs} for layer, blobs in like.items()}


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    _mapped(flat.setdefault, tree)
    return flat


def _mapped(function: Callable[[str, Any], Any], tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Call a function with each array's path and the array; return what it gives, as the tree is."""
    return {
        name: _mapped(function, value, f"{prefix}{name}/")
        if isinstance(value, Mapping)
        else function(f"{prefix}{name}", value)
        for name, value in tree.items()
    }


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], any_shape: Collection[str]) -> list[str]:
    found = [f"has no '{name}', which this solver needs" for name in wanted if name not in stored]
    found += [f"has '{name}', which this solver does not know" for name in stored if name not in wanted]
    found += [
        f"'{name}' has shape {tuple(stored[name].shape)}, this solver needs {value.shape}"
        for name, value in wanted.items()
        if name in stored and tuple(stored[name].shape) != value.shape and name not in any_shape
    ]
    return found
