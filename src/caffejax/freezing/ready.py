"""A frozen net for inputs of certain shapes: which parts are programs, with their weights, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import LayerError
from ..graph import Graph
from ..kernels import compiling, frozen
from ..kernels.operation import Operation
from ..options import Run
from ..schedule import Given, Part, Result, Schedule, Trees, Values, compute, plan, run, run_part
from ..schedule.compiled import CompiledParts
from ..sizes import counted, in_words
from .constants import without_constants
from .parts import Lowered, lower, of_one_image

Arrays = tuple[jax.Array, ...]
Packed = MutableMapping[tuple[Any, str], jax.Array]


class Ready:
    """A frozen net for inputs of certain shapes.

    Args:
        graph: its layers, for these shapes.
        variables: their params and state.
        options: how it computes.
        on_cpu: whether it is to run on a CPU; other platforms leave all to XLA.
        packed: weights that were packed for other shapes, by what they are and how; those packed here are added.

    Attributes:
        schedule: its parts.
        programs: those that are programs, by the part's key.
        is_direct: whether all parts are programs, so that `direct` may be called.
    """

    def __init__(self, graph: Graph, variables: Trees, options: Run, packed: Packed, *, on_cpu: bool) -> None:
        self._variables = variables
        self.graph, self._constants = without_constants(graph, variables)
        self.schedule: Schedule = plan(self.graph)
        self.programs: dict[Any, Lowered] = {}
        if on_cpu and frozen.available() and options.kernels == "fast" and options.precision == "float32":
            self.schedule, self.programs = lower(self.graph, of_one_image(graph), variables)
        self._packed = tuple(_packed(lowered, packed) for lowered in self.programs.values())
        self._place = {
            key: i for i, key in enumerate(self.programs)
        }  # of its weights; a dict of these keys is slow to call with
        rest = [part for part in self.schedule.parts if part.key not in self.programs]
        self._rest = _used(rest, variables)
        self._runner = CompiledParts(options.kernels) if graph.has_host_layers else run_part
        function = partial(self._run, self._program)
        fed = all(layer.type.is_fed for part in rest for layer in part.layers)
        self.is_direct = bool(self.programs) and fed and not graph.has_host_layers
        if self.is_direct:  # XLA has nothing to compute, so that its options do not matter
            self._call: Callable[..., Values] = jax.jit(function)
        else:
            self._call = function if graph.has_host_layers else compiling.jit(function, options.kernels)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        return sum(p.built.packed for p in self.programs.values())

    @property
    def workspace_bytes(self) -> int:
        """Bytes that a call needs beside its inputs and outputs; each that runs at the same time has its own."""
        return sum(p.built.workspace for p in self.programs.values())

    def __str__(self) -> str:
        given = ", ".join(f"{name} {self.graph.blobs[name].shape}" for name in self.graph.fed)
        layers = [layer for layer in self.graph.layers if not layer.type.is_fed]
        taken = sum(len(p.part.layers) for p in self.programs.values())
        packed, workspace = in_words(self.packed_bytes), in_words(self.workspace_bytes)
        return (
            f"{given}: {taken} of {len(layers)} layers in {counted(len(self.programs), 'program')}, "
            f"packed weights {packed}, workspace {workspace}"
        )

    def __call__(self, inputs: Mapping[str, Any], key: jax.Array | None) -> Values:
        """Run on arrays."""
        if key is not None and not self._is_random:
            key = None  # each call would take it apart
        found: Values = self._call(self._packed, self._rest, inputs, key)
        return found

    def direct(self, inputs: Mapping[str, Any]) -> Values:
        """Run on arrays that are no tracers: what a call without a key comes to."""
        return self._call(self._packed, self._rest, inputs, None)

    @cached_property
    def _is_random(self) -> bool:
        """Whether some layers need a key."""
        if self.graph.has_host_layers:
            return True
        inputs = {name: self.graph.blobs[name] for name in self.graph.fed}
        try:
            jax.eval_shape(partial(self._run, self._program), self._packed, self._rest, inputs, None)
        except LayerError:
            return True
        return False

    def traced(self, inputs: Mapping[str, Any], key: jax.Array | None) -> Values:
        """Run in a function that is being traced: differentiable, and for any platform."""
        return self._run(self._operation, self._packed, self._variables, inputs, key)

    def _run(
        self,
        run_program: Any,
        packed: Arrays,
        variables: Trees,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None,
    ) -> Values:
        def runner(part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
            lowered = self.programs.get(part.key)
            if lowered is None:
                return self._runner(part, given, before, keep)
            tops = run_program(lowered, packed[self._place[part.key]], given, [before[name] for name in lowered.reads])
            return Result(dict(zip(lowered.makes, tops, strict=True)), {}, jnp.zeros(()))

        given = Given(*variables, inputs, key, {})
        before = self._constants
        values = run(self.schedule, given, before=before, wanted=self.graph.outputs, runner=runner).values
        return {name: values[name] for name in self.graph.outputs}

    def _program(self, lowered: Lowered, packed: jax.Array, _: Given, bottoms: Sequence[jax.Array]) -> Sequence[Any]:
        return _run_program(lowered, packed, bottoms)

    def _operation(self, lowered: Lowered, packed: jax.Array, given: Given, bottoms: Sequence[jax.Array]) -> Arrays:
        """Run a program, or its layers one by one where it cannot run."""
        leaves, tree = jax.tree.flatten((given.params, given.state))

        def plain(_: jax.Array, *arrays: jax.Array) -> Arrays:
            params, state = jax.tree.unflatten(tree, arrays[: len(leaves)])
            before = dict(zip(lowered.reads, arrays[len(leaves) :], strict=True))
            values = compute(lowered.part, Given(params, state, {}, None, {}), before).values
            return tuple(values[name] for name in lowered.makes)

        def program(packed: jax.Array, *arrays: jax.Array) -> Arrays:
            return tuple(_run_program(lowered, packed, arrays[len(leaves) :]))

        def batched(arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> Arrays | None:
            if any(axis is not None for axis in axes[: 1 + len(leaves)]) or None in axes[1 + len(leaves) :]:
                return None
            bottoms = [
                jnp.moveaxis(a, axis, 0)
                for a, axis in zip(arrays[1 + len(leaves) :], axes[1 + len(leaves) :], strict=True)
                if axis is not None
            ]
            flat = [b.reshape(-1, *b.shape[2:]) for b in bottoms]
            n = bottoms[0].shape[0]
            return tuple(top.reshape(n, -1, *top.shape[1:]) for top in _run_program(lowered, arrays[0], flat))

        return Operation(plain, program, smooth=False, batched=batched)(packed, *leaves, *bottoms)


def _packed(lowered: Lowered, known: Packed) -> jax.Array:
    """Return a program's packed weights; those of the same layers in the same packing are the same."""
    key = lowered.part.key, lowered.built.packing
    found = known.get(key)
    if found is None:
        found = known[key] = frozen.pack(lowered.program.text, lowered.built, lowered.program.weights)
    return found


def _used(parts: Sequence[Part], variables: Trees) -> Trees:
    params, state = ({k: v for part in parts for k, v in part.using(tree).items()} for tree in variables)
    return params, state


def _run_program(lowered: Lowered, packed: jax.Array, bottoms: Sequence[jax.Array]) -> list[jax.Array]:
    p = lowered.program
    return frozen.run(p.text, packed, bottoms, p.results)
