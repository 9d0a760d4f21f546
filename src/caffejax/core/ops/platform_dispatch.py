"""Operations with several implementations: one in plain XLA operations, and others tuned for one platform.

JAX sees an operation as one primitive. Transformations such as `jax.grad` and `jax.vmap` are applied to all of its
implementations. The implementation is chosen when the operation is lowered for a platform. Exported code uses only the
plain implementation, because the implementation for CPUs may call functions that other processes do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive, Var, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval

Arrays = tuple[Array, ...]
Function = Callable[..., Arrays]
BatchRule = Callable[[Function, Sequence[Array], Sequence[int | None]], Arrays | None]


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
            `batch_rule(operation, arrays, axes)` takes the operation, the arguments and the mapped axis of each, None
            for an argument that is not mapped. It returns the results with the mapped axis first, or None to map
            `plain`.
    """

    plain: Function
    cpu: Function
    gpu: Function | None = None
    tpu: Function | None = None
    partitioned: Function | None = None
    differentiable: bool = True
    batch_rule: BatchRule | None = None

    def __call__(self, *arrays: Array) -> Arrays:
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


def _fix_precision(function: Function | None) -> Function | None:
    precision = jax.config.values["jax_default_matmul_precision"]

    def run(*arrays: Array) -> Arrays:
        assert function is not None
        with jax.default_matmul_precision(precision):
            return function(*arrays)

    return function and run


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


def _evaluate(*arrays: Array, operation: PlatformOp, plain: ClosedJaxpr) -> Sequence[Array]:
    devices = {d for a in arrays if isinstance(a, Array) for d in a.devices()}
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


def _compute_tangents(function: Function, indices: Sequence[int], *arrays: Array) -> Arrays:
    """Return the tangents of the floating-point results of a function.

    `arrays` are the function's arguments, followed by the tangents of the arguments with the given indices.
    """
    operands, tangents = list(arrays[: -len(indices)]), arrays[-len(indices) :]

    def call_with_selected(*selected_arrays: Array) -> Arrays:
        for i, array in zip(indices, selected_arrays, strict=True):
            operands[i] = array
        return function(*operands)

    tops, results = jax.jvp(call_with_selected, tuple(operands[i] for i in indices), tangents)
    return tuple(t for top, t in zip(tops, results, strict=True) if has_tangent(top))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    tops = _operation_p.bind(*primals, operation=operation, plain=plain)
    indices = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]
    tangent_function = operation.map_implementations(lambda f: partial(_compute_tangents, f, indices), plain)
    results = iter(tangent_function(*primals, *(tangents[i] for i in indices)))
    return tops, [next(results) if has_tangent(top) else ad.Zero(jax.typeof(top).to_tangent_aval()) for top in tops]


def has_tangent(x: Any) -> bool:
    """Return whether an array has tangents, as arrays of inexact dtype have."""
    return jnp.issubdtype(x.dtype, jnp.inexact)


ad.primitive_jvps[_operation_p] = _jvp


def _compute_cotangents(
    function: Function, linear_arguments: Mapping[int, Any], num_arguments: int, *arrays: Array
) -> Arrays:
    """Return the cotangents of the arguments in which a function is linear, whose abstract values are given by index.

    `arrays` are the other arguments, followed by the cotangents of the results.
    """
    num_residuals = num_arguments - len(linear_arguments)

    def call_with_selected(*selected_arrays: Array) -> Arrays:
        operands, residuals = dict(zip(linear_arguments, selected_arrays, strict=True)), iter(arrays)
        return tuple(function(*(operands[i] if i in operands else next(residuals) for i in range(num_arguments))))

    results: Arrays = jax.linear_transpose(call_with_selected, *linear_arguments.values())(arrays[num_residuals:])
    return results


def _transpose(cotangents: Sequence[Any], *arrays: Any, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    linear_arguments = {i: a.aval for i, a in enumerate(arrays) if ad.is_undefined_primal(a)}
    transposed_function = operation.map_implementations(
        lambda f: partial(_compute_cotangents, f, linear_arguments, len(arrays)), plain
    )
    residuals = [a for a in arrays if not ad.is_undefined_primal(a)]
    results = iter(transposed_function(*residuals, *map(ad.instantiate_zeros, cotangents)))
    return [next(results) if i in linear_arguments else None for i in range(len(arrays))]


ad.primitive_transposes[_operation_p] = _transpose


def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, operation: PlatformOp, plain: ClosedJaxpr) -> Any:
    transform = partial(jax.vmap, in_axes=tuple(axes))
    mapped = operation.map_implementations(transform, plain)

    def run_by_rule(*arrays: Array) -> Arrays:
        assert operation.batch_rule is not None
        results = operation.batch_rule(operation, arrays, axes)
        return mapped(*arrays) if results is None else results

    run = mapped
    if operation.batch_rule is not None:
        # XLA cannot partition the mapped axis if it is merged with another, so other platforms and programs keep it
        gpu, tpu = (f and transform(f) for f in (operation.gpu, operation.tpu))
        run = PlatformOp(transform(jaxpr_as_fun(plain)), run_by_rule, gpu, tpu)
    results = run(*arrays)
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


def mapped_size(arrays: Sequence[Array], axes: Sequence[int | None]) -> int:
    """Return the size of the mapped axis; `axes` has None for each array that is not mapped."""
    return next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)


def move_to_front(x: Array, axis: int | None, size: int) -> Array:
    """Move `axis` to the front; if it is None, broadcast `x` to (size, *x.shape)."""
    return jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)


def merge_into_rows(x: Array) -> Array:
    """Reshape (size, rows, ...) to (size * rows, ...)."""
    return x.reshape(-1, *x.shape[2:])


def split_from_rows(x: Array, size: int) -> Array:
    """Reshape (size * rows, ...) to (size, rows, ...)."""
    return x.reshape(size, -1, *x.shape[1:])


def map_rows(
    operation: Callable[..., Sequence[Array]], arrays: Sequence[Array], axes: Sequence[int | None]
) -> tuple[Array, ...]:
    """Merge the mapped axis of each array into the rows, apply an operation, and split the axis off again."""
    size = mapped_size(arrays, axes)
    rows = (merge_into_rows(move_to_front(a, axis, size)) for a, axis in zip(arrays, axes, strict=True))
    return tuple(split_from_rows(result, size) for result in operation(*rows))


def merge_into_channels(x: Array) -> Array:
    """Transpose and reshape (size, batch, channels, ...) to (batch, size * channels, ...)."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])


def split_from_channels(x: Array, size: int) -> Array:
    """Transpose and reshape (batch, size * channels, ...) to (size, batch, channels, ...)."""
    return jnp.moveaxis(x.reshape(x.shape[0], size, -1, *x.shape[2:]), 1, 0)
