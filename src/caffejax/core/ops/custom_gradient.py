"""Functions with a custom gradient that works under every transformation.

`jax.custom_vjp` has no forward mode. Here forward mode uses the transpose of the backward rule, so that one rule serves
both modes. Higher derivatives differentiate the backward rule itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .platform_dispatch import Arrays, has_tangent, mapped_size, move_to_front
from .vma import vary, varying_axes

Tree = Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class NeededDiffs:
    """Flags for the diffs of an operation that are needed.

    One call computes both diffs if both are needed. If there were two calls, XLA would run only one of them before it
    updates the weight in place, and would copy every weight at the start of a training step for the other call.

    Attributes:
        x: whether the input's diff is needed.
        weight: whether the weight's diff is needed.
    """

    x: bool
    weight: bool


def make_differentiable(
    forward: Callable[..., tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree, Sequence[Tree]], Sequence[Tree]],
    *,
    primal: Callable[..., Tree] | None = None,
) -> Callable[..., Tree]:
    """Return a function of pytrees of arrays with a custom gradient.

    Args:
        forward: `forward(*args)` returns `(result, residuals)`.
        backward: `backward(residuals, diffs, needed)` returns the diff of each argument, or None for zero. `diffs` has
            the structure of the result, with None for integer arrays. `needed` has the structure of the arguments, with
            a bool for each array: whether its diff is needed. `backward` must be linear in `diffs`.
        primal: `primal(*args)` returns the result in calls that are not differentiated. By default `forward` is called.
    """
    # the precision at this call; the derivative may be traced later
    precision = jax.config.values["jax_default_matmul_precision"]

    @jax.custom_jvp
    def call(*args: Tree) -> Tree:
        return forward(*args)[0] if primal is None else primal(*args)

    def jvp(primals: Sequence[Tree], tangents: Sequence[Tree]) -> tuple[Tree, Tree]:
        with jax.default_matmul_precision(precision):
            result, residuals = forward(*primals)
        tops, result_tree = _flatten(result)
        flat_residuals, residuals_tree = _flatten(residuals)
        flat_tangents = jax.tree.leaves(tangents)
        is_zero = [isinstance(t, jax.custom_derivatives.SymbolicZero) for t in flat_tangents]
        needed = _flatten(tuple(primals))[1].unflatten(not z for z in is_zero)
        is_differentiable = [has_tangent(top) for top in tops]  # a rule outlives the trace that `tops` belong to

        def rule(flat_residuals: Sequence[Array], *flat_diffs: Array) -> list[Array | None]:
            """Map the residuals and the diffs of floating-point results to the needed diffs of the arguments."""
            remaining_diffs = iter(flat_diffs)
            diffs = result_tree.unflatten(next(remaining_diffs) if d else None for d in is_differentiable)
            with jax.default_matmul_precision(precision), jax.numpy_rank_promotion("allow"):
                results = backward(residuals_tree.unflatten(flat_residuals), diffs, needed)
            needed_diffs: list[Array | None] = []
            for tree, needed_tree in zip(results, needed, strict=True):
                flags, structure = _flatten(needed_tree)
                leaves = [None] * len(flags) if tree is None else structure.flatten_up_to(tree)
                needed_diffs += [leaf for is_needed, leaf in zip(flags, leaves, strict=True) if is_needed]
            return needed_diffs

        nonzero_tangents = [t for t, z in zip(flat_tangents, is_zero, strict=True) if not z]
        results = iter(_compute_tangents(rule, flat_residuals, nonzero_tangents, tops))
        return result, result_tree.unflatten(
            next(results) if has_tangent(top) else np.zeros(top.shape, jax.dtypes.float0) for top in tops
        )

    call.defjvp(jvp, symbolic_zeros=True)
    return call


_tangent_p = Primitive("caffejax_tangent")
_tangent_p.multiple_results = True


def _compute_tangents(
    rule: Callable[..., Any], residuals: Sequence[Array], tangents: Sequence[Array], tops: Sequence[Array]
) -> Sequence[Array]:
    """Return the tangents of the floating-point tops, from the tangents of the arguments.

    Under `jax.shard_map`, all arrays inside the rule vary over the devices. In the transpose, each device then computes
    a part of the diff of a replicated argument, and JAX adds the parts outside of the rule.
    """
    types = tuple(jax.typeof(top) for top in tops if has_tangent(top))
    axes = frozenset[str]().union(*map(varying_axes, types))
    arrays = [vary(a, axes) for a in (*residuals, *tangents)]
    results: Sequence[Array] = _tangent_p.bind(*arrays, rule=rule, types=types, n_residuals=len(residuals))
    return results


def _evaluate(*arrays: Array, rule: Callable[..., Any], types: tuple[Any, ...], n_residuals: int) -> Sequence[Array]:
    residuals, tangents = arrays[:n_residuals], arrays[n_residuals:]

    def pull_back(*diffs: Array) -> Arrays:
        return tuple(
            jnp.zeros_like(t) if d is None else d for d, t in zip(rule(residuals, *diffs), tangents, strict=True)
        )

    results: Sequence[Array] = jax.linear_transpose(pull_back, *types)(tangents)
    return results


_tangent_p.def_impl(_evaluate)
_tangent_p.def_abstract_eval(lambda *_, types, **__: types)
mlir.register_lowering(_tangent_p, mlir.lower_fun(_evaluate, multiple_results=True))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, n_residuals: int, **params: Any) -> Any:
    run = partial(_tangent_p.bind, n_residuals=n_residuals, **params)
    tops = run(*primals)
    is_zero = [type(t) is ad.Zero for t in tangents]
    if all(is_zero[:n_residuals]):  # the operation is linear in the other arguments
        return tops, run(*primals[:n_residuals], *map(ad.instantiate_zeros, tangents[n_residuals:]))
    active_indices = [i for i, z in enumerate(is_zero) if not z]

    def evaluate_active(*active_primals: Array) -> Sequence[Array]:
        arguments = dict(enumerate(primals)) | dict(zip(active_indices, active_primals, strict=True))
        return _evaluate(*arguments.values(), n_residuals=n_residuals, **params)

    active_tangents = [tangents[i] for i in active_indices]
    return tops, jax.jvp(evaluate_active, [primals[i] for i in active_indices], active_tangents)[1]


ad.primitive_jvps[_tangent_p] = _jvp


def _transpose(cotangents: Sequence[Any], *arrays: Any, rule: Callable[..., Any], n_residuals: int, **_: Any) -> Any:
    results = rule(arrays[:n_residuals], *map(ad.instantiate_zeros, cotangents))
    types = [a.aval for a in arrays[n_residuals:]]
    diffs = (ad.Zero(t) if d is None else vary(d, varying_axes(t)) for d, t in zip(results, types, strict=True))
    return [*(None,) * n_residuals, *diffs]


ad.primitive_transposes[_tangent_p] = _transpose


def _batch(
    arrays: Sequence[Any],
    axes: Sequence[int | None],
    *,
    rule: Callable[..., Any],
    types: tuple[Any, ...],
    n_residuals: int,
) -> Any:
    size = mapped_size(arrays, axes)
    tangents = [move_to_front(t, axis, size) for t, axis in zip(arrays[n_residuals:], axes[n_residuals:], strict=True)]
    out_avals = jax.make_jaxpr(lambda *tops: [jnp.broadcast_to(t, (size, *t.shape)) for t in tops])(*types).out_avals

    def batched_rule(residuals: Sequence[Array], *diffs: Array) -> Any:
        return jax.vmap(rule, (tuple(axes[:n_residuals]), *(0,) * len(diffs)))(tuple(residuals), *diffs)

    results = _tangent_p.bind(
        *arrays[:n_residuals], *tangents, rule=batched_rule, types=tuple(out_avals), n_residuals=n_residuals
    )
    return results, (0,) * len(results)


batching.primitive_batchers[_tangent_p] = _batch


def _flatten(tree: Tree) -> tuple[list[Any], Any]:
    return jax.tree.flatten(tree)
