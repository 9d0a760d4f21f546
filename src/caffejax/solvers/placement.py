"""Where training runs: what lies where, and which batches are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ..data.loader import Loader
from ..graph import Graph
from ..net import Params, Variables
from ..options import Shard
from ..parallel import (
    DATA,
    MODEL,
    check_shapes,
    cut_params,
    first_rows,
    join_batches,
    place,
    replicated,
    share_of,
    whole,
    whole_on_host,
)
from .rules import History, find_history, with_history
from .state import TrainState, iteration_key, stack

Batches = Mapping[str, Any]
Pass = tuple[Params, Params, Batches, jax.Array]


class Placement(Protocol):
    """Where an updater keeps what it trains, and how it comes by batches."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices, if there are several."""

    def shardings(self, state: TrainState) -> Any:
        """Return where a state's arrays lie, for a compiled step to leave them so; None if there is no choice."""

    def placed(self, state: TrainState, each: Params | None = None) -> TrainState:
        """Place a state that every process has; `each` is the running statistics of each device, as `each` gives it."""

    def whole(self, state: TrainState) -> TrainState:
        """Return a placed state as one device would have it, with the first device's running statistics."""

    def variables(self, state: TrainState) -> Variables:
        """Return params and running statistics likewise."""

    def each(self, state: TrainState) -> Params | None:
        """Return the running statistics of each device, with a first axis of the devices; None of one device."""

    def read(self, loader: Loader, passes: int) -> list[dict[str, Any]]:
        """Read the batches of an iteration, those of each of this process's devices stacked as `stack` does."""

    def put(self, batches: Sequence[Batches], axis: int = 1) -> dict[str, jax.Array]:
        """Place what was read; `axis` counts the axes in front of a batch's own."""

    def outputs(self, blobs: Any) -> dict[str, np.ndarray]:
        """Return a step's outputs as one device would have them of all batches joined."""

    def passes(self, state: TrainState, batches: Batches, passes: int) -> Iterator[Pass]:
        """Yield what each pass of the next update is given on each of this process's devices."""


class OnDevice:
    """Training on one device."""

    mesh: Mesh | None = None

    def __init__(self, device: jax.Device) -> None:
        self._device = device

    def shardings(self, state: TrainState) -> None:
        """There is no choice."""
        return None

    def placed(self, state: TrainState, each: Params | None = None) -> TrainState:
        """Return the state as it lies: on the device, or where somebody has put it, such as cut over several.

        One that lies whole on each of several, or on the host, as that of a solver of several devices does, is copied
        to the device.
        """
        leaves = jax.tree.leaves(state)
        arrays = [x for x in leaves if isinstance(x, jax.Array)]
        cut = any(not x.is_fully_replicated for x in arrays)
        if cut or (len(arrays) == len(leaves) and all(len(x.sharding.device_set) == 1 for x in arrays)):
            return state
        found: TrainState = place(state, SingleDeviceSharding(self._device))
        return found

    def whole(self, state: TrainState) -> TrainState:
        """Return the state as it is."""
        return state

    def variables(self, state: TrainState) -> Variables:
        """Return params and statistics as they are."""
        return state.variables

    def each(self, state: TrainState) -> None:
        """Return None: there is but one device."""
        return None

    def read(self, loader: Loader, passes: int) -> list[dict[str, Any]]:
        """Read the batches of an iteration."""
        return [stack([next(loader) for _ in range(passes)])]

    def put(self, batches: Sequence[Batches], axis: int = 1) -> dict[str, jax.Array]:
        """Put the batches on the device."""
        (only,) = batches
        found: dict[str, jax.Array] = jax.device_put(dict(only), self._device)
        return found

    def outputs(self, blobs: Any) -> dict[str, np.ndarray]:
        """Return a step's outputs."""
        return {name: np.asarray(blob) for name, blob in blobs.items()}

    def passes(self, state: TrainState, batches: Batches, passes: int) -> Iterator[Pass]:
        """Yield what each pass of the next update is given."""
        yield from _passes(state.params, state.state, batches, iteration_key(state), passes)


class OnMesh:
    """Training on a mesh of devices, each row of which takes a batch of its own.

    Args:
        mesh: the devices.
        graph: the train net's.
        shard: what is cut over the rows; see `Parallel`.
    """

    def __init__(self, mesh: Mesh, graph: Graph, shard: Shard = "none") -> None:
        self.mesh = mesh
        self._shard = shard
        self._share = share_of(mesh)
        self._shapes = {name: graph.blobs[name].shape for name in graph.fed}

    def shardings(self, state: TrainState) -> Any:
        """Return where a state's arrays lie."""
        everywhere, each = replicated(self.mesh), NamedSharding(self.mesh, PartitionSpec(DATA))
        params = cut_params(state.params, self.mesh, MODEL, *(DATA,) * (self._shard == "params"))
        slot = cut_params(state.params, self.mesh, MODEL, *(DATA,) * (self._shard != "none"))
        others = jax.tree.map(lambda _: everywhere, state.opt_state)
        history = History(tuple(slot for _ in find_history(state.opt_state).history))
        return state.replace(  # type: ignore[attr-defined]
            params=params,
            state=jax.tree.map(lambda _: each, state.state),
            opt_state=with_history(others, history),
            iteration=everywhere,
            key=everywhere,
        )

    def placed(self, state: TrainState, each: Params | None = None) -> TrainState:
        """Place a state that every process has; devices without statistics of their own go on with those of others."""
        n = self._share.of

        def of_all(one: Any, some: Any = None) -> np.ndarray:
            rows = np.asarray(one)[None] if some is None else np.asarray(some)
            return rows[np.arange(n) % len(rows)]

        statistics = jax.tree.map(of_all, state.state, *(() if each is None else (each,)))
        spread: TrainState = state.replace(state=statistics)  # type: ignore[attr-defined]
        found: TrainState = place(spread, self.shardings(state))
        return found

    def whole(self, state: TrainState) -> TrainState:
        """Return the state as one device would have it; all processes must call it together.

        What lies whole on each device does so still; what is cut comes to the host, as it may not fit one device.
        """
        found: TrainState = whole_on_host(state.replace(state=first_rows(state.state, self.mesh)))  # type: ignore[attr-defined]
        return found

    def variables(self, state: TrainState) -> Variables:
        """Return params and running statistics likewise; all processes must call it together."""
        return Variables(whole(state.params), first_rows(state.state, self.mesh))

    def each(self, state: TrainState) -> Params:
        """Return the running statistics of each device; all processes must call it together."""
        found: Params = whole(state.state)
        return found

    def read(self, loader: Loader, passes: int) -> list[dict[str, Any]]:
        """Read the batches of an iteration, of each pass one for each of this process's devices.

        Raises:
            DataError: also for a batch of another shape than the net's: devices that train together need one shape.
        """
        read = [loader.take(self._share.of) for _ in range(passes)]
        for batch in (batch for of_pass in read for batch in of_pass):
            check_shapes(batch, self._shapes)
        return [stack([of_pass[row] for of_pass in read]) for row in range(self._share.count)]

    def put(self, batches: Sequence[Batches], axis: int = 1) -> dict[str, jax.Array]:
        """Put each device's batches on it."""
        return join_batches(self.mesh, batches, axis)

    def outputs(self, blobs: Any) -> dict[str, np.ndarray]:
        """Return a step's outputs: rows of all devices, and what is the same on all. All processes must call it."""
        each, same = (jax.tree.map(np.asarray, whole(found)) for found in blobs)
        return {**same, **{name: blob.reshape(-1, *blob.shape[2:]) for name, blob in each.items()}}

    def passes(self, state: TrainState, batches: Batches, passes: int) -> Iterator[Pass]:
        """Yield what each pass of the next update is given, one device of this process after the other."""
        params = whole(state.params)
        for row in range(self._share.first, self._share.first + self._share.count):
            device = next(d for d in np.ravel(self.mesh.devices[row]) if d.process_index == jax.process_index())

            def here(array: jax.Array, axis: int | None = None, device: jax.Device = device) -> jax.Array:
                (found,) = (s.data for s in array.addressable_shards if s.device == device)
                return found if axis is None else jnp.squeeze(found, axis)

            own = jax.tree.map(here, params), jax.tree.map(lambda x: here(x, 0), state.state)
            key = jax.random.wrap_key_data(here(jax.random.key_data(state.key)))
            key = jax.random.fold_in(jax.random.fold_in(key, here(state.iteration)), row)
            yield from _passes(*own, {name: here(x, 1) for name, x in batches.items()}, key, passes)


def _passes(params: Params, state: Params, batches: Batches, key: jax.Array, passes: int) -> Iterator[Pass]:
    for i in range(passes):
        yield params, state, {name: array[i] for name, array in batches.items()}, jax.random.fold_in(key, i)
