"""Passes of a net whose weights stay as they are, made by the net frozen where that gives the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ..graph import AUTOMATIC, Graph
from ..graph.inference import inference_names
from ..graph.memoryless import is_memoryless
from ..kernels import compiling
from ..machine import free_memory
from ..variables import Blobs, Variables
from .frozen import Frozen
from .net import Net

_COPIES = 2  # of the weights that a frozen net may hold


class FrozenPasses:
    """A net's forward passes with the same params and state, made by the net frozen; see `frozen_passes`.

    Args:
        net: the net.
        frozen: the same, frozen.
        names: the blobs that are wanted, each with what the frozen net calls it.
    """

    def __init__(self, net: Net, frozen: Frozen, names: Mapping[str, str]) -> None:
        self._frozen, self._names, self._losses = frozen, names, net.graph.losses
        unfinished = [layer for layer in net.graph.layers if layer.look is not None and layer.look.finish is not None]

        def finish(inputs: Mapping[str, Any]) -> dict[str, Any]:
            finished = ((layer.tops, layer.finish([inputs[top] for top in layer.tops])) for layer in unfinished)
            return {top: value for tops, values in finished for top, value in zip(tops, values, strict=True)}

        self._finish = compiling.jit(finish, net.run.kernels) if unfinished else None

    def __call__(self, inputs: Mapping[str, Any], key: Any) -> Blobs:
        """Return the blobs of a pass, given as to `Net.apply`."""
        finished = inputs if self._finish is None else {**inputs, **self._finish(inputs)}
        return self.of_finished(finished, lambda: key)

    def of_finished(self, inputs: Mapping[str, Any], key: Callable[[], Any]) -> Blobs:
        """Return the same, given what data layers make of what they read, and a function that makes the key."""
        blobs = self._frozen(inputs, key() if self._frozen.may_draw(inputs) else None)
        return {name: blobs[known] for name, known in self._names.items()}

    def loss(self, blobs: Blobs) -> Any:
        """Return the weighted loss of a pass that gave these blobs, which are `scored_blobs`."""
        sums = (weight * np.sum(blobs[name], dtype=np.float32) for name, weight in self._losses.items())
        return np.float32(sum(sums))


def frozen_passes(net: Net, variables: Variables, blobs: Iterable[str]) -> FrozenPasses | None:
    """Freeze a net, if that gives these blobs just as `Net.apply` does, pass after pass; else return None.

    It does not where a pass leaves something to the next, as those of recurrent layers do; with layers on the host; in
    phase TRAIN; where another way of computing was asked for. Nor is a net frozen where there is no room for its
    weights again, folded and packed.
    """
    known = inference_names(net.graph)
    names = {name: known[name] for name in blobs}
    if not names or net.graph.phase != "TEST" or net.run.kernels != "fast" or net.run.precision != "float32":
        return None
    weights = sum(array.nbytes for array in jax.tree.leaves(variables))
    if _COPIES * weights > free_memory() or not is_memoryless(net.for_inference(names).graph):
        return None
    return FrozenPasses(net, net.freeze(variables, tuple(names)), names)


def scored_blobs(graph: Graph) -> tuple[str, ...]:
    """Return a net's outputs, and what else its loss is made of; none where blobs do not tell the loss."""
    made, roots = Counter(top for layer in graph.layers for top in layer.tops), graph.split_roots
    if AUTOMATIC in graph.losses or any(made[roots.get(name, name)] > 1 for name in graph.losses):
        return ()
    return tuple(dict.fromkeys((*graph.outputs, *graph.losses)))
