"""Nets compiled for inference: functions of the inputs, with fixed weights."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import jax
import numpy as np

from ...base.config import NetConfig
from ...base.errors import CaffejaxError
from ...base.fork_guard import raise_after_fork
from ...base.variables import Blobs, Variables
from ...core.graph import Graph
from ...core.graph.reshape import reshape_graph, with_batch
from ...core.ops.compilation import find_cpu, has_only_cpus
from ...core.ops.program_cache import Entry, ProgramCache
from ...core.program.interpreter import VariableTrees
from ...core.program.memory_check import check_layers_fit
from ...core.program.net import Net
from ...core.program.net_arguments import add_shape_hints, check_inputs, check_variables
from ...core.program.schedule import strip_blob_padding
from ..kernels.packed_weights import StoredWeight
from .compiled_net import CompiledNet
from .constant_folding import fold, materialize
from .low_precision import LowPrecision, measure_ranges, resolve_precision

_BYTES_PER_LAYER = 32 * 2**10  # of a net compiled for some shapes, without its workspace


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
        config: NetConfig,
        precision: Literal["bfloat16", "int8"] | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        variables = check_variables(graph, *variables)
        graph, folded_variables = fold(graph, variables)
        self._initialize(graph, folded_variables, config, None)
        if precision is not None:
            ranges = self._measure(calibration or ()) if precision == "int8" else {}
            self._low_precision: LowPrecision | None = LowPrecision(precision, ranges)

    def _measure(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
        """Return the minimum and maximum of each blob over batches of inputs; see `measure_ranges`."""
        names = tuple(dict.fromkeys(top for layer in self.graph.layers for top in layer.tops))
        full_net = self._with_graph(replace(self.graph, outputs=names))

        def blobs() -> Iterator[Mapping[str, Any]]:
            for i, batch in enumerate(batches):
                try:
                    values = full_net(batch, jax.random.key(0))
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

    def _initialize(
        self, graph: Graph, variables: VariableTrees, config: NetConfig, low_precision: LowPrecision | None
    ) -> None:
        self._low_precision = low_precision
        self.graph, self._config = graph, config
        self._folded_variables: VariableTrees = jax.tree.map(StoredWeight, tuple(variables))
        self._input_names = graph.input_names
        self._reset_cache()

    def __reduce__(self) -> Any:
        # the folded graph is pickled; compiled shapes are not, because they belong to this process
        return _restore, (type(self), self.graph, self.variables, self._config, self._low_precision)

    def __copy__(self) -> Frozen:
        return self._with_graph(self.graph)

    def _with_graph(self, graph: Graph) -> Frozen:
        frozen = object.__new__(type(self))
        vars(frozen).update(vars(self))  # packed weights are shared
        frozen.graph = graph
        frozen._reset_cache()
        return frozen

    def _reset_cache(self) -> None:
        self._compiled_nets = ProgramCache()
        # compiled nets by the shapes of the inputs, which are found faster than in `_compiled_nets`
        self._direct_calls: weakref.WeakValueDictionary[Any, Entry] = weakref.WeakValueDictionary()
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
        if not isinstance(inputs, Mapping) or len(inputs) != len(self._input_names):
            check_inputs(self.graph, self._input_names, inputs)
        try:
            arrays = {name: inputs[name] for name in self._input_names}
            shapes = _shapes(arrays.values()) if key is None else None
            if shapes is not None and (entry := self._direct_calls.get(shapes)) is not None:
                outputs: Blobs = entry.use()(arrays)
                return outputs
            entry = self._find_entry(arrays)
            compiled_net: CompiledNet = entry.program
            if any(isinstance(leaf, jax.core.Tracer) for leaf in (*arrays.values(), key)):
                return compiled_net.trace(arrays, key)
            if shapes is not None and compiled_net.programs and has_only_cpus():
                self._direct_calls[shapes] = entry
            return compiled_net(arrays, key)
        except (KeyError, TypeError, IndexError, ValueError):
            check_inputs(self.graph, self.graph.input_names, inputs)
            raise

    @property
    def variables(self) -> Variables:
        """The parameters and state after folding. Each access creates new arrays; calls use the packed weights."""
        return Variables(*map(dict, materialize(self._folded_variables)))

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

    def compile(self) -> CompiledNet:
        """Compile the net for the input shapes of its graph, on the default device, and return the compiled net."""
        return self._get_compiled({name: self.graph.blobs[name] for name in self.input_names})

    def may_draw(self, inputs: Mapping[str, Any]) -> bool:
        """Return whether a call with inputs of these shapes may draw random numbers, so that it needs a key."""
        return self._get_compiled({name: inputs[name] for name in self._input_names}).may_draw

    def __repr__(self) -> str:
        suffix = f" in {self._low_precision.kind}" if self._low_precision else ""
        lines = [f"Frozen net '{self.graph.name}'{suffix}: {', '.join(self.input_names)} -> {', '.join(self.outputs)}"]
        return "\n".join([*lines, *(f"  {compiled}" for compiled in self._compiled_nets.values())])

    def strip_padding(self, blobs: Blobs) -> Blobs:
        """Return blobs without their padding rows; see `Net.strip_padding`."""
        return strip_blob_padding(self.graph, blobs)

    def _get_compiled(self, inputs: Mapping[str, Any]) -> CompiledNet:
        compiled_net: CompiledNet = self._find_entry(inputs).program
        return compiled_net

    def _find_entry(self, inputs: Mapping[str, Any]) -> Entry:
        """Return the entry of the net that is compiled for the shapes of the inputs; compile it if it is missing."""
        device = find_cpu(*inputs.values())
        key = device, *map(np.shape, inputs.values())
        entry = self._compiled_nets.find(key)
        if entry is None:
            with self._lock:  # one thread compiles, the others wait
                entry = self._compiled_nets.find(key)
                if entry is None:
                    net = self._compile_shapes(inputs, device)
                    num_bytes = len(net.graph.layers) * _BYTES_PER_LAYER + net.workspace_bytes
                    entry = self._compiled_nets.add(key, net, num_bytes)
        return entry

    def _compile_shapes(self, inputs: Mapping[str, Any], device: jax.Device | None) -> CompiledNet:
        check_inputs(self.graph, self.input_names, inputs)
        with add_shape_hints(self.graph, inputs):
            graph = reshape_graph(self.graph, {name: tuple(np.shape(v)) for name, v in inputs.items()})
        check_layers_fit(graph)
        with jax.ensure_compile_time_eval():  # packed weights are arrays instead of tracers, even during tracing
            return CompiledNet(
                graph, self._folded_variables, self._config, device=device, low_precision=self._low_precision
            )


def _shapes(arrays: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return the shape of each array, with None for each tracer. If any value has no shape, return None."""
    try:
        return tuple([None if isinstance(a, jax.core.Tracer) else a.shape for a in arrays])
    except AttributeError:
        return None


def _restore(
    cls: type[Frozen],
    graph: Graph,
    variables: Variables,
    config: NetConfig,
    low_precision: LowPrecision | None,
) -> Frozen:
    frozen = object.__new__(cls)
    frozen._initialize(graph, variables, config, low_precision)
    return frozen


def freeze(
    net: Net,
    variables: Variables,
    outputs: Iterable[str] | None,
    precision: str | None,
    calibration: Iterable[Mapping[str, Any]] | None,
) -> Frozen:
    """Return a net compiled for inference; for the arguments, see `Net.freeze`."""
    options, number_type = (net.config, None) if precision is None else resolve_precision(precision, net.config)
    net = (net if options == net.config else net.with_config(options)).for_inference(outputs)
    return Frozen(net.graph, variables, options, number_type, calibration)
