"""Where training runs: what lies where, and which batches are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding

from ..data.loader import Loader
from ..errors import SolverError
from ..net import Net, Params, Variables
from ..parallel import place, replicated
from .train_step import TrainState, as_shapes, iteration_key, stack, start_of

Batches = Mapping[str, Any]
Pass = tuple[Params, Params, Batches, jax.Array]


class Placement(Protocol):
    """Where an updater keeps what it trains, and how it comes by batches."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices, if there are several."""

    def shardings(self, state: TrainState) -> Any:
        """Return where a state's arrays lie, for a compiled step to leave them so; None if there is no choice."""

    def start(self, net: Net, key: jax.Array) -> Variables:
        """Make a net's first params where they are to lie, and its running statistics."""

    def started(self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any) -> TrainState:
        """Make the state that training starts from, of such params and statistics."""

    def placed(self, state: TrainState) -> TrainState:
        """Place a state that every process has."""

    def wanted(self, state: TrainState) -> TrainState:
        """Return the shapes of a placed state as one device would have it; those with shardings are read so."""

    def restored(self, state: TrainState, each: Params | None) -> TrainState:
        """Place a state that was read as wanted; `each` is the running statistics of each device, where known."""

    def whole(self, state: TrainState) -> TrainState:
        """Return a placed state as one device would have it, with the first device's running statistics."""

    def variables(self, state: TrainState) -> Variables:
        """Return params and running statistics likewise."""

    def cut(self, state: TrainState) -> tuple[TrainState, Params | None]:
        """Return a placed state likewise, but as it lies; and the running statistics of each of several devices."""

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
        self._batches: jax.Device | NamedSharding = device

    def shardings(self, state: TrainState) -> None:
        """There is no choice."""
        return None

    def start(self, net: Net, key: jax.Array) -> Variables:
        """Make a net's first variables."""
        return net.init(key)

    def started(self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any) -> TrainState:
        """Make the state that training starts from, on the device."""
        found: TrainState = jax.device_put(start_of(variables, optimizer, key), self._device)
        return found

    def placed(self, state: TrainState) -> TrainState:
        """Return the state as it lies: on the device, or where somebody has put it, such as cut over several.

        One that lies whole on each of several, or on the host, as that of a solver of several devices does, is copied
        to the device.

        Raises:
            SolverError: if it is cut in a way that XLA cannot go on with by itself.
        """
        leaves = jax.tree.leaves(state)
        arrays = [x for x in leaves if isinstance(x, jax.Array)]
        cut = {x.sharding for x in arrays if not x.is_fully_replicated}
        found: TrainState
        if cut:
            self._batches = replicated(_mesh_of(cut))
            found = jax.tree.map(lambda x: x if getattr(x, "sharding", 0) in cut else place(x, self._batches), state)
            return found
        self._batches = self._device
        if len(arrays) == len(leaves) and all(len(x.sharding.device_set) == 1 for x in arrays):
            return state
        found = place(state, SingleDeviceSharding(self._device))
        return found

    def wanted(self, state: TrainState) -> TrainState:
        """Return the shapes of a state, and where it lies."""
        return as_shapes(state)

    def restored(self, state: TrainState, each: Params | None) -> TrainState:
        """Return the state as it was read; what was not, put on the device."""
        return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jax.device_put(x, self._device), state)

    def whole(self, state: TrainState) -> TrainState:
        """Return the state as it is."""
        return state

    def variables(self, state: TrainState) -> Variables:
        """Return params and statistics as they are."""
        return state.variables

    def cut(self, state: TrainState) -> tuple[TrainState, None]:
        """Return the state as it is."""
        return state, None

    def read(self, loader: Loader, passes: int) -> list[dict[str, Any]]:
        """Read the batches of an iteration."""
        return [stack([next(loader) for _ in range(passes)])]

    def put(self, batches: Sequence[Batches], axis: int = 1) -> dict[str, jax.Array]:
        """Put the batches on the device, or on those that the state is cut over."""
        (only,) = batches
        found: dict[str, jax.Array] = jax.device_put(dict(only), self._batches)
        return found

    def outputs(self, blobs: Any) -> dict[str, np.ndarray]:
        """Return a step's outputs."""
        return {name: np.asarray(blob) for name, blob in blobs.items()}

    def passes(self, state: TrainState, batches: Batches, passes: int) -> Iterator[Pass]:
        """Yield what each pass of the next update is given."""
        yield from passes_of(state.params, state.state, batches, iteration_key(state), passes)


def _mesh_of(shardings: Collection[jax.sharding.Sharding]) -> Mesh:
    """Return the mesh that arrays are cut over; raise `SolverError` unless it is one, and left to XLA."""
    found = {s.mesh for s in shardings if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)}
    if len(found) == 1 == len({type(s) for s in shardings}):
        (mesh,) = found
        if all(kind == AxisType.Auto for kind in mesh.axis_types):
            return mesh
    raise SolverError(
        "a state that is cut over devices must be so over one mesh, with axes of AxisType.Auto; or make the solver "
        "with devices="
    )


def passes_of(params: Params, state: Params, batches: Batches, key: jax.Array, passes: int) -> Iterator[Pass]:
    """Yield what each of so many passes is given, on one device."""
    for i in range(passes):
        yield params, state, {name: array[i] for name, array in batches.items()}, jax.random.fold_in(key, i)
