"""Taps at every top and every use of a param: what each layer makes, and its diffs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..execution import Given, Part, Result, Values, one_by_one, run, run_parts, schedule_of
from ..execution.schedule import split_at_host_layers
from ..graph import Layer
from ..net import Net, Params

Tops = dict[str, list[jax.Array]]  # by layer key: one for each top, also where several layers work in one place


class Diffs(NamedTuple):
    """Gradients of the loss, by layer key.

    Attributes:
        bottoms: one for each bottom, of its value when the layer read it; None where it is not known.
        params: one for each param, this layer's share of it; None where no gradient is asked for.
    """

    bottoms: dict[str, list[jax.Array | None]]
    params: dict[str, list[jax.Array | None]]


class Taps:
    """Taps in one forward pass on given numbers.

    Args:
        net: the net.
        params, state, batch, key: as for `Net.loss`.
    """

    def __init__(
        self,
        net: Net,
        params: Params,
        state: Params,
        batch: Mapping[str, jax.Array],
        key: jax.Array,
    ) -> None:
        self._schedule = split_at_host_layers(one_by_one(schedule_of(net.graph)), trim=net.has_host_layers)
        self._runner = net.runner
        self._given = Given(params, state, batch, key, {})
        # a copy of what each layer reads, so that the shares of a shared param's gradient can be told apart
        self._params = {
            layer.key: {p.owner.layer: params[p.owner.layer] for p in layer.params if p.spec.learnable}
            for layer in net.graph.layers
        }

    def layers(self) -> Iterator[tuple[Layer, list[jax.Array], list[jax.Array]]]:
        """Run the layers one at a time; yield each with its bottoms and its tops."""
        for done in run_parts(self._schedule, self._given, runner=self._forward):
            (layer,) = done.part.layers
            yield layer, [done.reads[n] for n in layer.bottoms], [done.result.values[n] for n in layer.tops]

    def _forward(self, part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
        return self._runner(part, given, before, keep)

    def diffs(self, tops: Tops) -> Diffs:
        """Return all diffs of the pass whose tops these are (only their shapes matter)."""
        zeros = jax.tree.map(jnp.zeros_like, tops)
        param_diffs, top_diffs = jax.grad(self._loss, argnums=(0, 1))(self._params, zeros)
        made: dict[str, jax.Array] = {}  # the diffs of the blobs' values of the moment
        bottoms: dict[str, list[jax.Array | None]] = {}
        params: dict[str, list[jax.Array | None]] = {}
        for layer in self._schedule.graph.layers:
            bottoms[layer.key] = [made[name] for name in layer.bottoms]
            made |= zip(layer.tops, top_diffs[layer.key], strict=True)
            own = param_diffs[layer.key]
            params[layer.key] = [
                own[p.owner.layer][p.owner.index] if p.spec.learnable and p.need_backward else None
                for p in layer.params
            ]
        return Diffs(bottoms, params)

    def _loss(self, params: Any, taps: Tops) -> jax.Array:
        def with_taps(part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
            (layer,) = part.layers
            result = self._runner(part, given._replace(params=params[layer.key]), before, keep)
            values = {n: result.values[n] + tap for n, tap in zip(layer.tops, taps[layer.key], strict=True)}
            return result._replace(values=values)

        return run(self._schedule, self._given, runner=with_taps).loss
