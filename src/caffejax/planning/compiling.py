"""A net's training step, or its forward pass, compiled for a target and measured against what the target can do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import CaffejaxError, GraphError, Problem
from ..inspect.counting import multiply_adds
from ..net import Net
from ..schema.caffe_pb2 import SolverParameter
from ..solvers.build import optimizer_of, start_of
from ..solvers.state import make_step
from .devices import mesh_of
from .program import Program, program_of
from .targets import Target

Search = Literal["none", "estimate", "check"]

USABLE = 0.95  # of a device's memory; the rest is the runtime's own
_TRIES = 4
# what training is planned with where no solver says more
SGD = SolverParameter(type="SGD", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)


# as libtpu's versions say it: how much is used of how much, or how much the temporaries alone would take
_TOO_MUCH = re.compile(r"(?:Used |required for [^()]*\()(?P<n>[\d.]+)(?P<unit>[KMGT]?)\b")


@dataclass(frozen=True)
class Plan:
    """A net on a target.

    Attributes:
        target: the devices.
        precision: of the net.
        phase: "TRAIN" for a training step, "TEST" for a forward pass.
        batch: examples a device.
        program: what each device does; None if the compiler says that it does not fit.
        needed: bytes of each device's memory that it takes.
        operations: of each device, in products and convolutions; a multiply-add is two.
        compile_seconds: what compiling took here.
        largest_batch: about the most examples a device for which it fits, 0 for none; None if that was not looked for.
    """

    target: Target
    precision: str
    phase: str
    batch: int
    program: Program | None
    needed: int
    operations: int
    compile_seconds: float
    largest_batch: int | None = None

    @property
    def usable(self) -> int:
        """Bytes of a device's memory that a program may take."""
        return int(self.target.chip.memory * USABLE)

    @property
    def fits(self) -> bool:
        """Whether it fits into memory."""
        return self.program is not None and self.needed <= self.usable

    @property
    def seconds(self) -> dict[str, float]:
        """The least time that each takes: "arithmetic", "memory", and "links" between devices."""
        chip, n = self.target.chip, self.target.devices
        found = {"arithmetic": self.operations / chip.peak(self.precision)}
        if self.program is not None:
            moved = sum(c.bytes * c.count for c in self.program.collectives)
            found["memory"] = self.program.traffic / chip.bandwidth
            found["links"] = 2 * moved * (n - 1) / n / chip.link
        return found

    @property
    def best(self) -> float:
        """The best possible time of a step in seconds, if all three go on at once."""
        return max(self.seconds.values())

    @property
    def bound_by(self) -> str:
        """What that time is spent on."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def examples_per_second(self) -> float:
        """Of all devices, at the best possible time."""
        return self.batch * self.target.devices / self.best


def plan(
    net: Net,
    target: Target,
    *,
    solver: SolverParameter = SGD,
    batch: int | None = None,
    batch_axis: int = 0,
    largest: Search = "none",
    progress: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Compile a net for a target: in TRAIN a training step, with the batch cut over the devices; in TEST `apply`.

    Args:
        net: the net; its precision is what it is compiled in.
        target: the devices.
        solver: the settings of the update rule.
        batch: examples a device; as many as the net has unless given.
        batch_axis: the axis of what the net is fed that the examples lie along: 1 for recurrent nets, (steps, streams).
        largest: how to look for the largest batch that fits: "estimate" compiles for one other batch, and takes memory
            to grow in proportion; "check" compiles until a batch fits and one a twentieth larger does not.
        progress: is told what is being done.

    Raises:
        GraphError: if the net cannot be compiled as a whole, has no such axis, or does not take such a batch.
        CaffejaxError: if the compiler is not installed or fails, with what it says.
    """
    subject = _Subject(net, target, mesh_of(target), solver, batch_axis, progress)
    found = subject.plan(batch or subject.own_batch)
    if largest == "none":
        return found
    other = found.batch * 2 if found.fits else max(1, found.batch // 2)
    tried = {found.batch: found}
    if other not in tried:
        tried[other] = subject.plan(other)
    batch = max(0, _extrapolated(tried)) if largest == "estimate" else _largest(subject, tried)
    return replace(found, largest_batch=batch)


def _largest(subject: _Subject, tried: dict[int, Plan]) -> int:
    """Look for the largest batch that fits, from those tried: memory grows in proportion to it, all but exactly."""
    for _ in range(_TRIES):
        good = [b for b, p in tried.items() if p.fits]
        bad = [b for b, p in tried.items() if not p.fits]
        low, high = max(good, default=0), min(bad, default=None)
        if high is not None and high - low <= max(1, low // 20):
            break
        guess = _extrapolated(tried)
        if guess <= low:
            guess = low + 1 if high is None else (low + high) // 2
        elif high is not None and guess >= high:
            guess = (low + high) // 2
        if guess in tried:
            break
        tried[guess] = subject.plan(guess)
    return max((b for b, p in tried.items() if p.fits), default=0)


def _extrapolated(tried: Mapping[int, Plan]) -> int:
    """Return the batch that just fits if memory goes on growing as between the two largest that were tried."""
    if len(tried) == 1:
        ((batch, only),) = tried.items()
        return batch if only.fits else 0
    (b0, p0), (b1, p1) = sorted(tried.items())[-2:]
    slope = (p1.needed - p0.needed) / (b1 - b0)
    return int(b1 + (p1.usable - p1.needed) / slope) if slope > 0 else 2 * b1


@dataclass(frozen=True)
class _Subject:
    """What is compiled, for any batch."""

    net: Net
    target: Target
    mesh: Mesh
    solver: SolverParameter
    batch_axis: int
    progress: Callable[[str], None]

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise GraphError([Problem(p, file=self.net.graph.file) for p in problems])
        if self.training:
            self.net.graph.check_backward()

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
        sizes = {graph.blobs[name].shape[axis] for name in graph.fed if name not in short}
        if len(sizes) > 1:
            yield f"is fed batches of several sizes, {sorted(sizes)}, along axis {axis}; name another axis"

    @property
    def training(self) -> bool:
        return self.net.graph.phase == "TRAIN"

    @property
    def own_batch(self) -> int:
        return int(self.net.graph.blobs[self.net.fed[0]].shape[self.batch_axis])

    def plan(self, batch: int) -> Plan:
        """Compile it for so many examples a device."""
        n = self.target.devices
        self.progress(f"compiling for {self.target}, {batch} examples a device")
        function, arguments, donated = self._function(batch * n)
        operations = 2 * multiply_adds(function, *arguments, padding=False) // n
        began = time.perf_counter()
        program, needed = self._compiled(function, arguments, donated)
        seconds = time.perf_counter() - began
        graph = self.net.graph
        return Plan(
            self.target, self.net.run.precision, graph.phase, batch, program, needed, operations, round(seconds, 1)
        )

    def _compiled(self, function: Any, arguments: Any, donated: Any) -> tuple[Program | None, int]:
        try:
            program = program_of(jax.jit(function, donate_argnums=donated).lower(*arguments).compile())
        except jax.errors.JaxRuntimeError as error:
            needed = _needed(str(error))
            if needed is None:
                line = next(iter(str(error).splitlines()), "")
                raise CaffejaxError(f"the compiler of {self.target} fails: {line[:300]}") from error
            return None, needed
        return program, program.memory

    def _function(self, batch: int) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]:
        """Return what is compiled, what it is given, and which of that it may use up."""
        net = self.net.with_batch(batch, self.batch_axis)
        key = jax.eval_shape(jax.random.key, 0)
        variables = jax.eval_shape(net.init, key)
        if not self.training:
            run = lambda params, state, inputs, key: net.apply(params, state, inputs, key=key)  # noqa: E731
            return run, (*self._everywhere(tuple(variables)), self._fed(net, ()), self._everywhere(key)), ()
        optimizer = optimizer_of(self.solver, net)
        start = jax.eval_shape(lambda v, key: start_of(v, optimizer, key), variables, key)
        passes = self.solver.iter_size
        arguments = (
            self._everywhere(start),
            self._fed(net, (passes,)),
            self._everywhere(jax.ShapeDtypeStruct((), jnp.float32)),
        )
        return make_step(net, optimizer, passes), arguments, (0,)

    def _fed(self, net: Net, ahead: tuple[int, ...]) -> dict[str, jax.ShapeDtypeStruct]:
        """Return what the net is fed, as its sources give it, cut over the devices."""
        spec = PartitionSpec(*(None,) * (len(ahead) + self.batch_axis), "data")
        dtypes = {name: net.graph.blobs[name].dtype for name in net.fed}
        for layer in net.graph.layers:
            if layer.look is not None and layer.look.given is not None:
                dtypes |= {top: given.dtype for top, given in zip(layer.tops, layer.look.given, strict=True)}
        sharding = NamedSharding(self.mesh, spec)
        return {
            name: jax.ShapeDtypeStruct((*ahead, *net.graph.blobs[name].shape), dtype, sharding=sharding)
            for name, dtype in dtypes.items()
        }

    def _everywhere(self, tree: Any) -> Any:
        """Return the same on each device."""
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def _needed(message: str) -> int | None:
    """Return the bytes that a compiler says are too many; None if it says something else."""
    found = _TOO_MUCH.search(message) if "RESOURCE_EXHAUSTED" in message else None
    return None if found is None else int(float(found["n"]) * 1024 ** " KMGT".index(found["unit"] or " "))
