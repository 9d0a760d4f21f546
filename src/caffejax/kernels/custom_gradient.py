"""A function with a gradient of its own, under every transformation.

`jax.custom_vjp` has no forward mode. Here the tangent is the transpose of the gradient's own rule, so that one rule
serves both ways, and higher derivatives differentiate the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .platform_dispatch import has_tangent
from .vma import vary, varying

Arrays = tuple[jax.Array, ...]
Tree = Any


def with_gradient(
    forward: Callable[..., tuple[Tree, Tree]],
    backward: Callable[[Tree, Tree, Sequence[Tree]], Sequence[Tree]],
    *,
    alone: Callable[..., Tree] | None = None,
) -> Callable[..., Tree]:
    """Make a function of pytrees of arrays that is differentiated by `backward`.

    Args:
        forward: the function's arguments to its result and the residuals that `backward` needs.
        backward: `(residuals, diffs, wanted)` to a diff for each argument, None for zero. `diffs` is like the result,
            None where that holds integers; `wanted` is like the arguments, with a bool for each array. Linear in
            `diffs`.
        alone: how the result is computed where there is nothing to differentiate.
    """
    precision = jax.config.values["jax_default_matmul_precision"]  # of the moment; differentiated is later

    @jax.custom_jvp
    def call(*args: Tree) -> Tree:
        return forward(*args)[0] if alone is None else alone(*args)

    def jvp(primals: Sequence[Tree], tangents: Sequence[Tree]) -> tuple[Tree, Tree]:
        with jax.default_matmul_precision(precision):
            result, residuals = forward(*primals)
        tops, result_tree = _flat(result)
        residuals, residuals_tree = _flat(residuals)
        every = jax.tree.leaves(tangents)
        zero = [isinstance(t, jax.custom_derivatives.SymbolicZero) for t in every]
        wanted = _flat(primals)[1].unflatten(not z for z in zero)
        rule = _Rule(backward, residuals_tree, result_tree, tuple(map(has_tangent, tops)), tuple(wanted), precision)
        found = iter(_tangents(rule, residuals, [t for t, z in zip(every, zero, strict=True) if not z], tops))
        return result, result_tree.unflatten(
            next(found) if has_tangent(top) else np.zeros(top.shape, jax.dtypes.float0) for top in tops
        )

    call.defjvp(jvp, symbolic_zeros=True)
    return call


@dataclass(frozen=True, eq=False)
class _Rule:
    """`backward` between flat lists: residuals and diffs of what is not integer, to the diffs that are wanted."""

    backward: Callable[..., Any]
    residuals: Any
    result: Any
    differ: tuple[bool, ...]
    wanted: Sequence[Tree]
    precision: str | None

    def __call__(self, residuals: Sequence[jax.Array], *diffs: jax.Array) -> tuple[jax.Array | None, ...]:
        given = iter(diffs)
        result = self.result.unflatten(next(given) if d else None for d in self.differ)
        with jax.default_matmul_precision(self.precision):
            found = self.backward(self.residuals.unflatten(residuals), result, self.wanted)
        flat: list[jax.Array | None] = []
        for tree, wanted in zip(found, self.wanted, strict=True):
            wants, structure = _flat(wanted)
            each = [None] * len(wants) if tree is None else structure.flatten_up_to(tree)
            flat += [d for want, d in zip(wants, each, strict=True) if want]
        return tuple(flat)


_tangent = Primitive("caffejax_tangent")
_tangent.multiple_results = True


def _tangents(
    rule: _Rule, residuals: Sequence[jax.Array], tangents: Sequence[jax.Array], tops: Sequence[jax.Array]
) -> Sequence[jax.Array]:
    """Return tangents of those tops that have any.

    Under `jax.shard_map` the rule works on what differs between devices only: where it is used as a transpose, what
    it gives for an argument that all devices share is each device's part, and is added up outside of it.
    """
    types = tuple(jax.typeof(top) for top in tops if has_tangent(top))
    axes = frozenset[str]().union(*map(varying, types))
    arrays = [vary(a, axes) for a in (*residuals, *tangents)]
    found: Sequence[jax.Array] = _tangent.bind(*arrays, rule=rule, types=types, known=len(residuals))
    return found


def _evaluate(*arrays: jax.Array, rule: Callable[..., Any], types: tuple[Any, ...], known: int) -> Sequence[jax.Array]:
    residuals, tangents = arrays[:known], arrays[known:]

    def back(*diffs: jax.Array) -> Arrays:
        return tuple(
            jnp.zeros_like(t) if d is None else d for d, t in zip(rule(residuals, *diffs), tangents, strict=True)
        )

    found: Sequence[jax.Array] = jax.linear_transpose(back, *types)(tangents)
    return found


_tangent.def_impl(_evaluate)
_tangent.def_abstract_eval(lambda *_, types, **__: types)
mlir.register_lowering(_tangent, mlir.lower_fun(_evaluate, multiple_results=True))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, known: int, **how: Any) -> Any:
    run = partial(_tangent.bind, known=known, **how)
    tops = run(*primals)
    zero = [type(t) is ad.Zero for t in tangents]
    if all(zero[:known]):  # linear in the rest
        return tops, run(*primals[:known], *map(ad.instantiate_zeros, tangents[known:]))
    which = [i for i, z in enumerate(zero) if not z]

    def of_some(*some: jax.Array) -> Sequence[jax.Array]:
        given = dict(enumerate(primals)) | dict(zip(which, some, strict=True))
        return _evaluate(*given.values(), known=known, **how)

    return tops, jax.jvp(of_some, [primals[i] for i in which], [tangents[i] for i in which])[1]


ad.primitive_jvps[_tangent] = _jvp


def _transpose(cotangents: Sequence[Any], *arrays: Any, rule: Callable[..., Any], known: int, **_: Any) -> Any:
    found = rule(arrays[:known], *map(ad.instantiate_zeros, cotangents))
    types = [a.aval for a in arrays[known:]]
    diffs = (ad.Zero(t) if d is None else vary(d, varying(t)) for d, t in zip(found, types, strict=True))
    return [*(None,) * known, *diffs]


ad.primitive_transposes[_tangent] = _transpose


@dataclass(frozen=True, eq=False)
class _Mapped:
    """A rule mapped over an axis that some residuals have, and all diffs have first."""

    rule: Callable[..., Any]
    axes: tuple[int | None, ...]

    def __call__(self, residuals: Sequence[jax.Array], *diffs: jax.Array) -> Any:
        return jax.vmap(self.rule, (self.axes, *(0,) * len(diffs)))(tuple(residuals), *diffs)


def _batch(
    arrays: Sequence[Any], axes: Sequence[int | None], *, rule: Callable[..., Any], types: tuple[Any, ...], known: int
) -> Any:
    (size,) = {a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None}
    tangents = [
        jnp.broadcast_to(t, (size, *t.shape)) if axis is None else jnp.moveaxis(t, axis, 0)
        for t, axis in zip(arrays[known:], axes[known:], strict=True)
    ]
    larger = jax.make_jaxpr(lambda *tops: [jnp.broadcast_to(t, (size, *t.shape)) for t in tops])(*types).out_avals
    mapped = _Mapped(rule, tuple(axes[:known]))
    found = _tangent.bind(*arrays[:known], *tangents, rule=mapped, types=tuple(larger), known=known)
    return found, (0,) * len(found)


batching.primitive_batchers[_tangent] = _batch


def _flat(tree: Tree) -> tuple[list[Any], Any]:
    return jax.tree.flatten(tree)
