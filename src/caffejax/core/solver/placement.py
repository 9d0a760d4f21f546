"""Placement of a train state and its batches on a mesh of devices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ...base.config import Shard
from ...base.errors import SolverError, shorten_list
from ...base.variables import Params, Variables
from ..checkpoints.load_save import Initializer
from ..data.loader import Loader
from ..graph import Graph
from ..layers.row_padding import PaddedRows, pad_alike
from ..parallel.global_arrays import (
    all_gather,
    check_shapes,
    first_replica,
    join_batches,
    put_global,
    replicated_sharding,
    reshard,
    wait_on_cpu,
)
from ..parallel.mesh import DATA, MODEL, local_shard, param_shardings, tpu_conv_layout
from ..program.net import Net
from .caffe_optimizer import find_blobs
from .debug_info import Pass
from .train_step import TrainState, init_train_state, stack_batches, train_key

Batches = Mapping[str, Any]


class Placement:
    """Placement of a train state and its batches on a mesh of devices of one or several processes.

    In each pass, each row of the mesh processes a separate batch. With several rows, running statistics have a first
    axis, the rows. On one device, arrays have neither the axis nor shardings of a mesh: with both, each step of a LeNet
    took 0.7 to 1.8 ms longer on a CPU, and the first one 0.46 s.

    Args:
        mesh: the devices.
        graph: the train net's graph.
        shard: the arrays to shard over the rows: "none", "optimizer" for the optimizer's history, or "params" for the
            history and the parameters; see `Parallel`.
    """

    def __init__(self, mesh: Mesh, graph: Graph, shard: Shard = "none") -> None:
        self.mesh = mesh
        self._shard = shard
        self._rows = local_shard(mesh)
        self._shapes = {name: graph.blobs[name].shape for name in graph.input_names}
        self._user_sharding: NamedSharding | None = None  # of batches, if the user has sharded the state of one device

    @property
    def is_one_device(self) -> bool:
        """True if the mesh has one device."""
        return self.mesh.size == 1

    @property
    def has_rows(self) -> bool:
        """True if the mesh has several rows, so that statistics and outputs of a step have an axis of rows."""
        return self._rows.total > 1

    def shardings(self, state: TrainState) -> Any:
        """Return a state that contains the sharding of each array instead of the array.

        For arrays for which JAX's default memory layout is slow, it contains the sharding and the layout. The result is
        None on one device, which a step does not leave.
        """
        if self.is_one_device:
            return None
        replicated = replicated_sharding(self.mesh)
        statistics = NamedSharding(self.mesh, PartitionSpec(DATA)) if self.has_rows else replicated
        history_shardings = param_shardings(state.params, self.mesh, MODEL, *(DATA,) * (self._shard != "none"))
        params, history_shardings = (
            jax.tree.map(tpu_conv_layout, state.params, shardings)
            for shardings in (self._param_shardings(state.params), history_shardings)
        )
        # arrays of the optimizer's state that belong to a parameter have the shape and the path of its array
        table = {
            (layer, str(key)): (blob.shape, history_shardings[layer][key])
            for layer, blobs in state.params.items()
            for key, blob in blobs.items()
        }
        tree: Any
        leaves, tree = jax.tree.flatten(state.opt_state)
        matches = [match for _, match in find_blobs(state.opt_state, table)]
        opt_shardings = [
            match[1] if match is not None and match[0] == leaf.shape else replicated
            for leaf, match in zip(leaves, matches, strict=True)
        ]
        return state.replace(
            params=params,
            state=jax.tree.map(lambda _: statistics, state.state),
            opt_state=tree.unflatten(opt_shardings),
            iteration=replicated,
            key=replicated,
        )

    def _param_shardings(self, params: Params) -> Any:
        return param_shardings(params, self.mesh, MODEL, *(DATA,) * (self._shard == "params"))

    def init_variables(self, net: Net, key: jax.Array) -> Variables | Initializer:
        """Return a net's initial variables, with parameters that are sharded over the mesh.

        On one device the result is a function that creates those that no weights file contains.
        """
        if self.is_one_device:
            return net.initializer(key)
        return net.init(key, shardings=self._param_shardings(jax.eval_shape(net.init, key).params))

    def init_state(
        self, variables: Variables, optimizer: optax.GradientTransformationExtraArgs, key: Any
    ) -> TrainState:
        """Return the initial train state on the devices."""
        if self.is_one_device:
            return self.place_restored(init_train_state(variables, optimizer, key), None)
        shapes = jax.eval_shape(lambda v: init_train_state(v, optimizer, jax.random.key(0)), variables)
        shardings = self.shardings(shapes)
        params = reshard(variables.params, shardings.params)
        opt_state = wait_on_cpu(jax.jit(optimizer.init, out_shardings=shardings.opt_state)(params))
        state = TrainState(params, variables.state, opt_state, jnp.int32(0), train_key(key), shapes.rule)
        return self.place_restored(state, None)

    def place_state(self, state: TrainState) -> TrainState:
        """Return a state that the user has set, with the same running statistics in each row of the mesh.

        Every process must pass the same state. It is copied, because steps donate the memory of their state, unless the
        user has sharded it over several devices for a solver of one device.

        Raises:
            SolverError: if the state of a solver of one device is sharded in a way that XLA cannot partition
                automatically.
        """
        if not self.is_one_device:
            sharded_state = put_global(*self._split_off_statistics(state))
            return self.place_restored(sharded_state.replace(state=state.state), None)
        arrays = [x for x in jax.tree.leaves(state) if isinstance(x, jax.Array)]
        shardings = {x.sharding for x in arrays if not x.is_fully_replicated}
        self._user_sharding = replicated_sharding(_find_mesh(shardings)) if shardings else None
        sharding = self._user_sharding or replicated_sharding(self.mesh)
        placed_state: TrainState = jax.tree.map(
            lambda x: x if getattr(x, "sharding", 0) in shardings else put_global(x, sharding), state
        )
        return placed_state

    def abstract_state(self, state: TrainState) -> TrainState:
        """Return a state's shapes and dtypes, with the shardings that arrays get when a checkpoint is restored.

        The key is replaced by its uint32 data. Running statistics have the shapes of one row, without the axis of rows.
        With several rows they have no shardings, because they are small.
        """
        shapes: TrainState = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None)),
            state.replace(key=jax.random.key_data(state.key)),
        )
        if not self.has_rows:
            return shapes
        return shapes.replace(state=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state.state))

    def place_restored(self, state: TrainState, row_statistics: Params | None) -> TrainState:
        """Return a restored state, which has the shapes of `abstract_state`, placed on the mesh.

        All arrays are committed to their devices, as the initial state and the state after each step are, so the step
        is compiled only once.

        Args:
            state: the state.
            row_statistics: the running statistics of each row of the mesh, or None if the snapshot does not contain
                them. If it contains the statistics of fewer rows, they are repeated.
        """
        if self.is_one_device:
            device = self.mesh.devices.item()
            return jax.tree.map(
                lambda x: x if isinstance(x, jax.Array) and x.committed else jax.device_put(x, device), state
            )
        if not self.has_rows:
            return reshard(state, self.shardings(state))
        n, row_sharding = self._rows.total, NamedSharding(self.mesh, PartitionSpec(DATA))

        def place_rows(first: Any, saved_rows: Any = None) -> Any:
            rows = np.asarray(first)[None] if saved_rows is None else np.asarray(saved_rows)
            return put_global(rows[np.arange(n) % len(rows)], row_sharding)

        statistics = jax.tree.map(place_rows, state.state, *(() if row_statistics is None else (row_statistics,)))
        restored_state: TrainState = reshard(*self._split_off_statistics(state)).replace(state=statistics)
        return restored_state

    def _split_off_statistics(self, state: TrainState) -> tuple[Any, Any]:
        return state.replace(state={}), self.shardings(state).replace(state={})

    def split_statistics(self, state: TrainState) -> tuple[TrainState, Params | None]:
        """Return the state with the first row's running statistics, and the running statistics of all rows.

        The arrays of the state stay sharded. The running statistics of all rows are stacked on axis 0. With one row
        they are None.
        """
        if not self.has_rows:
            return state, None
        return state.replace(state=first_replica(state.state, self.mesh)), state.state

    def read_batches(self, loader: Loader, num_passes: int) -> list[dict[str, Any]]:
        """Read the batches of an iteration: in each pass, one batch for each row of devices in this process.

        Returns:
            For each row of devices in this process, the batches of all passes, stacked by `stack_batches` on axis 0.

        Raises:
            DataError: if a batch cannot be read or, with several devices, if its shape differs from the net's.
        """
        batches = pad_alike([batch for _ in range(num_passes) for batch in loader.take(self._rows.total)])
        for batch in batches if not self.is_one_device else ():
            check_shapes({name: x for name, x in batch.items() if not isinstance(x, PaddedRows)}, self._shapes)
        return [stack_batches(batches[row :: self._rows.count]) for row in range(self._rows.count)]

    def put_batches(self, batches: Sequence[Batches], axis: int = 1) -> dict[str, Any]:
        """Return batches from `read_batches` as a step's arguments, as JAX arrays sharded over the rows of the mesh.

        On one device they stay NumPy arrays, which the call of a compiled step copies faster than `jax.device_put`.

        Args:
            batches: the batches of each row of devices in this process.
            axis: the number of axes before the axes of a batch: 1 (passes), or 2 (steps and passes).
        """
        if not self.is_one_device:
            return join_batches(self.mesh, batches, axis)
        only = dict(batches[0])
        return only if self._user_sharding is None else jax.device_put(only, self._user_sharding)

    def gather_outputs(self, blobs: Any) -> dict[str, np.ndarray]:
        """Return a step's outputs as NumPy arrays, with the examples of all rows concatenated on axis 0.

        All processes must call it together.
        """
        blobs = jax.tree.map(np.asarray, all_gather(blobs))
        device_outputs, replicated_outputs = blobs if self.has_rows else ({}, blobs)
        return {**replicated_outputs, **{name: _join_rows(blob) for name, blob in device_outputs.items()}}

    def iterate_passes(self, state: TrainState, batches: Batches, num_passes: int) -> Iterator[Pass]:
        """Yield `(params, state, batch, key)` of each pass of the next update, for each row of this process."""
        if not self.has_rows:
            key = jax.random.fold_in(state.key, state.iteration)
            yield from _make_pass_arguments(state.params, state.state, batches, key, range(num_passes))
            return
        params = all_gather(state.params)
        for row in range(self._rows.first, self._rows.first + self._rows.count):
            device = next(d for d in np.ravel(self.mesh.devices[row]) if d.process_index == jax.process_index())

            def local_data(array: jax.Array, axis: int | None = None, device: jax.Device = device) -> jax.Array:
                (data,) = (s.data for s in array.addressable_shards if s.device == device)
                return data if axis is None else jnp.squeeze(data, axis)

            variables = jax.tree.map(local_data, params), jax.tree.map(lambda x: local_data(x, 0), state.state)
            key = jax.random.wrap_key_data(local_data(jax.random.key_data(state.key)))
            key = jax.random.fold_in(key, local_data(state.iteration))
            row_batches = {name: local_data(x, 1) for name, x in batches.items()}
            pass_numbers = range(row, row + num_passes * self._rows.total, self._rows.total)
            yield from _make_pass_arguments(*variables, row_batches, key, pass_numbers)


def _make_pass_arguments(
    params: Params, state: Params, batches: Batches, key: jax.Array, pass_numbers: Sequence[int]
) -> Iterator[Pass]:
    """Yield the net's arguments in each pass of an update; passes are counted over all rows of the mesh."""
    for i, number in enumerate(pass_numbers):
        yield params, state, {name: array[i] for name, array in batches.items()}, jax.random.fold_in(key, number)


def _join_rows(blob: Any) -> np.ndarray:
    """Return a blob of all rows of the mesh, (rows, examples, ...), as (examples, ...), without rows of padding."""
    if isinstance(blob, PaddedRows):
        return np.concatenate([np.asarray(blob[i]) for i in range(len(blob.num_rows))])
    return np.reshape(blob, (-1, *blob.shape[2:]))


def _find_mesh(shardings: Collection[jax.sharding.Sharding]) -> Mesh:
    meshes = {s.mesh for s in shardings if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)}
    if len(meshes) == 1 == len({type(s) for s in shardings}):
        (mesh,) = meshes
        if all(axis_type == AxisType.Auto for axis_type in mesh.axis_types):
            return mesh
    shardings_text = ", ".join(shorten_list(sorted(str(getattr(s, "mesh", s)) for s in shardings)))
    raise SolverError(
        "the arrays of a sharded state must be on one mesh whose axes are all AxisType.Auto, or the solver must be "
        f"created with devices=; the state is sharded over {shardings_text}"
    )
