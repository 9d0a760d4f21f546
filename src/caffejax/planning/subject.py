"""What is compiled for a target: the step that a solver runs on such devices, or a forward pass."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import CaffejaxError, GraphError, Problem
from ..net import Net
from ..options import Parallel
from ..parallel import DATA, mesh_of, replicated
from ..schema.caffe_pb2 import SolverParameter
from ..sizes import counted
from ..summary import multiply_adds
from ..training.build import optimizer_of, run_on
from ..training.on_mesh import OnMesh
from ..training.train_step import TrainState, make_step, start_of
from .devices import devices
from .program import Program, program_of
from .result import Plan
from .targets import Target

# as libtpu's versions say it: how much is used of how much, or how much the temporaries alone would take
_TOO_MUCH = re.compile(r"(?:Used |required for [^()]*\()(?P<n>[\d.]+)(?P<unit>[KMGT]?)\b")


@dataclass
class Subject:
    """What is compiled, for any batch."""

    net: Net
    target: Target
    solver: SolverParameter
    parallel: Parallel
    batch_axis: int
    progress: Callable[[str], None]
    mesh: Mesh = field(init=False)

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise GraphError([Problem(p, file=self.net.graph.file) for p in problems])
        self.mesh = mesh_of(devices(self.target), self.parallel.model)
        if self.training:
            self.net.graph.check_backward()
            self.net = self.net.with_run(run_on(self.mesh, self.net.run))

    def _problems(self) -> Iterator[str]:
        graph, axis = self.net.graph, self.batch_axis
        on_host = [layer.name for layer in graph.layers if layer.type.on_host]
        if on_host:
            yield f"has layers that run on the host, of which no other machine knows: {', '.join(on_host)}"
        if not graph.fed:
            yield "has no Input or data layers: there is no batch to cut over devices"
        short = [name for name in graph.fed if len(graph.blobs[name].shape) <= axis]
        if short:
            yield f"has no axis {axis} of examples in what it is fed as {', '.join(short)}"
        if not self.training and len(self._sizes) > 1:
            yield self._several_sizes()
        if not self.training and self.parallel != Parallel():
            yield "is planned for a forward pass: how devices are arranged and what they share is of training"

    @property
    def _sizes(self) -> list[int]:
        """How many there are along the axis of examples of what the net is fed; more than one, where it is boxes."""
        shapes = [self.net.graph.blobs[name].shape for name in self.net.graph.fed]
        return sorted({shape[self.batch_axis] for shape in shapes if len(shape) > self.batch_axis})

    def _several_sizes(self) -> str:
        return (
            f"is fed batches of several sizes, {self._sizes}, along axis {self.batch_axis}: name another axis, or "
            "plan a training step for its own batch, with --largest none"
        )

    def check_batches(self) -> None:
        """Raise `GraphError` unless the net can be compiled for other batches than its own."""
        if len(self._sizes) > 1:
            raise GraphError([Problem(self._several_sizes(), file=self.net.graph.file)])

    @property
    def training(self) -> bool:
        """Whether it is a training step."""
        return self.net.graph.phase == "TRAIN"

    @property
    def own_batch(self) -> int:
        """How many examples each device takes by the net's own numbers."""
        given, rows = int(self.net.graph.blobs[self.net.fed[0]].shape[self.batch_axis]), self.mesh.shape[DATA]
        if self.parallel.batch == "device":
            return given
        if given % rows:
            raise CaffejaxError(f"a batch of {given} examples cannot be shared out among {rows}; make it a multiple")
        return given // rows

    def plan(self, batch: int) -> Plan:
        """Compile it for so many examples a device."""
        self.progress(f"compiling for {self.target}, {counted(batch, 'example')} a device")
        function, arguments, options = self.function(batch)
        # on several devices a training step is written for one, or one row of them
        sharing = self.parallel.model if self.training else self.target.devices
        operations = 2 * multiply_adds(function, *arguments, padding=False) // sharing
        began = time.perf_counter()
        program, needed = self._compiled(jax.jit(function, **options).lower(*arguments))
        seconds = round(time.perf_counter() - began, 1)
        precision, phase, model = self.net.run.precision, self.net.graph.phase, self.parallel.model
        return Plan(self.target, precision, phase, batch, program, needed, operations, seconds, model)

    def function(self, batch: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return what is compiled for so many examples a device, what it is given, and the options of `jax.jit`."""
        key = jax.eval_shape(jax.random.key, 0)
        if not self.training:
            net = self.net.with_batch(batch * self.target.devices, self.batch_axis)
            variables = jax.eval_shape(net.init, key)
            run = lambda params, state, inputs, key: net.apply(params, state, inputs, key=key)  # noqa: E731
            fed = self._fed(net, (), PartitionSpec(*(None,) * self.batch_axis, DATA))
            return run, (*_laid(tuple(variables), self._everywhere), fed, _laid(key, self._everywhere)), {}
        net = self.net if len(self._sizes) > 1 else self.net.with_batch(batch, self.batch_axis)
        optimizer, passes = optimizer_of(self.solver, net), self.solver.iter_size
        start = jax.eval_shape(lambda key: start_of(net.init(key), optimizer, key), key)
        rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=self._everywhere)
        if self.target.devices == 1:
            fed = self._fed(net, (passes,), PartitionSpec())
            step = make_step(net, optimizer, passes)
            return step, (_laid(start, self._everywhere), fed, rate), {"donate_argnums": 0}
        laid, shardings = _on_mesh(start, net, self.mesh, self.parallel)
        fed = self._fed(net, (passes, self.mesh.shape[DATA]), PartitionSpec(None, DATA))
        step = make_step(net, optimizer, passes, mesh=self.mesh, parallel=self.parallel)
        return step, (laid, fed, rate), {"donate_argnums": 0, "out_shardings": (shardings, None)}

    @property
    def _everywhere(self) -> NamedSharding:
        return replicated(self.mesh)

    def _compiled(self, lowered: jax.stages.Lowered) -> tuple[Program | None, int]:
        try:
            program = program_of(lowered.compile())
        except jax.errors.JaxRuntimeError as error:
            needed = needed_by(str(error))
            if needed is None:
                line = next(iter(str(error).splitlines()), "")
                raise CaffejaxError(f"the compiler of {self.target} fails: {line[:300]}") from error
            return None, needed
        return program, program.memory

    def _fed(self, net: Net, ahead: tuple[int, ...], spec: PartitionSpec) -> dict[str, jax.ShapeDtypeStruct]:
        """Return what the net is fed, as its sources give it, with these axes ahead."""
        dtypes = {name: net.graph.blobs[name].dtype for name in net.fed}
        for layer in net.graph.layers:
            if layer.look is not None and layer.look.given is not None:
                dtypes |= {top: given.dtype for top, given in zip(layer.tops, layer.look.given, strict=True)}
        shapes = {name: (*ahead, *net.graph.blobs[name].shape) for name in dtypes}
        sharding = NamedSharding(self.mesh, spec)
        return {name: jax.ShapeDtypeStruct(shapes[name], dtype, sharding=sharding) for name, dtype in dtypes.items()}


def _on_mesh(start: TrainState, net: Net, mesh: Mesh, parallel: Parallel) -> tuple[TrainState, Any]:
    """Return a state as it lies on a mesh, and where: each row has running statistics of its own."""
    shardings = OnMesh(mesh, net.graph, parallel.shard).shardings(start)
    of_rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((mesh.shape[DATA], *x.shape), x.dtype), start.state)
    spread = start.replace(state=of_rows)  # type: ignore[attr-defined]
    return jax.tree.map(_placed, spread, shardings), shardings


def _laid(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda x: _placed(x, sharding), tree)


def _placed(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def needed_by(message: str) -> int | None:
    """Return the bytes that a compiler says are too many; None if it says something else."""
    found = _TOO_MUCH.search(message) if "RESOURCE_EXHAUSTED" in message else None
    return None if found is None else int(float(found["n"]) * 1024 ** " KMGT".index(found["unit"] or " "))
