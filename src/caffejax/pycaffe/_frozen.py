"""Forward passes over a net's first layers, or all, by the net frozen, for as long as its params stay the same."""

from __future__ import annotations

from operator import is_
from typing import Any

import jax

from .. import net as pure
from ..net.frozen_passes import FrozenPasses, frozen_passes, scored_blobs
from ._range import Args, Forward, LayerRange

_AT_ONCE = 2  # changes of params after which a net is frozen again at once: it has been edited
_PATIENCE = 16  # passes after a further change until it is frozen again; twice as many after each more
_KEPT = 4  # sets of blobs that it is frozen for


class FrozenForward:
    """Freezes a range of a net's layers for the blobs that are wanted, and again when params change.

    JAX's arrays never change: as long as a pass is given the very arrays that the net was frozen with, they are equal.
    Each write to a param makes a new one, and so does each pass while somebody holds a view.

    Args:
        net: the net.
        layers: the range; one that does not begin with the first layer, or ends within a net and has losses, or has
            layers on the host, is not frozen.
    """

    def __init__(self, net: pure.Net, layers: LayerRange) -> None:
        self._whole = layers.last == len(net.graph.layers) - 1
        self._net = net if self._whole or layers.first else net.first_layers(layers.last)
        some = scored_blobs(net.graph) if self._whole else layers.leaves
        self._scored = frozenset(name for name in some if name not in net.graph.fed)
        able = layers.first == 0 and (self._whole or not any(any(layer.loss_weights) for layer in layers.layers))
        self._possible = able and bool(self._scored) and not layers.on_host
        self._arrays: list[Any] = []
        self._passes: dict[frozenset[str], FrozenPasses] = {}  # by the blobs that they give
        self._changes = self._waited = 0
        self._fold = jax.jit(jax.random.fold_in)

    def run(self, layers: LayerRange, args: Args, wanted: tuple[str, ...]) -> Forward | None:
        """Run a pass of these layers for the blobs in `wanted`; return None where the net is not frozen."""
        if not self._possible:
            return None
        if not self.has(args):
            self._thaw()
            self._arrays = _arrays(args)
        passes = self._passes_for(self._scored.union(wanted), args)
        if passes is None:
            return None

        def key() -> jax.Array:
            key, *numbers = args.key
            for number in numbers:
                key = self._fold(key, number)
            return key

        blobs = passes.of_finished(args.blobs, key)
        return Forward(layers.trimmed(blobs), {}, passes.loss(blobs) if self._whole else 0.0)

    def has(self, args: Args) -> bool:
        """Return whether these are the params that the net was frozen with, or is to be."""
        arrays = _arrays(args)
        return len(arrays) == len(self._arrays) and all(map(is_, arrays, self._arrays))

    def _thaw(self) -> None:
        """Let the frozen nets go."""
        self._changes += bool(self._passes)
        self._passes.clear()
        self._arrays, self._waited = [], 0

    def _passes_for(self, names: frozenset[str], args: Args) -> FrozenPasses | None:
        """Return passes that give these blobs, by a net that is frozen now if it must; None where that must wait."""
        if names in self._passes:
            return self._passes[names]
        if len(self._passes) == _KEPT:
            return next((passes for known, passes in self._passes.items() if known >= names), None)
        if not self._passes and self._changes > _AT_ONCE:
            self._waited += 1
            if self._waited <= _PATIENCE << (self._changes - _AT_ONCE - 1):
                return None
        passes = frozen_passes(self._net, pure.Variables(dict(args.params), dict(args.state)), names)
        if passes is None:
            self._possible = False
        else:
            self._passes[names] = passes
        return passes


def _arrays(args: Args) -> list[Any]:
    return [array for tree in (args.params, args.state) for blobs in tree.values() for array in blobs]
