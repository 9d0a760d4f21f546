"""Conversion of training states to the arrays of caffejax's own checkpoints and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import SolverError, WeightsError, raise_if_any, shorten_list
from ...base.variables import Params
from .caffe_optimizer import CaffeState
from .reporting import log
from .state_compatibility import find_rule_difference
from .train_step import TrainState

_DEVICE_STATISTICS = "devices"  # under this name, checkpoints store the statistics of each device
_OPTIMIZER = "optimizer"  # and under this name the state of an optax transformation that replaces Caffe's rules


def to_arrays(state: TrainState, device_statistics: Params | None = None) -> dict[str, Any]:
    """Return a state in the form in which checkpoints store it: nested dictionaries of arrays.

    Args:
        state: the state.
        device_statistics: the running statistics of each device, stacked on axis 0, or None for one device.
    """
    is_key = jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key)
    return {
        **({_DEVICE_STATISTICS: device_statistics} if device_statistics else {}),
        "params": state.params,
        "state": state.state,
        **_name_optimizer_arrays(state.opt_state),
        "iteration": state.iteration,
        "key": jax.random.key_data(state.key) if is_key else state.key,
    }


def _name_optimizer_arrays(opt_state: Any) -> dict[str, Any]:
    """Return the state of the optimizer as nested dictionaries, without the count, which is the iteration."""
    if isinstance(opt_state, CaffeState):
        return {"history": {str(i): tree for i, tree in enumerate(opt_state.history)}}
    tree: dict[str, Any] = {}
    for path, array in jax.tree_util.tree_leaves_with_path(opt_state):
        *parents, name = [jax.tree_util.keystr((key,), simple=True) for key in path]
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = array
    return {_OPTIMIZER: tree}


def check_state(state: TrainState, expected: TrainState) -> None:
    """Raise `SolverError` if a user's state and the expected state have arrays of different names or shapes."""
    if message := find_rule_difference(state.rule, expected.rule):
        problems = [f"it is {message}"]
    elif _describe(state.opt_state) != _describe(expected.opt_state):
        problems = ["its optimizer state belongs to a different solver type"]
    else:
        problems = _find_differences(_flatten(to_arrays(state)), _flatten(to_arrays(expected)), ())
    raise_if_any(SolverError, (f"train_state does not match this solver: {problem}" for problem in problems))


def _describe(opt_state: Any) -> str:
    """Return what the states of equal optimizers have in common, as text."""
    is_caffe = isinstance(opt_state, CaffeState)
    return f"{len(opt_state.history)} slots" if is_caffe else str(jax.tree.structure(opt_state))


@dataclass(frozen=True)
class StateRestorer:
    """Converts the arrays of a checkpoint to a `TrainState`.

    Attributes:
        expected: the shapes and shardings of a state of this solver, which `Placement.abstract_state` returned.
        file: the name of the checkpoint in warnings.
        recurrent_state: the names "layer/name" of the arrays that recurrent layers carry from one batch to the next.
            They start at zero if the batch size has changed.
        blob_names: `Graph.blob_names`, for checkpoints of earlier versions, whose arrays have numbers.
    """

    expected: TrainState
    file: str
    recurrent_state: Collection[str] = ()
    blob_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def restore_target(self, shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the target for each array of a checkpoint, which tells orbax the sharding with which it is restored.

        If an array has the expected shape, its target has the expected shape and sharding. The target of any other
        array, such as the running statistics of each device, is an uninitialised NumPy array.

        Args:
            shapes: the arrays of the checkpoint, or their shapes and dtypes, as nested dictionaries.

        Raises:
            WeightsError: if a layer or an array is missing or unknown, or an array has an unexpected shape. The message
                names the layers, or else each such array.
        """
        expected = _flatten(to_arrays(self.expected))
        flat = self._flatten_stored({name: tree for name, tree in shapes.items() if name != _DEVICE_STATISTICS})
        layers, stored_layers = _layer_names(expected), _layer_names(flat)
        if layers.keys() != stored_layers.keys():
            missing = [name for name in layers if name not in stored_layers]
            unknown = [name for name in stored_layers if name not in layers]
            raise other_net_error("it", missing, unknown)
        names, stored_names = ({n for n in tree if n.startswith(f"{_OPTIMIZER}/")} for tree in (expected, flat))
        if names and stored_names and names != stored_names:
            raise WeightsError(
                "its optimizer state is that of another optax transformation; pass the transformation that wrote it as "
                "optimizer=, or start from the weights alone by weights="
            )
        exempt_names = {f"state/{name}" for name in self.recurrent_state}
        raise_if_any(WeightsError, _find_differences(flat, expected, exempt_names))

        def array_target(name: str, stored: Any) -> Any:
            abstract = expected.get(self._find_name(name))
            matches = abstract is not None and abstract.sharding is not None and abstract.shape == tuple(stored.shape)
            return abstract if matches else np.empty(stored.shape, stored.dtype)

        return _map_arrays(array_target, shapes)

    def to_train_state(self, arrays: Mapping[str, Any]) -> tuple[TrainState, Params | None]:
        """Return the state and the running statistics of each device that a checkpoint's arrays contain.

        The statistics are stacked on axis 0. They are None if the checkpoint does not contain them.
        """
        flat, expected = self._flatten_stored(arrays), _flatten(to_arrays(self.expected))
        for name in (f"state/{name}" for name in self.recurrent_state):
            if name in flat and flat[name].shape != expected[name].shape:
                stored, shape = flat[name].shape, expected[name].shape
                log.warning(
                    "%s: '%s' has shape %s, but %s in the net; it starts at zero", self.file, name, stored, shape
                )
                flat[name] = np.zeros(expected[name].shape, expected[name].dtype)
        tree = _map_arrays(lambda name, _: flat[name], to_arrays(self.expected))
        opt_state: Any
        if isinstance(self.expected.opt_state, CaffeState):
            # a copy, because a step donates both arrays
            opt_state = CaffeState(np.asarray(tree["iteration"]), tuple(tree["history"].values()))  # type: ignore[arg-type]
        else:
            leaves = _flatten(tree[_OPTIMIZER]).values()
            opt_state = jax.tree.unflatten(jax.tree.structure(self.expected.opt_state), leaves)
        key = jax.random.wrap_key_data(tree["key"])
        state = TrainState(tree["params"], tree["state"], opt_state, tree["iteration"], key, self.expected.rule)
        template = {_DEVICE_STATISTICS: self.expected.state}
        names = _flatten(template)
        stored_names = {name for name in flat if name.startswith(f"{_DEVICE_STATISTICS}/")}
        if stored_names != names.keys() or any(flat[name].shape[1:] != b.shape for name, b in names.items()):
            return state, None
        return state, _map_arrays(lambda name, _: flat[name], template)[_DEVICE_STATISTICS]

    def _flatten_stored(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {self._find_name(name): array for name, array in _flatten(arrays).items()}

    def _find_name(self, stored: str) -> str:
        """Return the name of an array, such as "history/0/conv1/weight", whose stored name may end with a number."""
        path, _, number = stored.rpartition("/")
        tree, _, layer = path.partition("/")
        names = self.blob_names.get(layer.partition("/")[2] if tree == "history" else layer, ())
        return f"{path}/{names[int(number)]}" if number.isdecimal() and int(number) < len(names) else stored


def other_net_error(weights: str, missing: Sequence[str], unknown: Sequence[str]) -> WeightsError:
    """Return the error of a snapshot whose layers differ from the net's.

    Args:
        weights: the file with the snapshot's weights, or "it" if the snapshot contains them.
        missing: the names of the net's layers that are missing in the snapshot.
        unknown: the names of the snapshot's layers that are not in the net.
    """
    differences = [f"{_quote_layers(missing)} missing in it"] if missing else []
    differences += [f"its {_quote_layers(unknown)} not in this net"] if unknown else []
    return WeightsError(
        f"this is a snapshot of another net: {', and '.join(differences)}; to fine-tune, pass {weights} as --weights "
        "instead of --snapshot"
    )


def _quote_layers(names: Sequence[str]) -> str:
    quoted = ", ".join(shorten_list([f"'{name}'" for name in names]))
    return f"layer {quoted} is" if len(names) == 1 else f"layers {quoted} are"


def _layer_names(flat: Mapping[str, Any]) -> dict[str, None]:
    names = (name.partition("/")[2].rpartition("/")[0] for name in flat if name.startswith(("params/", "state/")))
    return dict.fromkeys(names)


def _flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    _map_arrays(flat.setdefault, tree)
    return flat


def _map_arrays(function: Callable[[str, Any], Any], tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the tree with each array replaced by `function(path, array)`, where `path` is the keys joined by "/"."""
    return {
        name: _map_arrays(function, value, f"{prefix}{name}/")
        if isinstance(value, Mapping)
        else function(f"{prefix}{name}", value)
        for name, value in tree.items()
    }


def _find_differences(
    stored: Mapping[str, Any], expected: Mapping[str, Any], exempt_names: Collection[str]
) -> list[str]:
    problems = [f"has no '{name}', which this solver needs" for name in expected if name not in stored]
    problems += [f"has '{name}', which this solver does not have" for name in stored if name not in expected]
    problems += [
        f"'{name}' has shape {tuple(stored[name].shape)}, but this solver needs {value.shape}"
        for name, value in expected.items()
        if name in stored and tuple(stored[name].shape) != value.shape and name not in exempt_names
    ]
    return problems
