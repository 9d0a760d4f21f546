"""The interpreter: `run` goes through a schedule's parts, `compute` through a part's steps; no other loop does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..graph import Layer
from ..layers import across
from ..layers.calling import call_once_traced, fused_once_traced
from ..layers.checking import check_dtypes
from ..layers.dtypes import cast_inputs, matmul_precision
from ..layers.epilogue import Epilogue
from .schedule import Part, Schedule, Step

Values = dict[str, jax.Array]
Arrays = tuple[jax.Array, ...]
Trees = tuple[Mapping[str, Any], Mapping[str, Any]]  # params and state, as a net has them


class Given(NamedTuple):
    """What a pass is given: params, state, fed blobs, key, and zeros to add to blobs (see `Net.loss`)."""

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    inputs: Mapping[str, jax.Array]
    key: jax.Array | None
    taps: Mapping[str, jax.Array]


class Result(NamedTuple):
    """Blobs by name (with their last value), the state that was given with its changes, the weighted losses."""

    values: Values
    state: dict[str, Any]
    loss: jax.Array


class Runner(Protocol):
    """What runs a part, given just what it reads; of the blobs only those in `keep` are wanted, all if None."""

    def __call__(self, part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
        """Return the part's blobs, its state and its losses."""
        ...


def compute(part: Part, given: Given, before: Mapping[str, jax.Array], keep: frozenset[str] | None = None) -> Result:
    """Run a part's steps in order on the blobs in `before`; traceable unless there is a host layer among them."""
    values, state, total = dict(before), dict(given.state), jnp.zeros(())
    for step in part.steps:
        layer = step.first
        with jax.named_scope(layer.name), layer.located(), matmul_precision(layer.context):
            tops, new = _tops(step, given, state, values)
            tops = across.of_whole_batch(layer.context, tops)
        _write(layer, new, state)
        tops = tuple(
            # an in-place blob's diff is that of its first value
            top + given.taps[name].astype(top.dtype) if name in given.taps and name not in values else top
            for name, top in zip(layer.tops, tops, strict=True)
        )
        values.update(zip(layer.tops, tops, strict=True))
        for top, weight in zip(tops, layer.loss_weights, strict=True):
            if weight:
                loss = jnp.sum(top, dtype=jnp.promote_types(top.dtype, jnp.float32))
                total += weight * across.summed(layer.context, loss)  # once, of a top that all devices share
    made = part.makes if keep is None else part.makes & keep
    return Result({name: values[name] for name in values if name in made}, state, total)


def run(
    schedule: Schedule,
    given: Given,
    *,
    before: Mapping[str, jax.Array] = MappingProxyType({}),
    wanted: Collection[str] | None = None,
    runner: Runner = compute,
) -> Result:
    """Run a schedule.

    Args:
        schedule: the schedule.
        given: what the pass is given.
        before: of a range of layers, the blobs that were made before.
        wanted: the blobs to return; all unless given. The others are let go as soon as nothing reads them.
        runner: computes each part; a runner other than `compute` can also see its inputs and outputs.
    """
    result = Result(dict(before), dict(given.state), jnp.zeros(()))
    for _, _, so_far in run_parts(schedule, given, before=before, wanted=wanted, runner=runner):
        result = so_far
    return result


def run_parts(
    schedule: Schedule,
    given: Given,
    *,
    before: Mapping[str, jax.Array] = MappingProxyType({}),
    wanted: Collection[str] | None = None,
    runner: Runner = compute,
) -> Iterator[tuple[Part, Values, Result]]:
    """Run a schedule part by part; yield each part with the blobs that it read and the outputs so far."""
    values, state, total = dict(before), dict(given.state), jnp.zeros(())
    for i, part in enumerate(schedule.parts):
        keep = None if wanted is None else schedule.needed_after(i).union(wanted)
        reads = {name: values[name] for name in part.reads if name in values}
        found = runner(part, restricted(given._replace(state=state), part), reads, keep)
        values |= found.values
        if keep is not None:
            values = {name: value for name, value in values.items() if name in keep}
        state |= found.state
        total += found.loss
        yield part, reads, Result(dict(values), dict(state), total)


def restricted(given: Given, part: Part) -> Given:
    """Return what a part uses of all that is given."""
    return given._replace(
        params=part.using(given.params),
        state=part.using(given.state),
        inputs={name: value for name, value in given.inputs.items() if name in part.makes},
        taps={name: value for name, value in given.taps.items() if name in part.makes},
    )


def _tops(step: Step, given: Given, state: Mapping[str, Any], values: Mapping[str, jax.Array]) -> tuple[Arrays, Arrays]:
    """Return a step's tops, and the new state of its first layer."""
    layer, *taken = step.layers
    if layer.type.is_fed:
        return layer.finish([given.inputs[top] for top in layer.tops]), ()
    blobs, bottoms = inputs_of(layer, given.params, state, values)
    context = across.placed(layer.context, bottoms)
    if taken:
        epilogues = [Epilogue(other.context, _blobs(other, given.params, state)) for other in taken]
        return fused_once_traced(context, blobs, bottoms, epilogues)
    if layer.type.on_host:
        context = context.replace(propagate_down=layer.bottom_need_backward)
    return call_once_traced(context, layer.base_key(given.key), blobs, bottoms)


def inputs_of(
    layer: Layer, params: Mapping[str, Any], state: Mapping[str, Any], values: Mapping[str, jax.Array]
) -> tuple[Arrays, Arrays]:
    """Return a layer's blobs and bottoms, in the dtypes that it computes in."""
    bottoms = [
        jax.lax.stop_gradient(values[name]) if stops else values[name]
        for name, stops in zip(layer.bottoms, layer.gradient_stops, strict=True)
    ]
    check_dtypes(layer.context, layer.bottoms, bottoms)
    return cast_inputs(layer.context, _blobs(layer, params, state), bottoms)


def _blobs(layer: Layer, params: Mapping[str, Any], state: Mapping[str, Any]) -> Arrays:
    arrays = layer.arrays(params, state)
    return tuple(
        a if p.need_backward else jax.lax.stop_gradient(a) for p, a in zip(layer.all_params, arrays, strict=True)
    )


def _write(layer: Layer, new: Sequence[jax.Array], state: dict[str, Any]) -> None:
    """Put a layer's new statistics where the layers after it, which may share them, find them."""
    statistics = [p for p in layer.all_params if not p.spec.learnable]
    for param, value in zip(statistics, new, strict=False):
        state[param.owner.layer] = {**state[param.owner.layer], param.owner.index: value}
