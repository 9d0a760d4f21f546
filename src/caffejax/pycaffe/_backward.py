"""Caffe's backward pass: from the last layer to the first, diffs of tops become diffs of bottoms and params."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..execution import Given, Part, Result, Values, compute
from ..execution.running import inputs_of
from ..graph import AUTOMATIC, Graph, Layer, Slot
from ..layers.calling import backward

Pullback = Callable[[Sequence[Any]], tuple[dict[Slot, jax.Array], Values]]


class Seeds(NamedTuple):
    """What a backward pass starts from: diffs of blobs, and diffs of params to add to (where they are not zero)."""

    blobs: Mapping[str, jax.Array]
    params: Mapping[Slot, jax.Array]


class Diffs(NamedTuple):
    """What a backward pass gives: the diffs of blobs asked for, and the new diffs of params."""

    blobs: Values
    params: dict[Slot, jax.Array]


class BackwardRange:
    """A range of layers on its way back.

    Attributes:
        low, high: indices of its first and last layer.
        reads: blobs whose diffs it starts from.
        writes: blobs whose diffs it computes.
        leaves: those of them that go on to layers before.
        owners: params whose diffs it adds to.
        differentiated: keys of its layers that do anything.
    """

    def __init__(self, graph: Graph, low: int, high: int) -> None:
        self.low, self.high = low, high
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        owners: dict[Slot, None] = {}
        layers = graph.layers[low : high + 1]
        taking_part = [layer for layer in layers if takes_part(layer)]
        for layer in reversed(taking_part):
            reads.update(dict.fromkeys(t for t in layer.tops if t not in writes and t != AUTOMATIC))
            writes.update(dict.fromkeys(_differentiated_bottoms(layer)))
            owners.update(dict.fromkeys(_differentiated_params(layer)))
        self.differentiated = frozenset(layer.key for layer in taking_part)
        made = {top for layer in layers for top in layer.tops}
        self.reads, self.writes, self.owners = tuple(reads), tuple(writes), tuple(owners)
        self.leaves = tuple(name for name in writes if name not in made)


def takes_part(layer: Layer) -> bool:
    """Return whether a layer does anything in a backward pass."""
    return (
        layer.need_backward
        and not layer.type.is_fed
        and bool(_differentiated_bottoms(layer) or _differentiated_params(layer))
    )


def with_pullback(part: Part, given: Given, before: Values, made: Mapping[str, jax.Array]) -> tuple[Result, Pullback]:
    """Run one layer forward; return the result and the pullback, from its tops' diffs to those of params and bottoms.

    The forward pass of a layer on the host must not run again: it has `made` these tops.
    """
    (layer,) = part.layers
    if layer.type.on_host:
        values = {top: made[top] for top in layer.tops}
        return Result(values, dict(given.state), jnp.zeros(())), _host_pullback(layer, given, before, values)
    owners, names = _differentiated_params(layer), _differentiated_bottoms(layer)

    def tops(params: Mapping[str, Any], bottoms: Values) -> Any:
        given_here = given._replace(params={**given.params, **params})
        result = compute(part, given_here, {**before, **bottoms})
        return tuple(result.values[top] for top in layer.tops), result

    own = {owner.layer: given.params[owner.layer] for owner in owners}
    found, vjp, result = jax.vjp(tops, own, {name: before[name] for name in names}, has_aux=True)

    def pullback(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        cotangents = tuple(_like(diff, top) for diff, top in zip(top_diffs, found, strict=True))
        with layer.located():
            params, bottoms = vjp(cotangents)
        return {owner: params[owner.layer][owner.index] for owner in owners}, bottoms

    return result, pullback


def pull_back(pullbacks: Sequence[tuple[Layer, Pullback]], seeds: Seeds) -> Diffs:
    """Apply the pullbacks of layers, given in the order in which those ran, from the last; return all diffs."""
    diffs, params = dict(seeds.blobs), dict(seeds.params)
    for layer, pullback in reversed(pullbacks):
        with jax.named_scope(f"{layer.name} backward"):
            tops = zip(layer.tops, layer.loss_weights, strict=True)
            param_diffs, bottom_diffs = pullback([weight if t == AUTOMATIC else diffs[t] for t, weight in tops])
        diffs.update(bottom_diffs)
        for owner, diff in param_diffs.items():
            params[owner] = params[owner] + diff if owner in params else diff
    return Diffs(diffs, params)


def _host_pullback(layer: Layer, given: Given, before: Values, made: Values) -> Pullback:
    def numpy(arrays: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(a) for a in arrays]

    def pullback(top_diffs: Sequence[Any]) -> tuple[dict[Slot, jax.Array], Values]:
        blobs, bottoms = inputs_of(layer, given.params, given.state, before)
        tops = [made[top] for top in layer.tops]
        cotangents = [_like(diff, top) for diff, top in zip(top_diffs, tops, strict=True)]
        context = replace(layer.context, base_key=layer.base_key(given.key), propagate_down=layer.bottom_need_backward)
        with layer.located():
            blob_diffs, bottom_diffs = backward(context, numpy(blobs), numpy(bottoms), numpy(tops), numpy(cotangents))
        wanted = set(_differentiated_params(layer)), set(_differentiated_bottoms(layer))
        owners = [p.owner for p in layer.params]
        return (
            {o: jnp.asarray(d) for o, d in zip(owners, blob_diffs, strict=True) if o in wanted[0]},
            {b: jnp.asarray(d) for b, d in zip(layer.bottoms, bottom_diffs, strict=True) if b in wanted[1]},
        )

    return pullback


def _differentiated_bottoms(layer: Layer) -> list[str]:
    return [name for name, need in zip(layer.bottoms, layer.bottom_need_backward, strict=True) if need]


def _differentiated_params(layer: Layer) -> list[Slot]:
    return [p.owner for p in layer.params if p.spec.learnable and p.need_backward]


def _like(diff: Any, top: jax.Array) -> jax.Array:
    """Return a top's diff in the top's own dtype and shape."""
    return jnp.broadcast_to(jnp.asarray(diff, top.dtype), top.shape)
