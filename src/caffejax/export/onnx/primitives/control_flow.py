"""What runs other jaxprs: calls, loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ..builder import Value, computed, known
from .converters import Equation, converts
from .shape_primitives import reversed_

_JAXPRS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "plain")


@converts(
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint", "caffejax_operation",
)  # fmt: skip
def call(eqn: Equation) -> list[Value]:
    """What is called, in the place of the call."""
    return eqn.inline(_closed(next(eqn.params[name] for name in _JAXPRS if name in eqn.params)), eqn.inputs)


def _closed(jaxpr: Any) -> Any:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


@converts("cond")
def cond(eqn: Equation) -> list[Value]:
    """One of several branches."""
    which, *operands = eqn.inputs
    branches = list(eqn.params["branches"])
    if which.number is not None:
        return eqn.inline(branches[int(np.clip(which.number, 0, len(branches) - 1))], operands)
    return _branch(eqn, which, branches, operands, 0)


def _branch(eqn: Equation, which: Value, branches: Sequence[Any], operands: Sequence[Value], at: int) -> list[Value]:
    """If the number is no more than `at`, the first branch; else, likewise, one of the others."""
    if len(branches) == 1:
        return eqn.inline(branches[0], operands)
    b = eqn.builder
    with b.subgraph() as first:
        first.give(eqn.inline(branches[0], operands))
    with b.subgraph() as others:
        others.give(_branch(eqn, which, branches[1:], operands, at + 1))
    names = _list(
        b.node(
            "If",
            [b.node("LessOrEqual", [b.cast(b.whole(which), np.int32), b.constant(np.int32(at))])],
            outputs=len(eqn.shapes),
            then_branch=first.proto("then"),
            else_branch=others.proto("else"),
        )
    )
    return [computed(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


@converts("platform_index")
def platform_index(eqn: Equation) -> Value:
    """Which platform's branch runs: the one of all others, which comes last."""
    platforms = eqn.params["platforms"]
    return known(np.int32(next((i for i, names in enumerate(platforms) if names is None), len(platforms) - 1)))


@converts("while")
def while_(eqn: Equation) -> list[Value]:
    """As long as a condition holds."""
    p, b = eqn.params, eqn.builder
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    consts, start = eqn.inputs[: n_cond + n_body], eqn.inputs[n_cond + n_body :]
    goes_on, step, of_cond, of_body = p["cond_jaxpr"], p["body_jaxpr"], consts[:n_cond], consts[n_cond:]
    if goes_on.out_avals[0].shape:
        goes_on, step = _in_step(goes_on, step, n_cond, n_body)
        of_cond = of_body = consts
    (first,) = eqn.inline(goes_on, [*of_cond, *start])
    with b.subgraph([known(np.int64(0)), known(np.bool_(True)), *start]) as body:
        after = eqn.inline(step, [*of_body, *body.inputs[2:]])
        (again,) = eqn.inline(goes_on, [*of_cond, *after])
        body.give([again, *after])
    inputs = ["", b.whole(first), *map(b.whole, start)]
    names = _list(b.node("Loop", inputs, outputs=len(start), body=body.proto("body")))
    return [computed(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _in_step(cond: ClosedJaxpr, body: ClosedJaxpr, n_cond: int, n_body: int) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Make one loop of many, as vmap has them: it goes on while any does, and those that do not stay as they are.

    Both results take the constants of both.
    """

    def each(given: Sequence[Any]) -> jax.Array:
        (on,) = jaxpr_as_fun(cond)(*given[:n_cond], *given[n_cond + n_body :])
        return on

    def stepped(*given: Any) -> list[jax.Array]:
        on, after = each(given), jaxpr_as_fun(body)(*given[n_cond:])
        ons = (jnp.expand_dims(on, range(on.ndim, x.ndim)) for x in after)
        return [jnp.where(*which) for which in zip(ons, after, given[n_cond + n_body :], strict=True)]

    avals = [*cond.in_avals[:n_cond], *body.in_avals]
    return jax.make_jaxpr(lambda *given: jnp.any(each(given)))(*avals), jax.make_jaxpr(stepped)(*avals)


@converts("scan")
def scan(eqn: Equation) -> list[Value]:
    """So many times, each with one item of what is gone through; what each makes is stacked."""
    p, b = eqn.params, eqn.builder
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, start = eqn.inputs[:n_consts], eqn.inputs[n_consts : n_consts + n_carry]
    items = [b.expanded(x) for x in eqn.inputs[n_consts + n_carry :]]
    with b.subgraph([known(np.int64(0)), known(np.bool_(True)), *start]) as body:
        number = body.inputs[0]
        if p["reverse"]:
            last = b.node("Sub", [b.node("Squeeze", [b.sizes.one(p["length"])]), b.constant(np.int64(1))])
            number = number.named(b.node("Sub", [last, b.whole(number)]))
        own = [computed(b.node("Gather", [b.whole(x), b.whole(number)], axis=0), x.shape[1:], x.dtype) for x in items]
        results = eqn.inline(p["jaxpr"], [*consts, *body.inputs[2:], *own])
        body.give([body.inputs[1], *results])
    inputs = [b.node("Squeeze", [b.sizes.one(p["length"])]), "", *map(b.whole, start)]
    names = _list(b.node("Loop", inputs, outputs=len(results), body=body.proto("body")))
    if p["reverse"]:
        names = [*names[:n_carry], *(reversed_(eqn, name, [0]) for name in names[n_carry:])]
    return [computed(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
