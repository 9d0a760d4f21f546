"""Running a net's layers so that some of them are run again in the backward pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...graph import Graph, Layer
from ...kernels.gradient import with_gradient
from ...layers.calling import Backward
from ...sizes import in_words
from ..running import Given, Result, Values, run_layers
from .limit import available_memory
from .plan import Plan, make_plan
from .units import own, size, units_of

log = logging.getLogger("caffejax.net")

_TIMES_PARAMS = 3  # the parameters, their gradients and the solver's history


class Recomputing:
    """Runs a graph's layers, of which some keep nothing for the backward pass; memory decides which.

    Args:
        graph: the graph, without host layers.
        mode: how gradients are made.
        limit: bytes that training may take, parameters, gradients and history included; what the device has free
            unless given.
    """

    def __init__(self, graph: Graph, mode: Backward, limit: int | None = None) -> None:
        self._graph, self._mode, self._limit = graph, mode, limit
        self._plans: dict[Any, Plan] = {}

    def plan(self, given: Given) -> Plan:
        """What is run twice for arrays, or `jax.ShapeDtypeStruct`, of these shapes."""
        shapes = tuple((name, x.shape, x.dtype) for name, x in sorted(given.inputs.items()))
        if shapes not in self._plans:
            limit = available_memory(jax.devices()[0]) if self._limit is None else self._limit
            fixed = _TIMES_PARAMS * size(given.params) + size(given.state) + size(given.inputs)
            plan = make_plan(*units_of(self._graph, given, self._mode), limit, fixed)
            self._plans[shapes] = plan
            _log(plan, limit, len(self._graph.layers))
        return self._plans[shapes]

    def __call__(self, given: Given, wanted: Collection[str]) -> Result:
        """As `run_layers`, but of the blobs only those wanted, with their last value."""
        groups = self.plan(given._replace(probes={})).groups
        if len(groups) == 1:
            return run_layers(groups[0], given, {}, self._mode, self._graph.file)
        values: Values = {}
        state, total = dict(given.state), jnp.zeros(())
        for i, layers in enumerate(groups):
            later = {bottom for group in groups[i + 1 :] for layer in group for bottom in layer.bottoms}
            run: Callable[[Any, Any], Any] = partial(
                _run, layers, self._mode, self._graph.file, frozenset(later | set(wanted))
            )
            before = {name: values[name] for layer in layers for name in layer.bottoms if name in values}
            if i < len(groups) - 1:
                run = recomputed(run)
            (made, loss), new = run(own(layers, given._replace(state=state)), before)
            values = {name: v for name, v in values.items() if name in later or name in wanted} | made
            state |= new
            total += loss
        return Result(values, state, total)


def recomputed(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`run(given, before) -> (result, aux)`, which the backward pass runs again instead of keeping what it made.

    No gradient passes through `aux`. The second run waits for the diffs of the result; otherwise a compiler would see
    the same computation twice, do it once and keep everything. An optimization barrier, by which `jax.checkpoint`
    keeps the two apart, is gone before XLA settles on the CPU in which order to compute.
    """

    def forward(given: Any, before: Any) -> Any:
        return run(given, before), (given, before)

    def backward(saved: Any, diffs: Any, wanted: Any) -> Any:
        given, before = saved
        late = _nan_in(diffs[0])
        given = given._replace(inputs=_after(late, given.inputs))
        _, pull, _ = jax.vjp(run, given, _after(late, before), has_aux=True)
        return pull(diffs[0])

    return with_gradient(forward, backward)


def _nan_in(diffs: Any) -> jax.Array:
    """Whether the first number of any of the arrays is NaN: something that is known only when all of them are."""
    firsts = [x.ravel()[0] for x in jax.tree.leaves(diffs) if jnp.issubdtype(x.dtype, jnp.floating) and x.size]
    found: jax.Array = jnp.any(jnp.stack([jnp.isnan(x) for x in firsts]))
    return found


def _after(late: jax.Array, tree: Any) -> Any:
    """The same arrays, known only when `late` is. If that is true, NaN: so are the diffs, and so it shows."""

    def wait(x: jax.Array) -> jax.Array:
        return jnp.where(late, jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0, x).astype(x.dtype)

    return jax.tree.map(wait, tree)


def _run(
    layers: Sequence[Layer], mode: Backward, file: str | None, wanted: frozenset[str], given: Given, before: Values
) -> Any:
    result = run_layers(layers, given, before, mode, file)
    made = {top: result.values[top] for layer in layers for top in layer.tops if top in wanted}
    return (made, result.loss), result.state


def _log(plan: Plan, limit: int, layers: int) -> None:
    need, without = in_words(plan.peak), in_words(plan.without)
    if plan.recomputed:
        log.info(
            f"Recomputing {plan.recomputed} of {layers} layers in {len(plan.groups) - 1} groups: training takes about "
            f"{need} instead of {without}; the limit is {in_words(limit)}."
        )
    if not plan.fits:
        log.warning(
            f"training takes about {need}, more than the limit of {in_words(limit)}, even with recomputation; "
            "a smaller batch (and iter_size for more passes per update) takes less"
        )
