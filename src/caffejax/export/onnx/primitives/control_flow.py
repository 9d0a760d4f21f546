"""Converters for primitives that contain jaxprs: calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ..builder import Value, constant_value, node_output
from .converters import Equation, converts
from .shape_primitives import reverse_axes

_JAXPRS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "plain")


@converts(
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint", "caffejax_operation",
)  # fmt: skip
def call(eqn: Equation) -> list[Value]:
    """Convert a call by inlining the called jaxpr."""
    return eqn.inline(_close(next(eqn.params[name] for name in _JAXPRS if name in eqn.params)), eqn.inputs)


def _close(jaxpr: Any) -> Any:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


@converts("cond")
def cond(eqn: Equation) -> list[Value]:
    """Convert a choice of branches to nested Ifs. If the index is constant, convert only the chosen branch."""
    which, *operands = eqn.inputs
    branches = list(eqn.params["branches"])
    if which.number is not None:
        return eqn.inline(branches[int(np.clip(which.number, 0, len(branches) - 1))], operands)
    return _branch(eqn, which, branches, operands, 0)


def _branch(eqn: Equation, which: Value, branches: Sequence[Any], operands: Sequence[Value], at: int) -> list[Value]:
    """Add an If: the first of `branches` if the index is at most `at`, else a nested If for the other branches."""
    if len(branches) == 1:
        return eqn.inline(branches[0], operands)
    b = eqn.builder
    with b.subgraph() as first:
        first.set_outputs(eqn.inline(branches[0], operands))
    with b.subgraph() as others:
        others.set_outputs(_branch(eqn, which, branches[1:], operands, at + 1))
    names = _list(
        b.node(
            "If",
            [b.node("LessOrEqual", [b.cast(b.broadcast(which), np.int32), b.constant(np.int32(at))])],
            outputs=len(eqn.shapes),
            then_branch=first.proto("then"),
            else_branch=others.proto("else"),
        )
    )
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


@converts("platform_index")
def platform_index(eqn: Equation) -> Value:
    """Return the index of the default platform's branch, which comes last."""
    platforms = eqn.params["platforms"]
    return constant_value(np.int32(next((i for i, names in enumerate(platforms) if names is None), len(platforms) - 1)))


@converts("while")
def while_(eqn: Equation) -> list[Value]:
    """Convert a while loop to Loop with a condition."""
    p, b = eqn.params, eqn.builder
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    consts, start = eqn.inputs[: n_cond + n_body], eqn.inputs[n_cond + n_body :]
    cond, step, cond_consts, body_consts = p["cond_jaxpr"], p["body_jaxpr"], consts[:n_cond], consts[n_cond:]
    if cond.out_avals[0].shape:
        cond, step = _combine_batched_loops(cond, step, n_cond, n_body)
        cond_consts = body_consts = consts
    (first,) = eqn.inline(cond, [*cond_consts, *start])
    with b.subgraph([constant_value(np.int64(0)), constant_value(np.bool_(True)), *start]) as body:
        after = eqn.inline(step, [*body_consts, *body.inputs[2:]])
        (next_condition,) = eqn.inline(cond, [*cond_consts, *after])
        body.set_outputs([next_condition, *after])
    inputs = ["", b.broadcast(first), *map(b.broadcast, start)]
    names = _list(b.node("Loop", inputs, outputs=len(start), body=body.proto("body")))
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _combine_batched_loops(
    cond: ClosedJaxpr, body: ClosedJaxpr, n_cond: int, n_body: int
) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Merge the loops of a batched while loop (vmap) into one loop, which runs while any condition is true.

    Loops with a false condition keep their values. Both returned jaxprs, condition and body, take the constants of both
    original jaxprs.
    """

    def conditions(args: Sequence[Any]) -> jax.Array:
        (active,) = jaxpr_as_fun(cond)(*args[:n_cond], *args[n_cond + n_body :])
        return active

    def masked_body(*args: Any) -> list[jax.Array]:
        active, after = conditions(args), jaxpr_as_fun(body)(*args[n_cond:])
        masks = (jnp.expand_dims(active, range(active.ndim, x.ndim)) for x in after)
        return [jnp.where(*which) for which in zip(masks, after, args[n_cond + n_body :], strict=True)]

    avals = [*cond.in_avals[:n_cond], *body.in_avals]
    return jax.make_jaxpr(lambda *args: jnp.any(conditions(args)))(*avals), jax.make_jaxpr(masked_body)(*avals)


@converts("scan")
def scan(eqn: Equation) -> list[Value]:
    """Convert a scan to Loop over the items of the scanned arrays. The outputs of the iterations are stacked."""
    p, b = eqn.params, eqn.builder
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, start = eqn.inputs[:n_consts], eqn.inputs[n_consts : n_consts + n_carry]
    items = [b.expand(x) for x in eqn.inputs[n_consts + n_carry :]]
    with b.subgraph([constant_value(np.int64(0)), constant_value(np.bool_(True)), *start]) as body:
        number = body.inputs[0]
        if p["reverse"]:
            last = b.node("Sub", [b.node("Squeeze", [b.sizes.one(p["length"])]), b.constant(np.int64(1))])
            number = number.with_name(b.node("Sub", [last, b.broadcast(number)]))
        item_values = [
            node_output(b.node("Gather", [b.broadcast(x), b.broadcast(number)], axis=0), x.shape[1:], x.dtype)
            for x in items
        ]
        results = eqn.inline(p["jaxpr"], [*consts, *body.inputs[2:], *item_values])
        body.set_outputs([body.inputs[1], *results])
    inputs = [b.node("Squeeze", [b.sizes.one(p["length"])]), "", *map(b.broadcast, start)]
    names = _list(b.node("Loop", inputs, outputs=len(results), body=body.proto("body")))
    if p["reverse"]:
        names = [*names[:n_carry], *(reverse_axes(eqn, name, [0]) for name in names[n_carry:])]
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
