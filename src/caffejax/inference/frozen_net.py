"""Nets compiled for inference: functions of the inputs, with fixed weights."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from ..config import ComputeConfig
from ..errors import CaffejaxError
from ..execution import VariableTrees
from ..execution.memory_check import check_layers_fit
from ..execution.schedule import strip_blob_padding
from ..execution.validation import add_shape_hints, check_inputs, check_variables
from ..fork_guard import raise_after_fork
from ..graph import Graph
from ..graph.reshape import reshape_graph, with_batch
from ..kernels.compilation import find_cpu, has_only_cpus
from ..kernels.packed_weights import StoredWeight
from ..variables import Blobs, Variables
from .constant_folding import fold, materialize
from .executable import CompiledShapes
from .low_precision import LowPrecision, measure_ranges

_MAX_SHAPES = 16  # the number of shape combinations that stay compiled


@raise_after_fork("__call__", "compile")
class Frozen:
    """A net in phase TEST compiled for inference, with constants folded and weights packed.

    A call takes inputs by name, of any shapes that the net supports, and returns outputs by name. The first call with a
    combination of shapes compiles the net for these shapes. The net is thread-safe. It works inside `jax.jit` and
    `jax.vmap`, and inside `jax.grad` with respect to the inputs. Recurrent layers start from their initial state in
    each call. A copied or pickled net computes the same function, but is compiled again.

    Args:
        graph: the layers that the outputs need. Exactly one layer computes each blob; see `make_inference_graph`.
        variables: the net's parameters and state, which may also contain arrays of layers outside the graph.
        options: the kernels, precision and other settings of the computation.
        precision: "bfloat16" or "int8", the number type in which oneDNN programs compute on a CPU. The processor must
            have instructions for it. By default, the programs compute in float32.
        calibration: batches of inputs by name, which determine the range of each blob for int8.

    Attributes:
        graph: the graph after folding.

    Raises:
        WeightsError: if parameters or state have wrong shapes.
        CaffejaxError: if there is no calibration for int8, or one of its batches does not fit the net, or gives NaN or
            infinity.
    """

    def __init__(
        self,
        graph: Graph,
        variables: Variables,
        options: ComputeConfig,
        precision: Literal["bfloat16", "int8"] | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        variables = check_variables(graph, *variables)
        graph, folded = fold(graph, variables)
        self._set(graph, folded, options, None)
        if precision is not None:
            ranges = self._measure(calibration or ()) if precision == "int8" else {}
            self._low_precision: LowPrecision | None = LowPrecision(precision, ranges)

    def _measure(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
        """Return the minimum and maximum of each blob over batches of inputs; see `measure_ranges`."""
        names = tuple(dict.fromkeys(top for layer in self.graph.layers for top in layer.tops))
        with_all = self._with_graph(replace(self.graph, outputs=names))

        def blobs() -> Iterator[Mapping[str, Any]]:
            for i, batch in enumerate(batches):
                try:
                    values = with_all(batch, jax.random.key(0))
                except CaffejaxError as error:
                    raise CaffejaxError(f"batch {i} of calibration does not fit the net: {error}") from error
                yield values

        ranges = measure_ranges(blobs())
        if not ranges:
            raise CaffejaxError(
                'precision="int8" needs calibration: some batches of typical inputs, such as '
                f"calibration=[{{{', '.join(f'{name!r}: array' for name in self.input_names)}}}]"
            )
        return ranges

    def _set(
        self, graph: Graph, variables: VariableTrees, options: ComputeConfig, low_precision: LowPrecision | None
    ) -> None:
        self._low_precision = low_precision
        self.graph, self._options = graph, options
        self._folded: VariableTrees = jax.tree.map(StoredWeight, tuple(variables))
        self._input_names = graph.input_names
        self._reset_cache()

    def __reduce__(self) -> Any:
        # the folded graph is pickled; compiled shapes are not, because they belong to this process
        return _restore, (type(self), self.graph, self.variables, self._options, self._low_precision)

    def __copy__(self) -> Frozen:
        return self._with_graph(self.graph)

    def _with_graph(self, graph: Graph) -> Frozen:
        frozen = object.__new__(type(self))
        vars(frozen).update(vars(self))  # packed weights are shared
        frozen.graph = graph
        frozen._reset_cache()
        return frozen

    def _reset_cache(self) -> None:
        self._compiled: OrderedDict[Any, CompiledShapes] = OrderedDict()
        # compiled nets by the shapes of the inputs, which are found faster than in `_compiled`
        self._direct: dict[Any, Callable[[Mapping[str, Any]], Blobs]] = {}
        self._lock = threading.Lock()

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> Blobs:
        """Return the outputs by name.

        Args:
            inputs: an array for each name in `input_names`, of any shapes that the net supports.
            key: a random key, needed if `may_draw` returns True for the inputs.

        Raises:
            CaffejaxError: if an input is missing, unknown, or of an unsupported shape. The message names each such
                input.
        """
        try:
            arrays = {name: inputs[name] for name in self._input_names}
            shapes = _shapes(arrays.values()) if key is None else None
            if shapes is not None and (direct := self._direct.get(shapes)) is not None:
                return direct(arrays)
            compiled = self._compiled_for(arrays)
            if any(isinstance(leaf, jax.core.Tracer) for leaf in (*arrays.values(), key)):
                return compiled.trace(arrays, key)
            if shapes is not None and compiled.programs and has_only_cpus():
                self._direct[shapes] = compiled
            return compiled(arrays, key)
        except (KeyError, TypeError, IndexError, ValueError):
            check_inputs(self.graph, self.graph.input_names, inputs)
            raise

    @property
    def variables(self) -> Variables:
        """The parameters and state after folding. Each access creates new arrays; calls use the packed weights."""
        return Variables(*map(dict, materialize(self._folded)))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self._input_names

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self.graph.outputs

    def with_batch(self, batch: int, axis: int = 0) -> Frozen:
        """Return a net with the same weights whose graph has a different batch size.

        Args:
            batch: the new length of the batch axis of each input.
            axis: the batch axis.

        Raises:
            GraphError: if a layer does not support the batch size. The message names each such layer.
        """
        frozen = self._with_graph(with_batch(self.graph, batch, axis))
        frozen.compile()
        return frozen

    def compile(self) -> CompiledShapes:
        """Compile the net for the input shapes of its graph, on the default device, and return the compiled net."""
        return self._compiled_for({name: self.graph.blobs[name] for name in self.input_names})

    def may_draw(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a call with inputs of these shapes may draw random numbers, so that it needs a key."""
        return self._compiled_for({name: inputs[name] for name in self._input_names}).may_draw

    def __repr__(self) -> str:
        kind = f" in {self._low_precision.kind}" if self._low_precision else ""
        lines = [f"Frozen net '{self.graph.name}'{kind}: {', '.join(self.input_names)} -> {', '.join(self.outputs)}"]
        return "\n".join([*lines, *(f"  {compiled}" for compiled in self._compiled.values())])

    def strip_padding(self, blobs: Blobs) -> Blobs:
        """Return blobs without their padding rows; see `Net.strip_padding`."""
        return strip_blob_padding(self.graph, blobs)

    def _compiled_for(self, inputs: Mapping[str, Any]) -> CompiledShapes:
        device = find_cpu(*inputs.values())
        key = device, *map(np.shape, inputs.values())
        compiled = self._compiled.get(key)
        if compiled is None:
            with self._lock:  # one thread compiles, the others wait
                compiled = self._compiled.get(key)
                if compiled is None:
                    compiled = self._compiled[key] = self._compile_shapes(inputs, device)
                    while len(self._compiled) > _MAX_SHAPES:
                        self._compiled.popitem(last=False)
                        self._direct.clear()
        return compiled

    def _compile_shapes(self, inputs: Mapping[str, Any], device: jax.Device | None) -> CompiledShapes:
        check_inputs(self.graph, self.input_names, inputs)
        with add_shape_hints(self.graph, inputs):
            graph = reshape_graph(self.graph, {name: tuple(np.shape(v)) for name, v in inputs.items()})
        check_layers_fit(graph)
        with jax.ensure_compile_time_eval():  # packed weights are arrays instead of tracers, even during tracing
            return CompiledShapes(graph, self._folded, self._options, device=device, low_precision=self._low_precision)


def _shapes(arrays: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return the shape of each array, with None for each tracer. If any value has no shape, return None."""
    try:
        return tuple([None if isinstance(a, jax.core.Tracer) else a.shape for a in arrays])
    except AttributeError:
        return None


def _restore(
    kind: type[Frozen], graph: Graph, variables: Variables, options: ComputeConfig, low_precision: LowPrecision | None
) -> Frozen:
    frozen = object.__new__(kind)
    frozen._set(graph, variables, options, low_precision)
    return frozen
