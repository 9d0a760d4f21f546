"""Policy of when forward passes with fixed weights run through the compiled inference function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

import jax
import numpy as np

from ..graph import AUTOMATIC, Graph, inference_graph
from ..graph.inference_graph import inference_names
from ..graph.traits import is_stateless
from ..host_memory import free_memory
from ..kernels import compiling
from ..options import Run
from ..variables import Blobs, Variables
from .frozen_net import Frozen

_COPIES = 2  # copies of the weights that a frozen net may hold
_FREE_CHANGES = 2  # changes of the weights after which a net is frozen again at once: they have been edited
_PATIENCE = 16  # passes with unchanged weights before it is frozen again; doubled by each further change
_MAX_SETS = 4  # sets of blobs for which a net is frozen at a time


class FrozenPasses:
    """Forward passes of a net with fixed params and state; made by `freeze_passes`.

    Args:
        graph: the net's graph.
        run: how the net computes.
        variables: params and state of the net.
        names: the blobs to return, each with its name in the inference graph.
    """

    def __init__(self, graph: Graph, run: Run, variables: Variables, names: Mapping[str, str]) -> None:
        self._names, self._losses = names, graph.losses
        self._frozen = Frozen(inference_graph(graph, names), variables, run)
        unfinished = [layer for layer in graph.layers if layer.look is not None and layer.look.finish is not None]

        def finish(inputs: Mapping[str, Any]) -> dict[str, Any]:
            finished = ((layer.tops, layer.finish([inputs[top] for top in layer.tops])) for layer in unfinished)
            return {top: value for tops, values in finished for top, value in zip(tops, values, strict=True)}

        self._finish = compiling.jit(finish, run.kernels) if unfinished else None

    def __call__(self, inputs: Mapping[str, Any], key: Any) -> Blobs:
        """Return the blobs of one pass; arguments as for `Net.apply`."""
        finished = inputs if self._finish is None else {**inputs, **self._finish(inputs)}
        return self.run_finished(finished, lambda: key)

    def run_finished(self, inputs: Mapping[str, Any], make_key: Callable[[], Any]) -> Blobs:
        """Return the blobs of one pass on data already finished by the data layers; a key is made only if needed."""
        blobs = self._frozen(inputs, make_key() if self._frozen.may_draw(inputs) else None)
        return {name: blobs[inference_name] for name, inference_name in self._names.items()}

    def loss(self, blobs: Blobs) -> Any:
        """Return the weighted loss of a pass that returned these blobs, which include `scored_blobs`."""
        sums = (weight * np.sum(blobs[name], dtype=np.float32) for name, weight in self._losses.items())
        return np.float32(sum(sums))


def freeze_passes(graph: Graph, run: Run, variables: Variables, blobs: Iterable[str]) -> FrozenPasses | None:
    """Compile a net's passes for inference, if their results equal `Net.apply`'s.

    The results differ in phase TRAIN, with layers on the host, with state that changes from pass to pass (recurrent
    layers), and with kernels or precisions other than the defaults. A net is also not compiled if memory lacks for
    another copy of its weights.

    Args:
        graph: the net's graph.
        run: how the net computes.
        variables: its params and state.
        blobs: names of the blobs to return.

    Returns:
        The passes, or None if the net is not compiled.
    """
    inference_name = inference_names(graph)
    names = {name: inference_name[name] for name in blobs}
    if not names or graph.phase != "TEST" or run.kernels != "fast" or run.precision != "float32":
        return None
    weights = sum(array.nbytes for array in jax.tree.leaves(variables))
    if _COPIES * weights > free_memory() or not is_stateless(inference_graph(graph, names)):
        return None
    return FrozenPasses(graph, run, variables, names)


def scored_blobs(graph: Graph) -> tuple[str, ...]:
    """Return a net's outputs and the blobs of its losses; empty if the loss cannot be computed from blobs by name."""
    makers, roots = Counter(top for layer in graph.layers for top in layer.tops), graph.split_roots
    if AUTOMATIC in graph.losses or any(makers[roots.get(name, name)] > 1 for name in graph.losses):
        return ()
    return tuple(dict.fromkeys((*graph.outputs, *graph.losses)))


class FrozenPassCache:
    """Frozen passes of a net whose weights may change: frozen again after a change, but not after each of many.

    JAX's arrays are immutable. As long as a pass receives the same array objects, the weights are unchanged.

    Args:
        graph: the net's graph.
        run: how the net computes.
    """

    def __init__(self, graph: Graph, run: Run) -> None:
        self._graph, self._run = graph, run
        self._possible = True
        self._arrays: list[Any] = []
        self._passes: dict[frozenset[str], FrozenPasses] = {}  # by the blobs that they return
        self._changes = self._waited = 0

    def __len__(self) -> int:
        return len(self._passes)

    def is_current(self, variables: Variables) -> bool:
        """Return whether the params and state are the arrays of the last call of `find`."""
        arrays = _arrays(variables)
        return len(arrays) == len(self._arrays) and all(map(is_, arrays, self._arrays))

    def find(self, names: frozenset[str], variables: Variables) -> FrozenPasses | None:
        """Return passes that compute these blobs with these params and state; None while the net is not frozen."""
        if not self._possible:
            return None
        if not self.is_current(variables):
            self._changes += bool(self._passes)
            self._passes.clear()
            self._arrays, self._waited = _arrays(variables), 0
        if names in self._passes:
            return self._passes[names]
        if len(self._passes) == _MAX_SETS:
            return next((passes for cached, passes in self._passes.items() if cached >= names), None)
        if not self._passes and self._changes > _FREE_CHANGES:
            self._waited += 1
            if self._waited <= _PATIENCE << (self._changes - _FREE_CHANGES - 1):
                return None
        passes = freeze_passes(self._graph, self._run, variables, names)
        if passes is None:
            self._possible = False
        else:
            self._passes[names] = passes
        return passes


def _arrays(variables: Variables) -> list[Any]:
    return jax.tree.leaves(tuple(variables))
