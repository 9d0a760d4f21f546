"""A net's loss with a tap at every top and every use of a blob: what each layer makes, and its diffs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..graph import Layer
from ..net import Net, Params
from ..schedule.running import Given, run_layers

Tops = dict[str, list[jax.Array]]  # by layer key: one for each top, also where several layers work in one place


class Diffs(NamedTuple):
    """Gradients of the loss, by layer key.

    Attributes:
        bottoms: one for each bottom, of its value when the layer read it.
        blobs: one for each param, this layer's share of it; None where no gradient is asked for.
    """

    bottoms: Tops
    blobs: dict[str, list[jax.Array | None]]


class Tapped:
    """One forward pass on given numbers, layer by layer.

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
        self._net, self._state, self._batch, self._key = net, state, batch, key
        # a copy of what each layer reads, so that the shares of a shared blob's gradient can be told apart
        self._blobs = {
            layer.key: {p.owner.layer: params[p.owner.layer] for p in layer.params if p.spec.learnable}
            for layer in net.graph.layers
        }

    def run(self, layer: Layer, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The blobs after one more layer."""
        return self._run(layer, self._blobs[layer.key], values).values

    def diffs(self, tops: Tops) -> Diffs:
        """All diffs of the pass whose tops these are (only their shapes matter)."""
        zeros = jax.tree.map(jnp.zeros_like, tops)
        blob_diffs, top_diffs = jax.grad(self._loss, argnums=(0, 1))(self._blobs, zeros)
        made: dict[str, jax.Array] = {}  # the diffs of the blobs' values of the moment
        bottoms: Tops = {}
        blobs: dict[str, list[jax.Array | None]] = {}
        for layer in self._net.graph.layers:
            bottoms[layer.key] = [made[name] for name in layer.bottoms]
            made |= zip(layer.tops, top_diffs[layer.key], strict=True)
            own = blob_diffs[layer.key]
            blobs[layer.key] = [
                own[p.owner.layer][p.owner.index] if p.spec.learnable and p.need_backward else None
                for p in layer.params
            ]
        return Diffs(bottoms, blobs)

    def _loss(self, blobs: Any, taps: Any) -> jax.Array:
        values: dict[str, jax.Array] = {}
        total = jnp.zeros(())
        for layer in self._net.graph.layers:
            result = self._run(layer, blobs[layer.key], values)
            tapped = [result.values[n] + tap for n, tap in zip(layer.tops, taps[layer.key], strict=True)]
            values = {**result.values, **dict(zip(layer.tops, tapped, strict=True))}
            total += result.loss
        return total

    def _run(self, layer: Layer, blobs: Any, values: Mapping[str, jax.Array]) -> Any:
        given = Given(blobs, self._state, self._batch, self._key, {})
        return run_layers((layer,), given, values, self._net.backward, self._net.graph.file)
