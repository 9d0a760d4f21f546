"""Compile a training step or a forward pass for a target, and estimate its memory, time and scaling."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..config import Parallel
from ..errors import CaffejaxError, GraphError, Problem
from ..human_readable import format_count
from ..net import Net
from ..parallel import DATA, make_mesh, replicated_sharding
from ..schema.caffe_pb2 import SolverParameter
from ..summary import multiply_adds
from ..training.build_trainer import config_for_mesh, optimizer_of
from ..training.placement import MeshPlacement
from ..training.train_step import TrainState, init_train_state, make_step
from .hardware import Chip, Target, devices
from .hlo import Collective, ProgramStats, compiled_stats

FORWARD = 1 / 3  # of a step, without gradients to add up: a backward pass takes as long as two forward passes


@dataclass(frozen=True)
class ScalingEstimate:
    """The estimated time of a training step on a larger number of devices, with the same computation for each device.

    Attributes:
        devices: number of devices.
        compute_seconds: minimum seconds of each device's computation.
        collectives: minimum seconds of collectives, over links and over the network.
    """

    devices: int
    compute_seconds: float
    collectives: float

    @property
    def best(self) -> float:
        """The seconds of a step if collectives overlap the backward pass."""
        return max(self.compute_seconds, FORWARD * self.compute_seconds + self.collectives)

    @property
    def worst(self) -> float:
        """The seconds of a step if collectives follow the backward pass."""
        return self.compute_seconds + self.collectives

    @property
    def efficiency(self) -> tuple[float, float]:
        """The parallel efficiency, compute time divided by step time, at worst and at best."""
        return self.compute_seconds / self.worst, self.compute_seconds / self.best


def scale_step(
    compute_seconds: float, collectives: Iterable[Collective], chip: Chip, rows: int, model: int = 1
) -> ScalingEstimate:
    """Return the time of a step on rows of `model` devices; each device computes for `compute_seconds`."""
    return ScalingEstimate(rows * model, compute_seconds, sum(link_seconds(collectives, chip, rows, model)))


def link_seconds(collectives: Iterable[Collective], chip: Chip, rows: int, model: int = 1) -> tuple[float, float]:
    """Return the minimum seconds of collectives on links and on the network, for rows of `model` devices.

    The collectives are from a compiled program. It may have been compiled for another number of rows. In a ring of n
    devices each device sends `(n - 1) / n` of the bytes over its links, for an all-reduce twice this number. If there
    are more devices than links join, the joined devices reduce first (or distribute last), and each device sends its
    part over the network.

    Args:
        collectives: the collectives of one step.
        chip: the data sheet of the devices.
        rows: number of rows.
        model: number of devices in a row, over which large weights are sharded.

    Returns:
        Seconds on links, seconds on the network.
    """
    links = network = 0.0
    for c in collectives:
        n = c.group_size if c.is_within(model) else c.group_size // c.num_mesh_rows(model) * rows
        if n < 2:
            continue
        near = min(n, max(1, chip.joined // c.group_stride))
        groups = -(-n // near)
        links += c.count * c.bytes_sent(near, c.total_bytes) / chip.link
        network += c.count * c.bytes_sent(groups, c.total_bytes / near) / chip.network
    return links, network


USABLE = 0.95  # of a device's memory; the runtime needs the rest


@dataclass(frozen=True)
class Plan:
    """A net compiled for a target, with estimates of memory and time.

    Attributes:
        target: the devices.
        precision: precision of the net.
        phase: "TRAIN" for a training step, "TEST" for a forward pass.
        batch: examples per device; with sharded weights, per row of devices that share them.
        program: statistics of each device's program; None if the compiler reports that the program does not fit.
        needed: memory that the program needs on each device, in bytes.
        operations: operations of each device in products and convolutions; a multiply-add counts as two.
        compile_seconds: compile time on this machine.
        model: number of devices over which each large weight is sharded.
        largest_batch: approximate largest batch per device that fits; 0 if no batch fits, None if not searched for.
    """

    target: Target
    precision: str
    phase: str
    batch: int
    program: ProgramStats | None
    needed: int
    operations: int
    compile_seconds: float
    model: int = 1
    largest_batch: int | None = None

    @property
    def usable(self) -> int:
        """The bytes of a device's memory that a program may use: 95 % of the memory."""
        return int(self.target.chip.memory * USABLE)

    @property
    def fits(self) -> bool:
        """True if the program fits into the devices' memory."""
        return self.program is not None and self.needed <= self.usable

    @property
    def rows(self) -> int:
        """The number of rows of `model` devices, which is the number of batches in a step."""
        return self.target.devices // self.model

    @property
    def seconds(self) -> dict[str, float]:
        """The minimum seconds of a step by resource: "arithmetic", "memory", "links" and "network".

        "network" is absent if the devices do not use it; "memory" and "links" are absent if `program` is None.
        """
        seconds = {"arithmetic": self.operations / self.target.chip.peak(self.precision)}
        if self.program is not None:
            seconds["memory"] = self.program.traffic / self.target.chip.bandwidth
            links, network = link_seconds(self.program.collectives, self.target.chip, self.rows, self.model)
            seconds |= {"links": links} | ({"network": network} if network else {})
        return seconds

    def scaling(self, devices: Sequence[int]) -> list[ScalingEstimate]:
        """Return the estimated times of a training step on other numbers of devices, with the same batch per device.

        The result is empty for a forward pass, for a step compiled for a single row, and for a step that does not fit.
        """
        if self.program is None or not self.fits or self.phase != "TRAIN" or self.rows < 2:
            return []
        compute_seconds = max(self.seconds["arithmetic"], self.seconds["memory"])
        chip, within = self.target.chip, [n for n in devices if n % self.model == 0]
        return [
            scale_step(compute_seconds, self.program.collectives, chip, n // self.model, self.model) for n in within
        ]

    @property
    def best(self) -> float:
        """The minimum seconds of a step: the time of the slowest resource, because resources may overlap."""
        return max(self.seconds.values())

    @property
    def bound_by(self) -> str:
        """The name of the resource with the longest time, see `seconds`."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def examples_per_second(self) -> float:
        """The examples per second of all devices together, at the minimum time."""
        return self.batch * self.rows / self.best


# messages of different versions of libtpu: the memory used, or the memory that temporaries alone need
_TOO_MUCH = re.compile(r"(?:Used |required for [^()]*\()(?P<n>[\d.]+)(?P<unit>[KMGT]?)\b")


@dataclass
class CompileJob:
    """A training step or forward pass that can be compiled for any batch size."""

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
        self.mesh = make_mesh(devices(self.target), self.parallel.model)
        if self.training:
            self.net.graph.check_backward()
            self.net = self.net.with_compute_config(config_for_mesh(self.mesh, self.net.compute_config))

    def _problems(self) -> Iterator[str]:
        graph, axis = self.net.graph, self.batch_axis
        on_host = [layer.name for layer in graph.layers if layer.type.on_host]
        if on_host:
            yield f"cannot be compiled for another machine: these layers run on the host: {', '.join(on_host)}"
        if not graph.input_names:
            yield "has no Input or data layers: there is no batch to divide among devices"
        short = [name for name in graph.input_names if len(graph.blobs[name].shape) <= axis]
        if short:
            yield f"has no axis {axis} of examples in what it is fed as {', '.join(short)}"
        if not self.training and len(self._sizes) > 1:
            yield self._several_sizes()
        if not self.training and self.parallel != Parallel():
            yield "is planned for a forward pass: settings of meshes and sharding are for training only"

    @property
    def _sizes(self) -> list[int]:
        """The distinct sizes of the inputs along the batch axis; several if some inputs are boxes, for example."""
        shapes = [self.net.graph.blobs[name].shape for name in self.net.graph.input_names]
        return sorted({shape[self.batch_axis] for shape in shapes if len(shape) > self.batch_axis})

    def _several_sizes(self) -> str:
        return (
            f"has inputs of different sizes, {self._sizes}, along axis {self.batch_axis}: choose another axis, or "
            "plan a training step for the net's batch, with --largest none"
        )

    def check_batches(self) -> None:
        """Raise `GraphError` if the net cannot be compiled for other batch sizes."""
        if len(self._sizes) > 1:
            raise GraphError([Problem(self._several_sizes(), file=self.net.graph.file)])

    @property
    def training(self) -> bool:
        """True for a training step, False for a forward pass."""
        return self.net.graph.phase == "TRAIN"

    @property
    def default_batch(self) -> int:
        """The examples per device for the net's batch size.

        With `parallel.batch="global"` this is the net's batch size divided by the number of rows.
        """
        examples, rows = (
            int(self.net.graph.blobs[self.net.input_names[0]].shape[self.batch_axis]),
            self.mesh.shape[DATA],
        )
        if self.parallel.batch == "device":
            return examples
        if examples % rows:
            raise CaffejaxError(
                f"a batch of {examples} examples cannot be divided among {rows} devices; choose a multiple of {rows}"
            )
        return examples // rows

    def plan(self, batch: int) -> Plan:
        """Compile the job for `batch` examples per device; return the plan."""
        self.progress(f"compiling for {self.target}, {format_count(batch, 'example')} a device")
        function, arguments, options = self.function(batch)
        # a training step describes the work of one device, or of one row of devices
        sharing = self.parallel.model if self.training else self.target.devices
        operations = 2 * multiply_adds(function, *arguments, padding=False) // sharing
        began = time.perf_counter()
        program, needed = self._compile(jax.jit(function, **options).lower(*arguments))
        seconds = round(time.perf_counter() - began, 1)
        precision, phase, model = self.net.compute_config.precision, self.net.graph.phase, self.parallel.model
        return Plan(self.target, precision, phase, batch, program, needed, operations, seconds, model)

    def function(self, batch: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function for `batch` examples per device, its arguments, and the options of `jax.jit`."""
        key = jax.eval_shape(jax.random.key, 0)
        if not self.training:
            net = self.net.with_batch(batch * self.target.devices, self.batch_axis)
            variables = jax.eval_shape(net.init, key)
            run = lambda params, state, inputs, key: net.apply(params, state, inputs, key=key)  # noqa: E731
            batch_inputs = self._inputs(net, (), PartitionSpec(*(None,) * self.batch_axis, DATA))
            return (
                run,
                (
                    *_attach_sharding(tuple(variables), self._everywhere),
                    batch_inputs,
                    _attach_sharding(key, self._everywhere),
                ),
                {},
            )
        net = self.net if len(self._sizes) > 1 else self.net.with_batch(batch, self.batch_axis)
        optimizer, passes = optimizer_of(self.solver, net), self.solver.iter_size
        start = jax.eval_shape(lambda key: init_train_state(net.init(key), optimizer, key), key)
        rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=self._everywhere)
        if self.target.devices == 1:
            batch_inputs = self._inputs(net, (passes,), PartitionSpec())
            step = make_step(net, optimizer, passes)
            return step, (_attach_sharding(start, self._everywhere), batch_inputs, rate), {"donate_argnums": 0}
        laid, shardings = _place_on_mesh(start, net, self.mesh, self.parallel)
        batch_inputs = self._inputs(net, (passes, self.mesh.shape[DATA]), PartitionSpec(None, DATA))
        step = make_step(net, optimizer, passes, mesh=self.mesh, parallel=self.parallel)
        return step, (laid, batch_inputs, rate), {"donate_argnums": 0, "out_shardings": (shardings, None)}

    @property
    def _everywhere(self) -> NamedSharding:
        return replicated_sharding(self.mesh)

    def _compile(self, lowered: jax.stages.Lowered) -> tuple[ProgramStats | None, int]:
        try:
            program = compiled_stats(lowered.compile())
        except jax.errors.JaxRuntimeError as error:
            needed = parse_needed_bytes(str(error))
            if needed is None:
                line = next(iter(str(error).splitlines()), "")
                raise CaffejaxError(f"the compiler for {self.target} fails: {line[:300]}") from error
            return None, needed
        return program, program.memory

    def _inputs(self, net: Net, ahead: tuple[int, ...], spec: PartitionSpec) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes, dtypes and shardings of the inputs as data layers read them, with leading axes `ahead`."""
        dtypes = {name: net.graph.blobs[name].dtype for name in net.input_names}
        for layer in net.graph.layers:
            if layer.source_spec is not None and layer.source_spec.arrays is not None:
                dtypes |= {top: array.dtype for top, array in zip(layer.tops, layer.source_spec.arrays, strict=True)}
        shapes = {name: (*ahead, *net.graph.blobs[name].shape) for name in dtypes}
        sharding = NamedSharding(self.mesh, spec)
        return {name: jax.ShapeDtypeStruct(shapes[name], dtype, sharding=sharding) for name, dtype in dtypes.items()}


def _place_on_mesh(start: TrainState, net: Net, mesh: Mesh, parallel: Parallel) -> tuple[TrainState, Any]:
    """Return the shapes of a train state on a mesh, and its shardings. Each row has separate running statistics."""
    shardings = MeshPlacement(mesh, net.graph, parallel.shard).shardings(start)
    of_rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((mesh.shape[DATA], *x.shape), x.dtype), start.state)
    spread = start.replace(state=of_rows)
    return jax.tree.map(_abstract_array, spread, shardings), shardings


def _attach_sharding(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda x: _abstract_array(x, sharding), tree)


def _abstract_array(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def parse_needed_bytes(message: str) -> int | None:
    """Return the bytes of memory in a compiler's out-of-memory message; None for other messages."""
    match = _TOO_MUCH.search(message) if "RESOURCE_EXHAUSTED" in message else None
    return None if match is None else int(float(match["n"]) * 1024 ** " KMGT".index(match["unit"] or " "))


Search = Literal["none", "estimate", "check"]

_TRIES = 4
# the default solver of plans for training
SGD = SolverParameter(type="SGD", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)


def plan(
    net: Net,
    target: Target,
    *,
    solver: SolverParameter = SGD,
    parallel: Parallel = Parallel(),
    batch: int | None = None,
    batch_axis: int = 0,
    largest: Search = "none",
    progress: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Compile a net for a target: a training step in phase TRAIN, a forward pass on a sharded batch in phase TEST.

    Args:
        net: the net, compiled in its precision.
        target: the devices.
        solver: settings of the update rule.
        parallel: how training is distributed over the devices.
        batch: examples per device, or per row of devices that shard weights; default: the net's batch size, divided
            among the devices with `parallel.batch="global"`.
        batch_axis: the axis of the inputs that is the batch: 1 for recurrent nets, (steps, streams).
        largest: how to search the largest batch that fits: "estimate" compiles one other batch size and extrapolates
            memory linearly; "check" compiles until a batch fits and one that is 5 % larger does not.
        progress: called with a description of each step.

    Raises:
        GraphError: if the net cannot be compiled as a whole, lacks the batch axis, or does not support the batch size.
            A net with inputs of several batch sizes, such as images and their boxes, supports only these sizes.
        CaffejaxError: if the compiler is not installed or fails, with its message; or if the devices cannot be arranged
            as `parallel` requires.
    """
    job = CompileJob(net, target, solver, parallel, batch_axis, progress)
    if batch is not None or parallel.batch != "device" or largest != "none":
        job.check_batches()
    first_plan = job.plan(batch or job.default_batch)
    if largest == "none":
        return first_plan
    other = first_plan.batch * 2 if first_plan.fits else max(1, first_plan.batch // 2)
    tried = {first_plan.batch: first_plan}
    if other not in tried:
        tried[other] = job.plan(other)
    batch = max(0, _extrapolate(tried)) if largest == "estimate" else _find_largest(job, tried)
    return replace(first_plan, largest_batch=batch)


def _find_largest(job: CompileJob, tried: dict[int, Plan]) -> int:
    """Search the largest batch that fits, by compiling batches that the memory of the tried batches predicts."""
    for _ in range(_TRIES):
        good = [b for b, p in tried.items() if p.fits]
        bad = [b for b, p in tried.items() if not p.fits]
        low, high = max(good, default=0), min(bad, default=None)
        if high is not None and high - low <= max(1, low // 20):
            break
        guess = _extrapolate(tried)
        if guess <= low:
            guess = low + 1 if high is None else (low + high) // 2
        elif high is not None and guess >= high:
            guess = (low + high) // 2
        if guess in tried:
            break
        tried[guess] = job.plan(guess)
    return max((b for b, p in tried.items() if p.fits), default=0)


def _extrapolate(tried: Mapping[int, Plan]) -> int:
    """Return the largest batch that should fit, by linear extrapolation from the two largest batches tried."""
    if len(tried) == 1:
        ((batch, only),) = tried.items()
        return batch if only.fits else 0
    (b0, p0), (b1, p1) = sorted(tried.items())[-2:]
    slope = (p1.needed - p0.needed) / (b1 - b0)
    return int(b1 + (p1.usable - p1.needed) / slope) if slope > 0 else 2 * b1
