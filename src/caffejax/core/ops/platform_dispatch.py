"""Operations with several implementations: one in plain XLA operations, and others tuned for one platform.

JAX sees an operation as one primitive. Transformations such as `jax.grad` and `jax.vmap` are applied to all of its
implementations. The implementation is chosen when the operation is lowered for a platform. Exported code uses only the
plain implementation, because the implementation for CPUs may call functions that other processes do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, Var, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval

Arrays = tuple[jax.Array, ...]
Function = Callable[..., Arrays]
Indices = tuple[int, ...]


class BatchRule(Protocol):
    """A batching rule for `jax.vmap`, for an operation whose CPU implementation JAX cannot transform."""

    def __call__(self, arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> Arrays | None:
        """Return the results of a mapped call.

        Args:
            arrays: the arguments.
            axes: the mapped axis of each argument; None for an argument that is not mapped.

        Returns:
            The results with the mapped axis first, or None to map the plain implementation.
        """
        ...


@dataclass(frozen=True)
class PlatformOp:
    """An operation with several implementations.

    Each implementation is a function of arrays that returns a tuple of arrays. The implementations take the same
    arguments and return results of the same shapes. They must not be closures over traced arrays.

    Attributes:
        plain: the implementation in XLA's operations, which JAX can transform in any way.
        cpu: the implementation for CPUs, in a program for one device.
        gpu, tpu: the implementations for GPUs and TPUs, or None to use `plain`.
        partitioned: the implementation for a program that XLA partitions over several devices, or None to use `plain`.
        differentiable: whether JAX can transform `cpu`. If not, derivatives and mapped calls use `plain`.
        batch_rule: the batching rule for mapped calls if JAX cannot transform `cpu`, or None to map `plain`.
    """

    plain: Function
    cpu: Function
    gpu: Function | None = None
    tpu: Function | None = None
    partitioned: Function | None = None
    differentiable: bool = True
    batch_rule: BatchRule | None = None

    def __call__(self, *arrays: jax.Array) -> Arrays:
        """Call the operation with JAX's current default precision of matrix products, even if it is lowered later."""
        gpu, tpu, partitioned = map(_fix_precision, (self.gpu, self.tpu, self.partitioned))
        operation = replace(self, gpu=gpu, tpu=tpu, partitioned=partitioned)
        # JAX would keep the traces of `self.plain`, which may be a function of a module, for ever
        plain = jax.make_jaxpr(lambda *arrays: self.plain(*arrays))(*arrays)
        return tuple(_operation_p.bind(*arrays, operation=operation, plain=plain))

    def map_implementations(self, transform: Callable[[Function], Function], plain: ClosedJaxpr) -> Function:
        """Return the operation with `transform` applied to each implementation.

        If JAX cannot transform the implementation for CPUs, return only the transformed plain implementation.

        Args:
            transform: maps a function to a function, as `jax.vmap` does.
            plain: the jaxpr of the attribute `plain`, traced for the arguments of this call.
        """
        run = transform(jaxpr_as_fun(plain))
        if not self.differentiable:
            return run
        gpu, tpu, partitioned = (
            None if implementation is None else transform(implementation)
            for implementation in (self.gpu, self.tpu, self.partitioned)
        )
        return PlatformOp(run, transform(self.cpu), gpu, tpu, partitioned)


@dataclass(frozen=True)
class _FixedPrecision:
    """A function that runs with a fixed default precision of matrix products."""

    function: Function
    precision: str | None

    def __call__(self, *arrays: jax.Array) -> Arrays:
        with jax.default_matmul_precision(self.precision):
            return self.function(*arrays)


def _fix_precision(function: Function | None) -> Function | None:
    return function and _FixedPrecision(function, jax.config.values["jax_default_matmul_precision"])


_operation_p = Primitive("caffejax_operation")
_operation_p.multiple_results = True


def select_implementation(
    operation: PlatformOp, plain: ClosedJaxpr, platform: str | None, *, single_device: bool
) -> Function:
    """Return the implementation of an operation for a platform.

    Args:
        operation: the operation.
        plain: the jaxpr of `operation.plain`.
        platform: JAX's name of the platform, or None for several platforms and for exported code.
        single_device: whether the program is for one device.
    """
    implementation = {"cuda": operation.gpu, "rocm": operation.gpu, "tpu": operation.tpu}.get(platform or "")
    if implementation is not None:
        return implementation
    if not single_device:
        return operation.partitioned or jaxpr_as_fun(plain)
    return operation.cpu if platform == "cpu" else jaxpr_as_fun(plain)


def _evaluate(*arrays: jax.Array, operation: PlatformOp, plain: ClosedJaxpr) -> Sequence[jax.Array]:
    devices = {d for a in arrays if isinstance(a, jax.Array) for d in a.devices()}
    platforms = {"cuda" if d.platform == "gpu" else d.platform for d in devices}
    platform = platforms.pop() if len(platforms) == 1 else None
    return list(select_implementation(operation, plain, platform, single_device=len(devices) == 1)(*arrays))


_operation_p.def_impl(_evaluate)
_operation_p.def_abstract_eval(lambda *_, plain, **__: plain.out_avals)


def _lower(ctx: mlir.LoweringRuleContext, *values: Any, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    module = ctx.module_context
    has_one_platform = len(module.platforms) == 1 and not module.lowering_parameters.for_export
    run = select_implementation(
        operation, plain, module.platforms[0] if has_one_platform else None, single_device=is_single_device(module)
    )
    with jax.numpy_rank_promotion("allow"):  # of the user's code; traced here is only the operation
        return mlir.lower_fun(run, multiple_results=True)(ctx, *values)


mlir.register_lowering(_operation_p, _lower)


def is_single_device(module: Any) -> bool:
    """Return whether a program is for one device: it has one device, or all mesh axes are manual (`jax.shard_map`)."""
    axes = module.axis_context
    manual_axes = getattr(axes, "manual_axes", None)
    return (
        getattr(axes, "num_devices", 0) == 1 if manual_axes is None else manual_axes == frozenset(axes.mesh.axis_names)
    )


@dataclass(frozen=True)
class _TangentFunction:
    """The forward derivative (Jacobian-vector product) of a function.

    A call takes the function's arguments, followed by the tangents of the arguments with the given indices. It
    returns the tangents of the floating-point results.
    """

    function: Function
    indices: Indices

    def __call__(self, *arrays: jax.Array) -> Arrays:
        operands, tangents = list(arrays[: -len(self.indices)]), arrays[-len(self.indices) :]

        def call_with_selected(*selected_arrays: jax.Array) -> Arrays:
            for i, array in zip(self.indices, selected_arrays, strict=True):
                operands[i] = array
            return self.function(*operands)

        tops, results = jax.jvp(call_with_selected, tuple(operands[i] for i in self.indices), tangents)
        return tuple(t for top, t in zip(tops, results, strict=True) if has_tangent(top))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    tops = _operation_p.bind(*primals, operation=operation, plain=plain)
    indices = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero)
    tangent_function = operation.map_implementations(partial(_TangentFunction, indices=indices), plain)
    results = iter(tangent_function(*primals, *(tangents[i] for i in indices)))
    return tops, [next(results) if has_tangent(top) else ad.Zero(jax.typeof(top).to_tangent_aval()) for top in tops]


def has_tangent(x: Any) -> bool:
    """Return whether an array has tangents, as arrays of inexact dtype have."""
    return jnp.issubdtype(x.dtype, jnp.inexact)


ad.primitive_jvps[_operation_p] = _jvp


@dataclass(frozen=True)
class _TransposedFunction:
    """The transpose of a function with respect to the arguments in which it is linear.

    A call takes the other arguments, followed by the cotangents of the results. It returns the cotangents of the linear
    arguments.

    Attributes:
        function: the function.
        linear_arguments: the index and abstract value of each linear argument.
        num_residuals: the number of other arguments.
    """

    function: Function
    linear_arguments: tuple[tuple[int, Any], ...]
    num_residuals: int

    def __call__(self, *arrays: jax.Array) -> Arrays:
        residuals, cotangents = arrays[: self.num_residuals], arrays[self.num_residuals :]

        def call_with_selected(*selected_arrays: jax.Array) -> Arrays:
            operands = dict(zip((i for i, _ in self.linear_arguments), selected_arrays, strict=True))
            remaining_residuals = iter(residuals)
            arguments = (
                operands[i] if i in operands else next(remaining_residuals)
                for i in range(len(selected_arrays) + len(residuals))
            )
            return tuple(self.function(*arguments))

        results: Arrays = jax.linear_transpose(call_with_selected, *(t for _, t in self.linear_arguments))(cotangents)
        return results


def _transpose(cotangents: Sequence[Any], *arrays: Any, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    linear_arguments = tuple((i, a.aval) for i, a in enumerate(arrays) if ad.is_undefined_primal(a))
    residuals = [a for a in arrays if not ad.is_undefined_primal(a)]
    transposed_function = operation.map_implementations(
        partial(_TransposedFunction, linear_arguments=linear_arguments, num_residuals=len(residuals)), plain
    )
    results = transposed_function(*residuals, *map(ad.instantiate_zeros, cotangents))
    diffs = dict(zip((i for i, _ in linear_arguments), results, strict=True))
    return [diffs.get(i) for i in range(len(arrays))]


ad.primitive_transposes[_operation_p] = _transpose


@dataclass(frozen=True)
class _MappedFunction:
    """A function under `jax.vmap`, mapped over `axes` of its arguments (None for an argument that is not mapped)."""

    function: Function
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        results: Arrays = jax.vmap(self.function, self.axes)(*arrays)
        return results


@dataclass(frozen=True)
class _FunctionByRule:
    """An operation under `jax.vmap`, by its batching rule. It consists of operations, so JAX can transform it again."""

    batch_rule: BatchRule
    mapped: Function
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: jax.Array) -> Arrays:
        results = self.batch_rule(arrays, self.axes)
        return self.mapped(*arrays) if results is None else results


def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    transform = partial(_MappedFunction, axes=tuple(axes))
    mapped = operation.map_implementations(transform, plain)
    if operation.batch_rule is not None:
        # XLA cannot partition the mapped axis if it is merged with another, so other platforms and programs keep it
        cpu = _FunctionByRule(operation.batch_rule, mapped, tuple(axes))
        gpu, tpu = (f and transform(f) for f in (operation.gpu, operation.tpu))
        mapped = PlatformOp(transform(jaxpr_as_fun(plain)), cpu, gpu, tpu)
    results = mapped(*arrays)
    return results, (0,) * len(results)


batching.primitive_batchers[_operation_p] = _batch


def _is_saved(saveable: Callable[..., Any], plain: ClosedJaxpr) -> bool:
    """Return whether a policy of `jax.checkpoint` saves any of the plain operations, such as a convolution."""
    return any(
        saveable(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params) is True
        or any(isinstance(inner, ClosedJaxpr) and _is_saved(saveable, inner) for inner in eqn.params.values())
        for eqn in plain.jaxpr.eqns
    )


def _partially_evaluate(
    saveable: Callable[..., Any], is_unknown: Sequence[bool], is_recomputed: Sequence[bool], eqn: Any
) -> Any:
    """Save the results of an operation for the backward pass if the policy saves an operation of its plain form.

    Policies know JAX's primitives only, such as `dot_general`.

    Returns:
        The equation of the forward pass and that of the backward pass, either of them None; for each result, whether it
        is unknown in the forward pass and whether the backward pass has it without saving; and the values to save.
    """
    n = len(eqn.outvars)
    if not any(is_unknown) and _is_saved(saveable, eqn.params["plain"]):
        return eqn, None, [False] * n, [False] * n, []
    residuals = [v for v, has in zip(eqn.invars, is_recomputed, strict=True) if type(v) is Var and not has]
    return None if any(is_unknown) else eqn, eqn, [any(is_unknown)] * n, [True] * n, residuals


partial_eval.partial_eval_jaxpr_custom_rules[_operation_p] = _partially_evaluate
