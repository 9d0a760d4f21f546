"""Compilation of a training step or forward pass for a target, with estimates of memory, time and scaling."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...base.config import Parallel
from ...base.errors import CaffejaxError, GraphError, Problem
from ...base.human_readable import format_count
from ...core.ops.compilation import compiler_options
from ...core.parallel.global_arrays import replicated_sharding
from ...core.parallel.mesh import DATA, make_mesh
from ...core.program.callbacks import find_layers_outside_programs
from ...core.program.net import Net
from ...core.schema.caffe_pb2 import SolverParameter
from ...core.solver.build_trainer import check_host_layers, config_for_mesh
from ...core.solver.caffe_optimizer import make_optimizer
from ...core.solver.host_program import as_one_program
from ...core.solver.placement import Placement
from ...core.solver.train_step import init_train_state, make_step
from ..summary import count_multiply_adds
from .hardware import Chip, Target, get_devices, parse_target
from .hlo import Collective, ProgramStats, get_compiled_stats

FORWARD_FRACTION = 1 / 3  # fraction of a step without collectives: a backward pass takes as long as two forward passes


@dataclass(frozen=True)
class ScalingEstimate:
    """The estimated time of a training step on more devices, each with the batch that one device has now.

    Attributes:
        devices: the number of devices.
        compute_seconds: the minimum seconds of the computation on each device.
        collective_seconds: the minimum seconds of collectives, over links and over the network.
    """

    devices: int
    compute_seconds: float
    collective_seconds: float

    @property
    def best_seconds(self) -> float:
        """The estimated duration of a step in seconds, if collectives fully overlap the backward pass."""
        return max(self.compute_seconds, FORWARD_FRACTION * self.compute_seconds + self.collective_seconds)

    @property
    def worst_seconds(self) -> float:
        """The estimated duration of a step in seconds, if collectives begin after the backward pass."""
        return self.compute_seconds + self.collective_seconds

    @property
    def efficiency(self) -> tuple[float, float]:
        """The worst and the best parallel efficiency, which is compute time divided by step time."""
        return self.compute_seconds / self.worst_seconds, self.compute_seconds / self.best_seconds


def estimate_scaling(
    compute_seconds: float, collectives: Iterable[Collective], chip: Chip, num_rows: int, model_axis_size: int = 1
) -> ScalingEstimate:
    """Return the estimated time of a step on `num_rows` rows of `model_axis_size` devices each.

    Each device computes for `compute_seconds` seconds and takes part in `collectives`, the collectives of one step.
    """
    return ScalingEstimate(
        num_rows * model_axis_size,
        compute_seconds,
        sum(estimate_link_seconds(collectives, chip, num_rows, model_axis_size)),
    )


def estimate_link_seconds(
    collectives: Iterable[Collective], chip: Chip, num_rows: int, model_axis_size: int = 1
) -> tuple[float, float]:
    """Return the minimum time that collectives take on links and on the network, for rows of `model_axis_size` devices.

    The collectives are from a compiled program, which may have been compiled for a different number of rows. In a ring
    of n devices, each device sends `(n - 1) / n` of the bytes over its links, or twice this number in an all-reduce. If
    links do not connect all devices, the connected devices reduce first (or distribute last), and each device sends its
    part over the network.

    Args:
        collectives: the collectives of one step.
        chip: the data sheet of the devices.
        num_rows: the number of rows.
        model_axis_size: the number of devices in a row, over which large weights are sharded.

    Returns:
        The seconds on links and the seconds on the network.
    """
    link_seconds = network_seconds = 0.0
    for c in collectives:
        num_devices = (
            c.group_size
            if c.is_within(model_axis_size)
            else c.group_size // c.num_mesh_rows(model_axis_size) * num_rows
        )
        if num_devices < 2:
            continue
        linked_devices = min(num_devices, max(1, chip.joined // c.group_stride))
        num_groups = -(-num_devices // linked_devices)
        link_seconds += c.count * c.bytes_sent(linked_devices, c.total_bytes) / chip.link
        network_seconds += c.count * c.bytes_sent(num_groups, c.total_bytes / linked_devices) / chip.network
    return link_seconds, network_seconds


USABLE_FRACTION = 0.95  # fraction of a device's memory; the runtime needs the remainder


@dataclass(frozen=True)
class Plan:
    """A net compiled for a target, with estimates of memory and time.

    Attributes:
        target: the devices.
        precision: the precision of the net.
        phase: "TRAIN" for a training step, "TEST" for a forward pass.
        batch: examples per device or, if weights are sharded, per row of devices.
        program: statistics of each device's program; None if the compiler reports that the program does not fit.
        needed_bytes: the memory that the program needs on each device, in bytes.
        operations: the number of operations of each device in matrix products and convolutions. A multiply-add counts
            as two operations.
        compile_seconds: the compile time on this machine.
        model: the number of devices over which each large weight is sharded.
        largest_batch: the approximate largest batch per device that fits; 0 if no batch fits, None if it was not
            searched for.
        iter_size: the number of batches that each device computes in a step.
    """

    target: Target
    precision: str
    phase: str
    batch: int
    program: ProgramStats | None
    needed_bytes: int
    operations: int
    compile_seconds: float
    model: int = 1
    largest_batch: int | None = None
    iter_size: int = 1

    @property
    def usable_bytes(self) -> int:
        """The memory of a device that a program may use, in bytes: 95 % of its memory."""
        return int(self.target.chip.memory * USABLE_FRACTION)

    @property
    def fits(self) -> bool:
        """True if the program fits into the memory of the devices."""
        return self.program is not None and self.needed_bytes <= self.usable_bytes

    @property
    def num_rows(self) -> int:
        """The number of rows of `model` devices. Each row processes a batch in a step."""
        return self.target.devices // self.model

    @property
    def seconds(self) -> dict[str, float]:
        """The minimum duration of a step in seconds, by resource: "arithmetic", "memory", "links" and "network".

        "network" is missing if the devices do not use it, and only "arithmetic" is present if `program` is None.
        """
        seconds = {"arithmetic": self.operations / self.target.chip.peak(self.precision)}
        if self.program is not None:
            seconds["memory"] = self.program.traffic / self.target.chip.bandwidth
            links, network = estimate_link_seconds(
                self.program.collectives, self.target.chip, self.num_rows, self.model
            )
            seconds |= {"links": links} | ({"network": network} if network else {})
        return seconds

    def scaling(self, device_counts: Sequence[int]) -> list[ScalingEstimate]:
        """Return the estimated times of a training step on each number of devices, with the same batch per device.

        The result is [] for a forward pass, for a step that was compiled for a single row, and for a step that does not
        fit.
        """
        if self.program is None or not self.fits or self.phase != "TRAIN" or self.num_rows < 2:
            return []
        compute_seconds = max(self.seconds["arithmetic"], self.seconds["memory"])
        chip, valid_counts = self.target.chip, [n for n in device_counts if n % self.model == 0]
        return [
            estimate_scaling(compute_seconds, self.program.collectives, chip, n // self.model, self.model)
            for n in valid_counts
        ]

    @property
    def best_seconds(self) -> float:
        """The minimum duration of a step in seconds. Resources may overlap, so it is the time of the slowest one."""
        return max(self.seconds.values())

    @property
    def bottleneck(self) -> str:
        """The name of the resource that takes longest, one of the keys of `seconds`."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def examples_per_second(self) -> float:
        """The examples per second of all devices together, if a step takes the minimum time."""
        return self.batch * self.iter_size * self.num_rows / self.best_seconds


# the used memory, or the memory of temporaries, in messages of different versions of libtpu
_OUT_OF_MEMORY = re.compile(r"(?:Used |required for [^()]*\()(?P<n>[\d.]+)(?P<unit>[KMGT]?)\b")


@dataclass
class CompileJob:
    """A training step or forward pass that can be compiled for any batch size.

    Args:
        net: the net.
        target: the devices.
        solver: settings of the update rule.
        parallel: how training is distributed over the devices.
        batch_axis: the batch axis of the inputs.
        progress: a function that is called with a description of each step of the compilation.
    """

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
        self.mesh = make_mesh(get_devices(self.target), self.parallel.model)
        if self.is_training:
            self.net.graph.check_backward()
            if self.mesh.size > 1:
                check_host_layers(self.net.graph, self.mesh)
            self.net = self.net.with_config(config_for_mesh(self.mesh, self.net.config))

    def _problems(self) -> Iterator[str]:
        graph, axis = self.net.graph, self.batch_axis
        if layers := find_layers_outside_programs(graph):
            names = ", ".join(layer.name for layer in layers)
            yield f"cannot be compiled, because the shapes that these layers give their tops may change: {names}"
        if not graph.input_names:
            yield "has no Input or data layers, so there is no batch to divide among devices"
        inputs_without_axis = [name for name in graph.input_names if len(graph.blobs[name].shape) <= axis]
        if inputs_without_axis:
            yield (
                f"has inputs without the batch axis {axis}: {', '.join(inputs_without_axis)}; "
                "choose an axis that all inputs have"
            )
        if not self.is_training and len(self._batch_sizes) > 1:
            yield self._describe_batch_sizes()
        if not self.is_training and self.parallel != Parallel():
            yield "is planned for a forward pass, but meshes and sharding can be set only for training"

    @property
    def _batch_sizes(self) -> list[int]:
        """The distinct sizes of the inputs along the batch axis. For example, images and boxes have different sizes."""
        shapes = [self.net.graph.blobs[name].shape for name in self.net.graph.input_names]
        return sorted({shape[self.batch_axis] for shape in shapes if len(shape) > self.batch_axis})

    def _describe_batch_sizes(self) -> str:
        return (
            f"has inputs of different sizes, {self._batch_sizes}, along axis {self.batch_axis}: "
            "choose a different axis, or plan a training step for the net's batch size with --largest none"
        )

    def check_batch_size(self) -> None:
        """Raise `GraphError` if the net cannot be compiled for other batch sizes."""
        if len(self._batch_sizes) > 1:
            raise GraphError([Problem(self._describe_batch_sizes(), file=self.net.graph.file)])

    @property
    def is_training(self) -> bool:
        """True for a training step, False for a forward pass."""
        return self.net.graph.phase == "TRAIN"

    @property
    def default_batch(self) -> int:
        """The examples per device for the net's batch size.

        With `parallel.batch="global"`, it is the net's batch size divided by the number of rows.
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
        function, arguments, options = self.make_function(batch)
        # the function of a training step is the work of one device, or of one row of devices
        num_shards = self.parallel.model if self.is_training else self.target.devices
        operations = 2 * count_multiply_adds(function, *arguments, padding=False) // num_shards
        start_time = time.perf_counter()
        program, needed_bytes = self._compile(jax.jit(function, **options).lower(*arguments))
        compile_seconds = round(time.perf_counter() - start_time, 1)
        precision, phase, model = self.net.config.precision, self.net.graph.phase, self.parallel.model
        return Plan(
            self.target,
            precision,
            phase,
            batch,
            program,
            needed_bytes,
            operations,
            compile_seconds,
            model,
            iter_size=self.solver.iter_size if self.is_training else 1,
        )

    def make_function(self, batch: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function for `batch` examples per device, its abstract arguments and the options of `jax.jit`."""
        key = jax.eval_shape(jax.random.key, 0)
        if not self.is_training:
            net = self.net.with_batch(batch * self.target.devices, self.batch_axis)
            variables = jax.eval_shape(net.init, key)
            apply = lambda params, state, inputs, key: net.apply(params, state, inputs, key=key)  # noqa: E731
            batch_inputs = self._make_inputs(net, (), PartitionSpec(*(None,) * self.batch_axis, DATA))
            return (
                apply,
                (
                    *_add_sharding(tuple(variables), self._replicated),
                    batch_inputs,
                    _add_sharding(key, self._replicated),
                ),
                {},
            )
        net = self.net if len(self._batch_sizes) > 1 else self.net.with_batch(batch, self.batch_axis)
        net = as_one_program(net) or net
        optimizer, iter_size = make_optimizer(self.solver, net), self.solver.iter_size
        initial_state = jax.eval_shape(lambda key: init_train_state(net.init(key), optimizer, key), key)
        learning_rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=self._replicated)
        placement = Placement(self.mesh, net.graph, self.parallel.shard)
        shardings = placement.shardings(initial_state)
        sizes: tuple[int, ...] = (iter_size,)
        spec = PartitionSpec()
        if placement.has_rows:  # each row has batches and statistics of its own
            rows = self.mesh.shape[DATA]
            sizes, spec = (iter_size, rows), PartitionSpec(None, DATA)
            initial_state = initial_state.replace(
                state=jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype), initial_state.state)
            )
        batch_inputs = self._make_inputs(net, sizes, spec)
        step = make_step(net, optimizer, iter_size, mesh=self.mesh, parallel=self.parallel)
        if shardings is None:
            train_state, options = _add_sharding(initial_state, self._replicated), {}
        else:
            train_state = jax.tree.map(_make_abstract_array, initial_state, shardings)
            options = {"out_shardings": (shardings, None)}
        return step, (train_state, batch_inputs, learning_rate), {"donate_argnums": 0, **options}

    @property
    def _replicated(self) -> NamedSharding:
        return replicated_sharding(self.mesh)

    def _compile(self, lowered: jax.stages.Lowered) -> tuple[ProgramStats | None, int]:
        platform = "gpu" if self.target.chip.platform == "cuda" else self.target.chip.platform
        options = compiler_options(platform, is_absent=True) if self.net.config.kernels == "fast" else {}
        try:
            program = get_compiled_stats(lowered.compile(options))
        except jax.errors.JaxRuntimeError as error:
            needed_bytes = parse_needed_bytes(str(error))
            if needed_bytes is None:
                line = next(iter(str(error).splitlines()), "")
                raise CaffejaxError(f"the compiler for {self.target} failed: {line[:300]}") from error
            return None, needed_bytes
        return program, program.memory

    def _make_inputs(
        self, net: Net, leading_shape: tuple[int, ...], spec: PartitionSpec
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the inputs as abstract arrays, in the dtypes that data layers read.

        The first axes of each array have the sizes `leading_shape`.
        """
        dtypes = {name: net.graph.blobs[name].dtype for name in net.input_names}
        for layer in net.graph.layers:
            if layer.source_spec is not None and layer.source_spec.arrays is not None:
                dtypes |= {top: array.dtype for top, array in zip(layer.tops, layer.source_spec.arrays, strict=True)}
        shapes = {name: (*leading_shape, *net.graph.blobs[name].shape) for name in dtypes}
        sharding = NamedSharding(self.mesh, spec)
        return {name: jax.ShapeDtypeStruct(shapes[name], dtype, sharding=sharding) for name, dtype in dtypes.items()}


def _add_sharding(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda x: _make_abstract_array(x, sharding), tree)


def _make_abstract_array(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def parse_needed_bytes(message: str) -> int | None:
    """Return the needed memory in bytes from a compiler's out-of-memory message; None for other messages."""
    match = _OUT_OF_MEMORY.search(message) if "RESOURCE_EXHAUSTED" in message else None
    return None if match is None else int(float(match["n"]) * 1024 ** " KMGT".index(match["unit"] or " "))


SearchMode = Literal["none", "estimate", "check"]

_MAX_COMPILATIONS = 4
# the default solver of plans for training
SGD = SolverParameter(type="SGD", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)


def plan(
    net: Net,
    target: Target | str,
    *,
    solver: SolverParameter = SGD,
    parallel: Parallel = Parallel(),
    batch: int | None = None,
    batch_axis: int = 0,
    largest: SearchMode = "none",
    progress: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Compile a net for a target, as a training step in phase TRAIN or as a forward pass in phase TEST.

    Args:
        net: the net. It is compiled in its precision.
        target: the devices, or their name, such as "tpu:v5e:2x2", "cuda:h100:4", or "chip.toml:4" with a chip file.
        solver: settings of the update rule.
        parallel: how training is distributed over the devices.
        batch: examples per device or, if weights are sharded, per row of devices. By default, it is the net's batch
            size, which is divided among the devices if `parallel.batch` is "global".
        batch_axis: the batch axis of the inputs, for example 1 for recurrent nets with inputs (steps, streams).
        largest: how to search for the largest batch that fits. "none" does not search. "estimate" compiles a second
            batch size and extrapolates memory linearly. "check" compiles until a batch fits and a batch that is 5 %
            larger does not.
        progress: a function that is called with a description of each step of the compilation.

    Raises:
        GraphError: if layers may change the shapes of their tops, if the inputs lack the batch axis, or if the net does
            not support the batch size. A net whose inputs have different batch sizes, such as images and boxes,
            supports no others.
        CaffejaxError: if the target is unknown, if the compiler is not installed or fails, or if the devices cannot be
            arranged as `parallel` requires.
    """
    if isinstance(target, str):
        target = parse_target(target)
    job = CompileJob(net, target, solver, parallel, batch_axis, progress)
    if batch is not None or parallel.batch != "device" or largest != "none":
        job.check_batch_size()
    first_plan = job.plan(batch or job.default_batch)
    if largest == "none":
        return first_plan
    second_batch = first_plan.batch * 2 if first_plan.fits else max(1, first_plan.batch // 2)
    compiled_plans = {first_plan.batch: first_plan}
    if second_batch not in compiled_plans:
        compiled_plans[second_batch] = job.plan(second_batch)
    batch = max(0, _extrapolate(compiled_plans)) if largest == "estimate" else _find_largest(job, compiled_plans)
    return replace(first_plan, largest_batch=batch)


def _find_largest(job: CompileJob, compiled_plans: dict[int, Plan]) -> int:
    """Return the largest batch that fits, or 0. Compile batches, each extrapolated from the plans of earlier ones."""
    for _ in range(_MAX_COMPILATIONS):
        fitting_batches = [b for b, p in compiled_plans.items() if p.fits]
        large_batches = [b for b, p in compiled_plans.items() if not p.fits]
        low, high = max(fitting_batches, default=0), min(large_batches, default=None)
        if high is not None and high - low <= max(1, low // 20):
            break
        next_batch = _extrapolate(compiled_plans)
        if next_batch <= low:
            next_batch = low + 1 if high is None else (low + high) // 2
        elif high is not None and next_batch >= high:
            next_batch = (low + high) // 2
        if next_batch in compiled_plans:
            break
        compiled_plans[next_batch] = job.plan(next_batch)
    return max((b for b, p in compiled_plans.items() if p.fits), default=0)


def _extrapolate(compiled_plans: Mapping[int, Plan]) -> int:
    """Return the largest batch that should fit, by linear extrapolation from the two largest compiled batches."""
    if len(compiled_plans) == 1:
        ((batch, single_plan),) = compiled_plans.items()
        return batch if single_plan.fits else 0
    (b0, p0), (b1, p1) = sorted(compiled_plans.items())[-2:]
    slope = (p1.needed_bytes - p0.needed_bytes) / (b1 - b0)
    return int(b1 + (p1.usable_bytes - p1.needed_bytes) / slope) if slope > 0 else 2 * b1
