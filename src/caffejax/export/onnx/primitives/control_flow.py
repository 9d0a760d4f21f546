"""Converters for primitives that contain jaxprs: calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ..onnx_builder import OnnxValue, constant_value, node_output
from .converters import Equation, register_converter, unsupported_error
from .shape_primitives import reverse_axes

_JAXPR_PARAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "plain")


@register_converter(
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint", "caffejax_operation",
)  # fmt: skip
def inline_call(eqn: Equation) -> list[OnnxValue]:
    """Convert the equations of the called function where it is called."""
    return eqn.inline(_close_jaxpr(next(eqn.params[name] for name in _JAXPR_PARAMS if name in eqn.params)), eqn.inputs)


def _close_jaxpr(jaxpr: Any) -> Any:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


@register_converter("cond")
def cond(eqn: Equation) -> list[OnnxValue]:
    """Convert a choice of branches by index to nested Ifs. If the index is constant, convert only that branch."""
    index, *operands = eqn.inputs
    branches = list(eqn.params["branches"])
    if index.uniform_value is not None:
        return eqn.inline(branches[int(np.clip(index.uniform_value, 0, len(branches) - 1))], operands)
    return _emit_branches(eqn, index, branches, operands, 0)


def _emit_branches(
    eqn: Equation, index: OnnxValue, branches: Sequence[Any], operands: Sequence[OnnxValue], first_index: int
) -> list[OnnxValue]:
    """Add nested Ifs that run the branch with the number `index`; return its results.

    Args:
        eqn: the equation.
        index: the number of the branch to run.
        branches: the branches from number `first_index` on, as closed jaxprs.
        operands: the operands of the branches.
        first_index: the number of the first of these branches. It also runs if the index is lower.
    """
    if len(branches) == 1:
        return eqn.inline(branches[0], operands)
    b = eqn.builder
    with b.subgraph() as first_graph:
        first_graph.set_outputs(eqn.inline(branches[0], operands))
    with b.subgraph() as remaining_graph:
        remaining_graph.set_outputs(_emit_branches(eqn, index, branches[1:], operands, first_index + 1))
    names = _as_list(
        b.add_node(
            "If",
            [
                b.add_node(
                    "LessOrEqual", [b.cast(b.add_broadcast(index), np.int32), b.add_constant(np.int32(first_index))]
                )
            ],
            num_outputs=len(eqn.shapes),
            then_branch=first_graph.make_proto("then"),
            else_branch=remaining_graph.make_proto("else"),
        )
    )
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


@register_converter("platform_index")
def platform_index(eqn: Equation) -> OnnxValue:
    """Return the index of the branch that names no platforms, or of the last branch if each names some."""
    platforms = eqn.params["platforms"]
    return constant_value(np.int32(next((i for i, names in enumerate(platforms) if names is None), len(platforms) - 1)))


@register_converter("while")
def while_(eqn: Equation) -> list[OnnxValue]:
    """Convert a while loop to a Loop with a condition."""
    p, b = eqn.params, eqn.builder
    if "Loop" in b.engine.lacks:
        raise unsupported_error(
            f"it has a loop whose number of rounds depends on the data, and {b.engine.title} takes no loops"
        )
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    consts, initial_state = eqn.inputs[: n_cond + n_body], eqn.inputs[n_cond + n_body :]
    cond_jaxpr, body_jaxpr, cond_consts, body_consts = (
        p["cond_jaxpr"],
        p["body_jaxpr"],
        consts[:n_cond],
        consts[n_cond:],
    )
    if cond_jaxpr.out_avals[0].shape:
        cond_jaxpr, body_jaxpr = _combine_batched_loops(cond_jaxpr, body_jaxpr, n_cond, n_body)
        cond_consts = body_consts = consts
    (condition,) = eqn.inline(cond_jaxpr, [*cond_consts, *initial_state])
    with b.subgraph([constant_value(np.int64(0)), constant_value(np.bool_(True)), *initial_state]) as body:
        new_state = eqn.inline(body_jaxpr, [*body_consts, *body.inputs[2:]])
        (next_condition,) = eqn.inline(cond_jaxpr, [*cond_consts, *new_state])
        body.set_outputs([next_condition, *new_state])
    inputs = ["", b.add_broadcast(condition), *map(b.add_broadcast, initial_state)]
    names = _as_list(b.add_node("Loop", inputs, num_outputs=len(initial_state), body=body.make_proto("body")))
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _combine_batched_loops(
    cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr, n_cond: int, n_body: int
) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """Return the condition and body of one loop that replaces a while loop with a condition for each example.

    Such batched loops come from vmap. The new loop runs while the condition of any example is true; examples whose
    condition is false keep their values. Both returned jaxprs take the constants of the original condition, the
    constants of the original body, and the state of the loop.
    """

    def evaluate_conditions(args: Sequence[Any]) -> jax.Array:
        (is_active,) = jaxpr_as_fun(cond_jaxpr)(*args[:n_cond], *args[n_cond + n_body :])
        return is_active

    def masked_body(*args: Any) -> list[jax.Array]:
        is_active, new_state = evaluate_conditions(args), jaxpr_as_fun(body_jaxpr)(*args[n_cond:])
        masks = (jnp.expand_dims(is_active, range(is_active.ndim, x.ndim)) for x in new_state)
        return [jnp.where(*arrays) for arrays in zip(masks, new_state, args[n_cond + n_body :], strict=True)]

    avals = [*cond_jaxpr.in_avals[:n_cond], *body_jaxpr.in_avals]
    return jax.make_jaxpr(lambda *args: jnp.any(evaluate_conditions(args)))(*avals), jax.make_jaxpr(masked_body)(*avals)


@register_converter("scan")
def scan(eqn: Equation) -> list[OnnxValue]:
    """Convert a scan to a Loop over the items of the scanned arrays, which stacks the outputs of the iterations.

    For an engine without Loop, the iterations are unrolled.
    """
    p, b = eqn.params, eqn.builder
    n_consts, n_carry = p["num_consts"], p["num_carry"]
    consts, initial_state = eqn.inputs[:n_consts], eqn.inputs[n_consts : n_consts + n_carry]
    items = [b.expand(x) for x in eqn.inputs[n_consts + n_carry :]]
    if "Loop" in b.engine.lacks:
        return _unroll(eqn, consts, initial_state, items, n_carry)
    with b.subgraph([constant_value(np.int64(0)), constant_value(np.bool_(True)), *initial_state]) as body:
        iteration = body.inputs[0]
        if p["reverse"]:
            last_iteration = b.add_node(
                "Sub", [b.add_node("Squeeze", [b.sizes.add_size_vector(p["length"])]), b.add_constant(np.int64(1))]
            )
            iteration = iteration.with_name(b.add_node("Sub", [last_iteration, b.add_broadcast(iteration)]))
        item_values = [
            node_output(
                b.add_node("Gather", [b.add_broadcast(x), b.add_broadcast(iteration)], axis=0), x.shape[1:], x.dtype
            )
            for x in items
        ]
        results = eqn.inline(p["jaxpr"], [*consts, *body.inputs[2:], *item_values])
        body.set_outputs([body.inputs[1], *results])
    inputs = [b.add_node("Squeeze", [b.sizes.add_size_vector(p["length"])]), "", *map(b.add_broadcast, initial_state)]
    names = _as_list(b.add_node("Loop", inputs, num_outputs=len(results), body=body.make_proto("body")))
    if p["reverse"]:
        names = [*names[:n_carry], *(reverse_axes(eqn, name, [0]) for name in names[n_carry:])]
    return [node_output(*result) for result in zip(names, eqn.shapes, eqn.dtypes, strict=True)]


def _unroll(
    eqn: Equation, consts: Sequence[OnnxValue], state: Sequence[OnnxValue], items: Sequence[OnnxValue], n_carry: int
) -> list[OnnxValue]:
    """Add the nodes of each iteration of a scan; return the last state and the stacked outputs."""
    p, b = eqn.params, eqn.builder
    if not isinstance(p["length"], int):
        raise unsupported_error(
            f"it has a loop over a length that is chosen at run time, and {b.engine.title} takes no loops"
        )
    outputs: list[list[OnnxValue]] = []
    for i in reversed(range(p["length"])) if p["reverse"] else range(p["length"]):
        index = b.add_constant(np.int64(i))
        current_items = [
            node_output(b.add_node("Gather", [b.add_broadcast(x), index], axis=0), x.shape[1:], x.dtype) for x in items
        ]
        results = eqn.inline(p["jaxpr"], [*consts, *state, *current_items])
        state = results[:n_carry]
        outputs.append(results[n_carry:])
    if p["reverse"]:
        outputs.reverse()
    stacked = []
    for parts in zip(*outputs, strict=True):
        rows = [b.add_node("Unsqueeze", [b.add_broadcast(v), b.add_int64_vector([0])]) for v in parts]
        name = b.add_node("Concat", rows, axis=0)
        stacked.append(node_output(name, (len(rows), *parts[0].shape), parts[0].dtype))
    return [*state, *stacked]


def _as_list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
