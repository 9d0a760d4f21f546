"""Execution of a net that is compiled for inputs of certain shapes, as a sequence of parts.

A part is a oneDNN program (a sequence of oneDNN operations that one call runs), a layer with a NumPy implementation,
or a group of layers that XLA compiles. Inside `jax.jit` and other transformations of JAX, all parts are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.config import NetConfig
from ...base.errors import LayerError
from ...base.human_readable import format_bytes, format_count
from ...core.graph import Graph, Layer
from ...core.ops import compilation
from ...core.ops.platform_dispatch import PlatformOp
from ...core.program.interpreter import (
    CompiledParts,
    PassInputs,
    PassOutputs,
    Values,
    VariableTrees,
    compute_part,
    run_schedule,
)
from ...core.program.schedule import LayerSchedule, Part, make_part, schedule_layers
from ..kernels import onednn_program
from ..kernels.packed_weights import PackedWeights
from .constant_folding import host_function, materialize, remove_constants
from .low_precision import LowPrecision
from .partition import OnednnPart, partition

Arrays = tuple[jax.Array, ...]
Step = Callable[[dict[str, Any], "jax.Array | None"], None]  # step(blobs by name, key) adds its results to the blobs


class CompiledNet:
    """A net compiled for inputs of certain shapes.

    Args:
        graph: the net's graph, for these shapes.
        variables: the net's parameters and state. A `StoredWeight` is packed, which means stored in the order
            that oneDNN reads, only once for all shapes.
        options: the kernels, precision and other settings of the computation.
        device: the CPU to run on, or None for other platforms, on which XLA compiles all parts.
        low_precision: the number type of the oneDNN programs, or None for float32.

    Attributes:
        layer_schedule: the parts of the net in the order of execution.
        programs: the parts that are oneDNN programs, by the key of the part.
        compiles: whether XLA compiles at least one part.
    """

    def __init__(
        self,
        graph: Graph,
        variables: VariableTrees,
        config: NetConfig,
        *,
        device: jax.Device | None,
        low_precision: LowPrecision | None = None,
    ) -> None:
        self._variables, self._device = variables, device
        self._input_names = frozenset(graph.input_names)
        self.graph, self._constants = remove_constants(graph, variables)
        self.layer_schedule: LayerSchedule
        self.programs: dict[Any, OnednnPart]
        if device and onednn_program.is_available() and config.kernels == "fast" and config.precision == "float32":
            self.layer_schedule, self.programs = partition(self.graph, graph, variables, low_precision)
        else:
            self.layer_schedule, self.programs = schedule_layers(self.graph), {}
        self._packed_weights = {
            key: onednn_part.executable.pack(onednn_part.weights) for key, onednn_part in self.programs.items()
        }
        self.programs = {key: replace(onednn_part, weights=()) for key, onednn_part in self.programs.items()}
        self._run_part = CompiledParts(config.kernels) if graph.has_host_layers else compute_part
        self._compiled_parts = CompiledParts(config.kernels)
        self.has_compiled_parts = not self.programs
        if self.programs:
            self._steps = tuple(self._make_steps())
        else:
            function = partial(self._run, self._call_program)
            self._run_unfused = function if graph.has_host_layers else compilation.Jitted(function, config.kernels)

    @property
    def packed_bytes(self) -> int:
        """The size of all packed weights, in bytes."""
        return sum(p.executable.packed_bytes for p in self.programs.values())

    @property
    def workspace_bytes(self) -> int:
        """The memory that each concurrent call needs in addition to its inputs and outputs, in bytes."""
        return sum(p.executable.workspace_bytes for p in self.programs.values())

    def __str__(self) -> str:
        inputs = ", ".join(f"{name} {self.graph.blobs[name].shape}" for name in self.graph.input_names)
        layers = [layer for layer in self.graph.layers if not layer.type.is_input]
        num_program_layers = sum(len(p.part.layers) for p in self.programs.values())
        packed, workspace = format_bytes(self.packed_bytes), format_bytes(self.workspace_bytes)
        return (
            f"{inputs}: {num_program_layers} of {len(layers)} layers in {format_count(len(self.programs), 'program')}, "
            f"packed weights {packed}, workspace {workspace}"
        )

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None = None) -> Values:
        """Return the outputs by name. The inputs must be arrays; for tracers, see `trace`.

        Args:
            inputs: the input arrays by name.
            key: a random key, which is required if `may_draw` is true.
        """
        if key is not None and not self.may_draw:
            key = None  # a key that no layer uses would still cost time in each call
        if not self.programs:
            outputs: Values = self._run_unfused({}, self._arrays, inputs, key)
            return outputs
        values: dict[str, Any] = {**self._constants, **inputs}
        for step in self._steps:
            step(values, key)
        if jax.debug_nans.value or jax.debug_infs.value:
            _check_finite({name: value for name, value in values.items() if name not in inputs})
        return {name: self._as_jax(values[name], name) for name in self.graph.outputs}

    def _as_jax(self, array: Any, name: str = "") -> jax.Array:
        """Return a blob as a JAX array. A NumPy input is copied, because the caller may write to it later."""
        if not isinstance(array, np.ndarray) and isinstance(array, jax.Array):  # the first test is faster
            return array
        if name in self._input_names:
            array = np.array(array)
        return compilation.as_jax(array, self._device, committed=not compilation.has_only_cpus())

    def _make_steps(self) -> Iterator[Step]:
        """Yield the steps of a call. A step runs a oneDNN program, a layer in NumPy, or layers that XLA compiles."""
        for part in self.layer_schedule.parts:
            if part.key in self.programs:
                step = _make_program_step(self.programs[part.key], self._packed_weights[part.key])
                yield self._guard_shapes(step, part) if self.graph.has_host_layers else step
                continue
            steps = [_make_host_step(layer) if part.mode == "traced" else None for layer in part.layers]
            if not any(steps):
                yield self._make_compiled_step(part)
                continue
            for has_step, group in groupby(zip(part.layers, steps, strict=True), key=lambda pair: pair[1] is not None):
                layers, group_steps = zip(*group, strict=True)
                yield from group_steps if has_step else [self._make_compiled_step(make_part(layers))]

    def _guard_shapes(self, program_step: Step, part: Part) -> Step:
        """Return a step that leaves the layers to XLA where a host layer's tops are not of the shapes that it declared.

        Such a layer derives the shapes from the values of its bottoms, which are not known when the program is built.
        """
        expected_shapes = [self.graph.blobs[name].shape for name in part.reads]

        def step(values: dict[str, Any], key: jax.Array | None) -> None:
            has_expected_shapes = [np.shape(values[name]) for name in part.reads] == expected_shapes
            run_step = program_step if has_expected_shapes else self._make_compiled_step(part)
            run_step(values, key)

        return step

    def _make_compiled_step(self, part: Part) -> Step:
        params, state = materialize(_select_variables([part], self._variables))
        self.has_compiled_parts = True

        def step(values: dict[str, Any], key: jax.Array | None) -> None:
            inputs, earlier_blobs = (
                {name: self._as_jax(values[name], name) for name in names if name in values}
                for names in (part.writes, part.reads)
            )
            values.update(self._compiled_parts(part, PassInputs(params, state, inputs, key, {}), earlier_blobs).values)

        return step

    @cached_property
    def _arrays(self) -> VariableTrees:
        """The parameters and state as JAX arrays, for nets without oneDNN programs."""
        return materialize(self._variables)

    @cached_property
    def may_draw(self) -> bool:
        """True if a layer may draw random numbers, so that a call needs a key."""
        if self.graph.has_host_layers:
            return True
        if not self.has_compiled_parts:  # oneDNN programs, and layers that NumPy computes, draw no random numbers
            return False
        inputs = {name: self.graph.blobs[name] for name in self.graph.input_names}
        arrays = {key: packed.arrays for key, packed in self._packed_weights.items()}, self._variables
        packed, variables = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
        try:
            jax.eval_shape(partial(self._run, self._call_program), packed, variables, inputs, None)
        except LayerError:
            return True
        return False

    @cached_property
    def _traced_weights(self) -> dict[Any, Arrays]:
        """The packed weights of each program as JAX arrays, by part key."""
        with jax.ensure_compile_time_eval():  # the results are arrays instead of tracers, even during tracing
            return {key: tuple(map(self._as_jax, packed.arrays)) for key, packed in self._packed_weights.items()}

    def trace(self, inputs: Mapping[str, Any], key: jax.Array | None) -> Values:
        """Return the outputs by name, for inputs that are tracers. All platforms and differentiation are supported."""
        return self._run(self._call_operation, self._traced_weights, materialize(self._variables), inputs, key)

    def _run(
        self,
        run_program: Any,
        packed_arrays: Mapping[Any, Arrays],
        variables: VariableTrees,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None,
    ) -> Values:
        def compute(
            part: Part, pass_inputs: PassInputs, earlier_blobs: Values, needed: frozenset[str] | None
        ) -> PassOutputs:
            onednn_part = self.programs.get(part.key)
            if onednn_part is None:
                return self._run_part(part, pass_inputs, earlier_blobs, needed)
            tops = run_program(
                onednn_part, packed_arrays[part.key], pass_inputs, [earlier_blobs[name] for name in onednn_part.reads]
            )
            return PassOutputs(dict(zip(onednn_part.writes, tops, strict=True)), {}, jnp.zeros(()))

        pass_inputs = PassInputs(*variables, inputs, key, {})
        earlier_blobs = self._constants
        values = run_schedule(
            self.layer_schedule,
            pass_inputs,
            earlier_blobs=earlier_blobs,
            output_names=self.graph.outputs,
            compute=compute,
        ).values
        return {name: values[name] for name in self.graph.outputs}

    def _call_program(
        self, onednn_part: OnednnPart, packed_arrays: Arrays, _: PassInputs, bottoms: Sequence[jax.Array]
    ) -> Sequence[Any]:
        return _run_program(onednn_part, packed_arrays, bottoms)

    def _call_operation(
        self, onednn_part: OnednnPart, packed_arrays: Arrays, pass_inputs: PassInputs, bottoms: Sequence[jax.Array]
    ) -> Arrays:
        """Return the results of a oneDNN program, computed by a traced operation.

        On CPUs, the operation runs the program. On other platforms, and for derivatives, XLA computes the layers of
        the program.

        Args:
            onednn_part: the part that runs as a program.
            packed_arrays: the packed weights of the program.
            pass_inputs: the parameters and state.
            bottoms: the arguments of the program.
        """
        leaves, tree = jax.tree.flatten((pass_inputs.params, pass_inputs.state))
        first_bottom = len(packed_arrays) + len(leaves)  # the index of the first bottom

        def run_plain(*arrays: jax.Array) -> Arrays:
            params, state = jax.tree.unflatten(tree, arrays[len(packed_arrays) : first_bottom])
            earlier_blobs = dict(zip(onednn_part.reads, arrays[first_bottom:], strict=True))
            values = compute_part(onednn_part.part, PassInputs(params, state, {}, None, {}), earlier_blobs).values
            return tuple(values[name] for name in onednn_part.writes)

        def run_program(*arrays: jax.Array) -> Arrays:
            return tuple(_run_program(onednn_part, arrays[: len(packed_arrays)], arrays[first_bottom:]))

        def batch_rule(_: Any, arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> Arrays | None:
            if any(axis is not None for axis in axes[:first_bottom]) or None in axes[first_bottom:]:
                return None
            bottoms = [
                jnp.moveaxis(a, axis, 0)
                for a, axis in zip(arrays[first_bottom:], axes[first_bottom:], strict=True)
                if axis is not None
            ]
            merged_bottoms = [b.reshape(-1, *b.shape[2:]) for b in bottoms]
            n = bottoms[0].shape[0]
            return tuple(
                top.reshape(n, -1, *top.shape[1:])
                for top in _run_program(onednn_part, arrays[: len(packed_arrays)], merged_bottoms)
            )

        return PlatformOp(run_plain, run_program, differentiable=False, batch_rule=batch_rule)(
            *packed_arrays, *leaves, *bottoms
        )


def _make_program_step(onednn_part: OnednnPart, packed_weights: PackedWeights) -> Step:
    run_program, reads, writes = onednn_part.executable, onednn_part.reads, onednn_part.writes

    def step(values: dict[str, Any], key: jax.Array | None) -> None:
        tops = run_program(packed_weights, tuple([np.asarray(values[name], np.float32, "C") for name in reads]))
        values.update(zip(writes, tops, strict=True))

    return step


def _make_host_step(layer: Layer) -> Step | None:
    """Return a step that computes a layer with NumPy, or None if the layer has no NumPy implementation."""
    if layer.type.is_input and layer.device_transform is None:
        return _skip_input
    compute_tops = host_function(layer)
    if compute_tops is None:
        return None

    def step(values: dict[str, Any], key: jax.Array | None) -> None:
        values.update(compute_tops([values[b] for b in layer.bottoms]))

    return step


def _check_finite(values: Mapping[str, Any]) -> None:
    """Check blobs for NaN if JAX's option jax_debug_nans is set, and for infinity if jax_debug_infs is set.

    Raises:
        FloatingPointError: if a blob contains NaN or infinity. The message names the first such blob.
    """
    checks = ("nan", jax.debug_nans.value, np.isnan), ("inf", jax.debug_infs.value, np.isinf)
    for name, value in values.items():
        for value_name, is_on, is_invalid in checks:
            if is_on and np.any(is_invalid(np.asarray(value, np.float32))):
                raise FloatingPointError(
                    f"invalid value ({value_name}) in blob {name!r} of a frozen net; jax_debug_{value_name}s is on"
                )


def _skip_input(values: dict[str, Any], key: jax.Array | None) -> None:
    """Do nothing. This is the step of an Input layer, whose tops are already among the blobs when a call starts."""


def _select_variables(parts: Sequence[Part], variables: VariableTrees) -> VariableTrees:
    params, state = ({k: v for part in parts for k, v in part.select(tree).items()} for tree in variables)
    return params, state


def _run_program(
    onednn_part: OnednnPart, packed_arrays: Sequence[jax.Array], bottoms: Sequence[jax.Array]
) -> list[jax.Array]:
    executable = onednn_part.executable
    return onednn_program.run(executable.program, PackedWeights(packed_arrays, executable.layouts_hash), bottoms)
