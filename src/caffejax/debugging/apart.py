"""Taps in a pass in which each layer reads numbers that are given, not what the layers before it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..execution import Given, Part, Result, Values, run
from ..net import Net, Params
from .taps import Diffs, Taps

Named = Mapping[str, Mapping[str, Any]]  # arrays by layer key and blob


class Apart(NamedTuple):
    """What layers read, each by itself: what is not given for one is what the layers before it made.

    Attributes:
        bottoms: of each layer, the values of its bottoms.
        top_diffs: of each layer, the diffs of its tops; a layer without any has no backward pass.
    """

    bottoms: Named
    top_diffs: Named


class ApartTaps(Taps):
    """Taps in such a pass; the diffs are those of each layer's backward pass by itself.

    Args:
        net, params, state, batch, key: as for `Taps`.
        apart: what the layers read.
    """

    def __init__(
        self, net: Net, params: Params, state: Params, batch: Mapping[str, jax.Array], key: jax.Array, apart: Apart
    ) -> None:
        super().__init__(net, params, state, batch, key)
        self._apart = apart

    def _forward(self, part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
        (layer,) = part.layers
        return self._runner(part, given, before | dict(self._apart.bottoms.get(layer.key, {})), keep)

    def diffs(self, tops: Any) -> Diffs:
        """Return the diffs of what the layers read, None for bottoms that are not given, and of their params."""
        bottoms = {key: dict(blobs) for key, blobs in self._apart.bottoms.items()}
        param_diffs, bottom_diffs = jax.grad(self._weighted, argnums=(0, 1))(self._params, bottoms)
        layers = self._schedule.graph.layers
        own = {layer.key: bottom_diffs.get(layer.key, {}) for layer in layers if self._apart.top_diffs.get(layer.key)}
        return Diffs(
            {layer.key: [own.get(layer.key, {}).get(name) for name in layer.bottoms] for layer in layers},
            {
                layer.key: [
                    param_diffs[layer.key][p.owner.layer][p.owner.index]
                    if p.spec.learnable and p.need_backward and layer.key in own
                    else None
                    for p in layer.params
                ]
                for layer in layers
            },
        )

    def _weighted(self, params: Any, bottoms: Any) -> jax.Array:
        """Add up all tops, weighted by their diffs: the gradient of this is what the layers' backward passes give."""
        total = jnp.zeros(())

        def weighted(part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
            nonlocal total
            (layer,) = part.layers
            read = jax.lax.stop_gradient(before) | bottoms.get(layer.key, {})
            result = self._runner(part, given._replace(params=params[layer.key]), read, keep)
            for name, diff in self._apart.top_diffs.get(layer.key, {}).items():
                total += jnp.vdot(result.values[name].astype(diff.dtype), diff)
            return result

        run(self._schedule, self._given, runner=weighted)
        return total
