"""Forward passes of a whole net by the net frozen, for as long as its params stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any

import jax

from .. import net as pure
from ..net.frozen_passes import FrozenPasses, frozen_passes, scored_blobs
from ._range import Args, Forward, LayerRange

_PATIENCE = 16  # passes after a thaw until the net is frozen again; twice as many after each further one


class FrozenForward:
    """Freezes a net, and thaws it when params change or other blobs are wanted.

    JAX's arrays never change: as long as a pass is given the very arrays that the net was frozen with, they are equal.
    Each write to a param makes a new one, and so does each pass while somebody holds a view.

    Args:
        net: the net.
    """

    def __init__(self, net: pure.Net) -> None:
        self._net = net
        roots = net.graph.split_roots
        made = [name for name in scored_blobs(net.graph) if roots.get(name, name) not in net.graph.fed]
        self._names = frozenset((*made, *(roots.get(name, name) for name in made)))
        self._arrays: list[Any] = []
        self._passes: FrozenPasses | None = None
        self._waited = self._patience = 0
        self._fold = jax.jit(jax.random.fold_in)

    def run(self, layers: LayerRange, args: Args, wanted: tuple[str, ...]) -> Forward | None:
        """Run a pass of these layers for the blobs in `wanted`; return None where the net is not frozen."""
        if not self._names or len(layers.layers) < len(layers.graph.layers):
            return None
        if not self._names.issuperset(wanted):
            self._thaw()
            return None
        arrays = [*_arrays(args.params), *_arrays(args.state)]
        if len(arrays) != len(self._arrays) or not all(map(is_, arrays, self._arrays)):
            self._thaw()
            self._arrays = arrays
        if self._passes is None and not self._freeze(args):
            return None
        assert self._passes is not None
        key, *numbers = args.key
        for number in numbers:
            key = self._fold(key, number)
        blobs = self._passes.of_finished(args.blobs, key)
        return Forward(layers.trimmed(blobs), {}, self._passes.loss(blobs))

    def _thaw(self) -> None:
        """Let the frozen net go."""
        if self._passes is not None:
            self._passes = None
            self._patience = max(_PATIENCE, 2 * self._patience)
        self._arrays, self._waited = [], 0

    def _freeze(self, args: Args) -> bool:
        """Freeze the net, if it has had these params for long enough; return whether it is."""
        self._waited += 1
        if self._waited <= self._patience:
            return False
        self._passes = frozen_passes(self._net, pure.Variables(dict(args.params), dict(args.state)), self._names)
        if self._passes is None:
            self._names = frozenset()  # it never can be
        return self._passes is not None


def _arrays(tree: Mapping[str, Any]) -> list[Any]:
    return [array for blobs in tree.values() for array in blobs]
