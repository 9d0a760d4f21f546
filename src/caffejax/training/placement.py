"""Placement of a train state and its batches: on one device, or on a mesh of devices.

One device is not a mesh of one, which would make training slower to start and to run. Measured in processor time (user
and sys) for a LeNet with BatchNorm and batch 16 on a CPU, with the same numbers to the bit, on one device and on a mesh
of one: the first step with programs stored by an earlier process 0.92 and 1.38 s, because the stored step on one device
is loaded without a trace; later steps 5.0 and 5.7 to 6.8 ms. One device also runs layers on the host and batches of
changing shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ..checkpoints.loading import Initializer
from ..data.loader import Loader
from ..errors import SolverError
from ..graph import Graph
from ..net import Net, Params, Variables
from ..options import Shard
from ..parallel import (
    DATA,
    MODEL,
    all_gather,
    check_shapes,
    first_replica,
    gather_to_host,
    join_batches,
    local_share,
    param_shardings,
    place,
    replicated,
    reshard,
    tpu_conv_layout,
    wait_on_cpu,
)
from .train_step import TrainState, abstract_state, init_train_state, iteration_key, stack, train_key
from .update_rules import History, find_history, with_history

Batches = Mapping[str, Any]
Pass = tuple[Params, Params, Batches, jax.Array]


class Placement(Protocol):
    """Places an updater's train state and reads its batches."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices, if there are several."""

    def shardings(self, state: TrainState) -> Any:
        """Return the output shardings of the train state, or None on a single device."""

    def init_variables(self, net: Net, key: jax.Array) -> Variables | Initializer:
        """Return a net's initial variables, or a function that makes those that weight files do not provide."""

    def init_state(
        self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any
    ) -> TrainState:
        """Return the initial train state of these variables, placed."""

    def place(self, state: TrainState) -> TrainState:
        """Place a state that every process has."""

    def abstract_state(self, state: TrainState) -> TrainState:
        """Return the shapes of a placed state as one device would have it; those with shardings are read so."""

    def place_restored(self, state: TrainState, each: Params | None) -> TrainState:
        """Place a state that was read as wanted; `each` is the running statistics of each device, where known."""

    def gather(self, state: TrainState) -> TrainState:
        """Return a placed state as one device would have it, with the first device's running statistics."""

    def variables(self, state: TrainState) -> Variables:
        """Return params and running statistics likewise."""

    def sharded(self, state: TrainState) -> tuple[TrainState, Params | None]:
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
        """Return None: on one device there is no choice."""
        return None

    def init_variables(self, net: Net, key: jax.Array) -> Initializer:
        """Return a function that makes the variables that weight files do not provide."""
        return net.initializer(key)

    def init_state(
        self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any
    ) -> TrainState:
        """Make the state that training starts from, on the device."""
        found: TrainState = jax.device_put(init_train_state(variables, optimizer, key), self._device)
        return found

    def place(self, state: TrainState) -> TrainState:
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

    def abstract_state(self, state: TrainState) -> TrainState:
        """Return the shapes of a state, and where it lies."""
        return abstract_state(state)

    def place_restored(self, state: TrainState, each: Params | None) -> TrainState:
        """Return the state as it was read; what was not, put on the device."""
        return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jax.device_put(x, self._device), state)

    def gather(self, state: TrainState) -> TrainState:
        """Return the state as it is."""
        return state

    def variables(self, state: TrainState) -> Variables:
        """Return params and statistics as they are."""
        return state.variables

    def sharded(self, state: TrainState) -> tuple[TrainState, None]:
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
        self._share = local_share(mesh)
        self._shapes = {name: graph.blobs[name].shape for name in graph.input_names}

    def shardings(self, state: TrainState) -> Any:
        """Return where a state's arrays lie, and in which layout where that is not JAX's."""
        everywhere, each = replicated(self.mesh), NamedSharding(self.mesh, PartitionSpec(DATA))
        slot = param_shardings(state.params, self.mesh, MODEL, *(DATA,) * (self._shard != "none"))
        params, slot = (jax.tree.map(tpu_conv_layout, state.params, cut) for cut in (self._params(state.params), slot))
        others = jax.tree.map(lambda _: everywhere, state.opt_state)
        history = History(tuple(slot for _ in find_history(state.opt_state).history))
        return state.replace(  # type: ignore[attr-defined]
            params=params,
            state=jax.tree.map(lambda _: each, state.state),
            opt_state=with_history(others, history),
            iteration=everywhere,
            key=everywhere,
        )

    def _params(self, params: Params) -> Any:
        return param_shardings(params, self.mesh, MODEL, *(DATA,) * (self._shard == "params"))

    def init_variables(self, net: Net, key: jax.Array) -> Variables:
        """Make a net's first params, cut as they are to be, and its running statistics."""
        return net.init(key, shardings=self._params(jax.eval_shape(net.init, key).params))

    def init_state(
        self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any
    ) -> TrainState:
        """Make the state that training starts from, cut as it is to be."""
        shapes = jax.eval_shape(lambda v: init_train_state(v, optimizer, jax.random.key(0)), variables)
        lying = self.shardings(shapes)
        params = reshard(variables.params, lying.params)
        history = wait_on_cpu(jax.jit(optimizer.init, out_shardings=lying.opt_state)(params))
        return self.place_restored(TrainState(params, variables.state, history, jnp.int32(0), train_key(key)), None)

    def place(self, state: TrainState) -> TrainState:
        """Place a state that every process has; every device has its running statistics."""
        found = place(*self._but_statistics(state))
        return self.place_restored(found.replace(state=state.state), None)

    def abstract_state(self, state: TrainState) -> TrainState:
        """Return the shapes of a state, and how it lies, but for running statistics, which are few."""
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state.state)
        found: TrainState = abstract_state(state).replace(state=one)  # type: ignore[attr-defined]
        return found

    def place_restored(self, state: TrainState, each: Params | None) -> TrainState:
        """Reshard arrays that are not placed yet. Devices without saved statistics use those of other devices."""
        n, of_devices = self._share.of, NamedSharding(self.mesh, PartitionSpec(DATA))

        def of_all(one: Any, some: Any = None) -> jax.Array:
            rows = np.asarray(one)[None] if some is None else np.asarray(some)
            found: jax.Array = place(rows[np.arange(n) % len(rows)], of_devices)
            return found

        statistics = jax.tree.map(of_all, state.state, *(() if each is None else (each,)))
        found: TrainState = reshard(*self._but_statistics(state)).replace(state=statistics)
        return found

    def _but_statistics(self, state: TrainState) -> tuple[Any, Any]:
        """Return a state without them, and where its arrays lie."""
        return state.replace(state={}), self.shardings(state).replace(state={})  # type: ignore[attr-defined]

    def gather(self, state: TrainState) -> TrainState:
        """Return the state as one device would have it; all processes must call it together.

        What lies whole on each device does so still; what is cut comes to the host, as it may not fit one device.
        """
        found: TrainState = gather_to_host(self.sharded(state)[0])
        return found

    def variables(self, state: TrainState) -> Variables:
        """Return params and running statistics likewise; all processes must call it together."""
        found: Variables = gather_to_host(self.sharded(state)[0].variables)
        return found

    def sharded(self, state: TrainState) -> tuple[TrainState, Params]:
        """Return the state likewise, but as it lies, and the running statistics of each device."""
        return state.replace(state=first_replica(state.state, self.mesh)), state.state  # type: ignore[attr-defined]

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
        each, same = (jax.tree.map(np.asarray, all_gather(found)) for found in blobs)
        return {**same, **{name: blob.reshape(-1, *blob.shape[2:]) for name, blob in each.items()}}

    def passes(self, state: TrainState, batches: Batches, passes: int) -> Iterator[Pass]:
        """Yield what each pass of the next update is given, one device of this process after the other."""
        params = all_gather(state.params)
        for row in range(self._share.first, self._share.first + self._share.count):
            device = next(d for d in np.ravel(self.mesh.devices[row]) if d.process_index == jax.process_index())

            def here(array: jax.Array, axis: int | None = None, device: jax.Device = device) -> jax.Array:
                (found,) = (s.data for s in array.addressable_shards if s.device == device)
                return found if axis is None else jnp.squeeze(found, axis)

            own = jax.tree.map(here, params), jax.tree.map(lambda x: here(x, 0), state.state)
            key = jax.random.wrap_key_data(here(jax.random.key_data(state.key)))
            key = jax.random.fold_in(jax.random.fold_in(key, here(state.iteration)), row)
            yield from passes_of(*own, {name: here(x, 1) for name, x in batches.items()}, key, passes)
