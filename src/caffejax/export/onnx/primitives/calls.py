"""What runs other jaxprs: calls, loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ..values import Value, computed, known
from .registry import Equation, converts
from .shape import reversed_

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
    of_cond, of_body, start = eqn.inputs[:n_cond], eqn.inputs[n_cond : n_cond + n_body], eqn.inputs[n_cond + n_body :]
    (goes_on,) = eqn.inline(p["cond_jaxpr"], [*of_cond, *start])
    with b.subgraph([known(np.int64(0)), known(np.bool_(True)), *start]) as body:
        after = eqn.inline(p["body_jaxpr"], [*of_body, *body.inputs[2:]])
        (again,) = eqn.inline(p["cond_jaxpr"], [*of_cond, *after])
        body.give([again, *after])
    inputs = ["", b.whole(goes_on), *map(b.whole, start)]
    names = _list(b.node("Loop", inputs, outputs=len(start), body=body.proto("body")))
    return [computed(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


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
