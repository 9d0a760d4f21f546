"""One operation in several formulations: XLA's own, for every platform, and those tuned for one.

Which of them runs is settled when the operation is lowered, for the platform that it is lowered for. Until then JAX
sees one primitive, which every transformation maps to all formulations. Exported code has XLA's own only: what is tuned
for CPUs may call functions that another process does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

Arrays = tuple[jax.Array, ...]
Function = Callable[..., Arrays]
Which = tuple[int, ...]


class Batched(Protocol):
    """How a CPU's formulation takes one axis more: given the arrays, and where each has it (None: it has not)."""

    def __call__(self, arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> Arrays | None:
        """Return results with the axis first; None leaves it to XLA's own formulation."""
        ...


@dataclass(frozen=True)
class Operation:
    """Functions of the same arrays to the same tuple of arrays. They close over no array.

    Attributes:
        plain: by XLA's own operations, which JAX can transform in any way.
        cpu: for CPUs, in the program of one device.
        gpu, tpu: for these, in any program; `plain` unless given.
        cut: for a program that XLA is to cut for several devices, where it does not know how to cut `plain`.
        smooth: whether `cpu` can be transformed as well; else derivatives and batches are those of `plain`.
        batched: how `cpu` takes one axis more, where it cannot be transformed.
    """

    plain: Function
    cpu: Function
    gpu: Function | None = None
    tpu: Function | None = None
    cut: Function | None = None
    smooth: bool = True
    batched: Batched | None = None

    def __call__(self, *arrays: jax.Array) -> Arrays:
        """Return what `plain` does; products are of the precision of the moment, whenever it is lowered."""
        gpu, tpu, cut = map(_in_precision, (self.gpu, self.tpu, self.cut))
        operation = replace(self, gpu=gpu, tpu=tpu, cut=cut)
        return tuple(_operation.bind(*arrays, operation=operation, plain=jax.make_jaxpr(self.plain)(*arrays)))

    def through(self, transform: Callable[[Function], Function], plain: ClosedJaxpr) -> Function:
        """Transform the formulations of the operation, traced to `plain`; `plain` alone where `cpu` cannot be."""
        run = transform(jaxpr_as_fun(plain))
        if not self.smooth:
            return run
        gpu, tpu, cut = (None if own is None else transform(own) for own in (self.gpu, self.tpu, self.cut))
        return Operation(run, transform(self.cpu), gpu, tpu, cut)


@dataclass(frozen=True)
class _InPrecision:
    """The function with products of this precision, where they name none."""

    function: Function
    precision: str | None

    def __call__(self, *arrays: jax.Array) -> Arrays:
        with jax.default_matmul_precision(self.precision):
            return self.function(*arrays)


def _in_precision(function: Function | None) -> Function | None:
    return function and _InPrecision(function, jax.config.values["jax_default_matmul_precision"])


_operation = Primitive("caffejax_operation")
_operation.multiple_results = True


def formulation(operation: Operation, plain: ClosedJaxpr, platform: str | None, *, whole: bool) -> Function:
    """Choose how an operation runs.

    Args:
        operation: the operation.
        plain: what it was traced to.
        platform: what it runs on, as JAX calls it; None for several, and for code to be exported.
        whole: whether the program is one device's.
    """
    own = {"cuda": operation.gpu, "rocm": operation.gpu, "tpu": operation.tpu}.get(platform or "")
    if own is not None:
        return own
    if not whole:
        return operation.cut or jaxpr_as_fun(plain)
    return operation.cpu if platform == "cpu" else jaxpr_as_fun(plain)


def _evaluate(*arrays: jax.Array, operation: Operation, plain: ClosedJaxpr) -> Sequence[jax.Array]:
    devices = {d for a in arrays if isinstance(a, jax.Array) for d in a.devices()}
    platforms = {"cuda" if d.platform == "gpu" else d.platform for d in devices}
    platform = platforms.pop() if len(platforms) == 1 else None
    return list(formulation(operation, plain, platform, whole=len(devices) == 1)(*arrays))


_operation.def_impl(_evaluate)
_operation.def_abstract_eval(lambda *_, plain, **__: plain.out_avals)


def _lower(ctx: mlir.LoweringRuleContext, *values: Any, operation: Operation, plain: ClosedJaxpr) -> Any:
    module = ctx.module_context
    alone = len(module.platforms) == 1 and not module.lowering_parameters.for_export
    run = formulation(operation, plain, module.platforms[0] if alone else None, whole=_whole(module))
    return mlir.lower_fun(run, multiple_results=True)(ctx, *values)


mlir.register_lowering(_operation, _lower)


def _whole(module: Any) -> bool:
    """Return whether the program is one device's: that is the only one, or under `jax.shard_map` one of many."""
    axes = module.axis_context
    manual = getattr(axes, "manual_axes", None)
    return getattr(axes, "num_devices", 0) == 1 if manual is None else manual == frozenset(axes.mesh.axis_names)


@dataclass(frozen=True)
class _Tangent:
    """What comes out along tangents of some arrays. Those follow all the arrays; integers have none."""

    function: Function
    which: Which

    def __call__(self, *arrays: jax.Array) -> Arrays:
        given, tangents = list(arrays[: -len(self.which)]), arrays[-len(self.which) :]

        def of_some(*some: jax.Array) -> Arrays:
            for i, array in zip(self.which, some, strict=True):
                given[i] = array
            return self.function(*given)

        tops, found = jax.jvp(of_some, tuple(given[i] for i in self.which), tangents)
        return tuple(t for top, t in zip(tops, found, strict=True) if has_tangent(top))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, operation: Operation, plain: ClosedJaxpr) -> Any:
    tops = _operation.bind(*primals, operation=operation, plain=plain)
    which = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    tangent = operation.through(partial(_Tangent, which=which), plain)
    found = iter(tangent(*primals, *(tangents[i] for i in which)))
    return tops, [next(found) if has_tangent(top) else ad.Zero(jax.typeof(top).to_tangent_aval()) for top in tops]


def has_tangent(x: Any) -> bool:
    """Return whether an array is of numbers that have tangents; integers have none."""
    return jnp.issubdtype(x.dtype, jnp.inexact)


ad.primitive_jvps[_operation] = _jvp


@dataclass(frozen=True)
class _Transposed:
    """Cotangents of some arrays, of these types: from the other arrays and, after them, cotangents of the results."""

    function: Function
    types: tuple[tuple[int, Any], ...]
    others: int

    def __call__(self, *arrays: jax.Array) -> Arrays:
        known, cotangents = arrays[: self.others], arrays[self.others :]

        def of_some(*some: jax.Array) -> Arrays:
            given = dict(zip((i for i, _ in self.types), some, strict=True))
            rest = iter(known)
            every = (given[i] if i in given else next(rest) for i in range(len(some) + len(known)))
            return tuple(self.function(*every))

        found: Arrays = jax.linear_transpose(of_some, *(t for _, t in self.types))(cotangents)
        return found


def _transpose(cotangents: Sequence[Any], *arrays: Any, operation: Operation, plain: ClosedJaxpr) -> Any:
    types = tuple((i, a.aval) for i, a in enumerate(arrays) if ad.is_undefined_primal(a))
    known = [a for a in arrays if not ad.is_undefined_primal(a)]
    transposed = operation.through(partial(_Transposed, types=types, others=len(known)), plain)
    found = transposed(*known, *map(ad.instantiate_zeros, cotangents))
    diffs = dict(zip((i for i, _ in types), found, strict=True))
    return [diffs.get(i) for i in range(len(arrays))]


ad.primitive_transposes[_operation] = _transpose


@dataclass(frozen=True)
class _Mapped:
    """The function mapped over an axis that some arrays have."""

    function: Function
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        found: Arrays = jax.vmap(self.function, self.axes)(*arrays)
        return found


def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, operation: Operation, plain: ClosedJaxpr) -> Any:
    found = operation.batched(arrays, axes) if operation.batched else None
    if found is None:
        found = operation.through(partial(_Mapped, axes=tuple(axes)), plain)(*arrays)
    return found, (0,) * len(found)


batching.primitive_batchers[_operation] = _batch
