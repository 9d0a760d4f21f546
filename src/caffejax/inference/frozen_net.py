"""A net as a function of its inputs alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from ..execution import Trees
from ..execution.memory_check import check_room
from ..execution.schedule import trimmed_blobs
from ..execution.validation import check_inputs, check_variables
from ..fork_guard import refuse_in_forks
from ..graph import Graph
from ..graph.reshape import reshape_graph, with_batch
from ..kernels.compiling import cpu_of, only_cpus
from ..options import Run
from ..variables import Blobs, Variables
from .constant_folding import fold, materialize
from .executable import CompiledShapes

_KEPT = 16  # combinations of shapes that stay ready


@refuse_in_forks("__call__", "ready")
class Frozen:
    """A net in phase TEST as a function of its inputs alone, with constants folded and weights packed.

    Called with the inputs by name it gives the outputs by name; inputs may have any shapes that the net can take. For
    each combination of shapes that it meets, primitives are made and weights packed once. Several threads may call it.
    Inside of `jax.jit`, `jax.vmap` and `jax.grad` (by the inputs) it is a function like any other. Layers that carry
    something from one forward pass to the next begin anew at each call. Copied or pickled it is the same function, to
    be made ready anew.

    Args:
        graph: the layers that its outputs need, each blob made once; see `inference_graph`.
        variables: params and state; there may be more than it needs.
        options: how it computes.

    Attributes:
        graph: its layers, after folding.

    Raises:
        WeightsError: for params and state that do not fit.
    """

    def __init__(self, graph: Graph, variables: Variables, options: Run) -> None:
        variables = check_variables(graph, *variables)
        graph, folded = fold(graph, variables)
        self._set(graph, folded, options)

    def _set(self, graph: Graph, variables: Trees, options: Run) -> None:
        self.graph, self._folded, self._options = graph, variables, options
        self._fed = graph.input_names
        self._packed: WeakValueDictionary[Any, np.ndarray] = WeakValueDictionary()  # those in use
        self._forget()

    def __reduce__(self) -> Any:
        # as it is after folding; what was made ready is of this process and stays here
        return _restored, (type(self), self.graph, self.variables, self._options)

    def __copy__(self) -> Frozen:
        return self._with_graph(self.graph)

    def _with_graph(self, graph: Graph) -> Frozen:
        other = object.__new__(type(self))
        vars(other).update(vars(self))  # also the weights that are packed
        other.graph = graph
        other._forget()
        return other

    def _forget(self) -> None:
        self._ready: OrderedDict[Any, CompiledShapes] = OrderedDict()
        self._direct: dict[Any, Callable[[Mapping[str, Any]], Blobs]] = {}  # the same, for calls in few steps
        self._lock = threading.Lock()

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> Blobs:
        """Return the outputs.

        Args:
            inputs: an array for each of `fed`, of any shapes that the net can take.
            key: for layers that are random.

        Raises:
            CaffejaxError: naming what is missing, unknown, or of a shape that the net cannot take.
        """
        try:
            given = {name: inputs[name] for name in self._fed}
            shapes = _shapes(given.values()) if key is None else None
            if shapes is not None and (direct := self._direct.get(shapes)) is not None:
                return direct(given)
            ready = self._for(given)
            if any(isinstance(leaf, jax.core.Tracer) for leaf in (*given.values(), key)):
                return ready.traced(given, key)
            if shapes is not None and ready.programs and only_cpus():
                self._direct[shapes] = ready
            return ready(given, key)
        except (KeyError, TypeError, IndexError, ValueError):
            check_inputs(self.graph, self.graph.input_names, inputs)
            raise

    @property
    def variables(self) -> Variables:
        """Params and state of its layers, after folding: made at each use: to run, it has packed weights."""
        return Variables(*map(dict, materialize(self._folded)))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The blobs that `inputs` must hold."""
        return self._fed

    @property
    def outputs(self) -> tuple[str, ...]:
        """The blobs that it gives."""
        return self.graph.outputs

    def with_batch(self, batch: int, axis: int = 0) -> Frozen:
        """Return the same for another batch size, made ready: the length of that axis of all that it is fed.

        Raises:
            GraphError: naming every layer that cannot take it.
        """
        other = self._with_graph(with_batch(self.graph, batch, axis))
        other.ready()
        return other

    def ready(self) -> CompiledShapes:
        """Make it ready for inputs of the shapes that the net was built for, on the default device."""
        return self._for({name: self.graph.blobs[name] for name in self.input_names})

    def may_draw(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a call with such inputs may draw random numbers; then it needs a key."""
        return self._for({name: inputs[name] for name in self._fed}).may_draw

    def __repr__(self) -> str:
        lines = [f"Frozen net '{self.graph.name}': {', '.join(self.input_names)} -> {', '.join(self.outputs)}"]
        return "\n".join([*lines, *(f"  {ready}" for ready in self._ready.values())])

    def trimmed(self, blobs: Blobs) -> Blobs:
        """Return blobs without rows of padding; see `Net.trimmed`."""
        return trimmed_blobs(self.graph, blobs)

    def _for(self, inputs: Mapping[str, Any]) -> CompiledShapes:
        device = cpu_of(*inputs.values())
        key = device, *map(np.shape, inputs.values())
        ready = self._ready.get(key)
        if ready is None:
            with self._lock:  # one thread makes it, the others wait
                ready = self._ready.get(key)
                if ready is None:
                    ready = self._ready[key] = self._made(inputs, device)
                    while len(self._ready) > _KEPT:
                        self._ready.popitem(last=False)
                        self._direct.clear()
        return ready

    def _made(self, inputs: Mapping[str, Any], device: jax.Device | None) -> CompiledShapes:
        check_inputs(self.graph, self.input_names, inputs)
        graph = reshape_graph(self.graph, {name: tuple(np.shape(v)) for name, v in inputs.items()})
        check_room(graph)
        with jax.ensure_compile_time_eval():  # weights are packed once, whatever is being traced
            return CompiledShapes(graph, self._folded, self._options, self._packed, device=device)


def _shapes(arrays: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return the shapes of arrays, of tracers none; nothing if some are no arrays."""
    try:
        return tuple([None if isinstance(a, jax.core.Tracer) else a.shape for a in arrays])
    except AttributeError:
        return None


def _restored(kind: type[Frozen], graph: Graph, variables: Variables, options: Run) -> Frozen:
    frozen = object.__new__(kind)
    frozen._set(graph, variables, options)
    return frozen
