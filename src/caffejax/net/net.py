"""A net as pure functions: `init` makes params and state, `apply` runs the layers, `loss` sums the losses."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import data  # noqa: F401  registers the data layers
from ..data.loader import open_sources
from ..graph import Graph, Param, build_graph, net_state
from ..kernels import Kernels, compiling
from ..layers import Source
from ..layers.calling import Backward
from ..layers.context import Phase
from ..layers.precision import unrounded
from ..precision import Precision
from ..precision import check as check_precision
from ..schedule.remat import Remat
from ..schedule.remat.running import Recomputing
from ..schedule.running import Given, Segments, run_layers
from ..schema import read_net, source_file
from ..schema.caffe_pb2 import NetParameter, NetState
from .given import check_given, check_key, check_options, compared, known_names
from .initial import initial_blob

log = logging.getLogger("caffejax.net")

Params = dict[str, tuple[jax.Array | None, ...]]
Blobs = dict[str, jax.Array]


class Variables(NamedTuple):
    """What a net remembers. Both are `{layer: blobs in Caffe's order}`, None where a blob is not the layer's own.

    Attributes:
        params: learnable blobs.
        state: running statistics, and after a layer's blobs what it carries from one forward pass to the next.
    """

    params: Params
    state: Params


class Outputs(NamedTuple):
    """What `Net.loss` gives beside the loss.

    Attributes:
        blobs: the net's output blobs, or those asked for.
        state: the new running statistics.
    """

    blobs: Blobs
    state: Params


class Net:
    """A Caffe net for one phase.

    Args:
        model: path of a prototxt, its text, or a NetParameter.
        phase: "TRAIN" or "TEST".
        level, stages: further conditions of the layers' include and exclude rules.
        state: a complete NetState in place of phase, level and stages.
        backward: how gradients are made: "autodiff", or "rules" for the layers' hand-written Backward.
        seed: what data layers shuffle and crop by.
        workers: how many processes read each data layer's data; 0 for threads of this one, which are enough unless
            much of the reading is Python.
        kernels: "fast" for the formulations that suit the platform best, "reference" for the plain lowering of every
            layer.
        precision: "float32" on every platform; "tf32", with which products and convolutions round their factors to
            10 bits where the platform has it, which a CPU has not; or "bfloat16": the products and what lies between
            them in bfloat16; parameters, statistics, sums, losses and outputs in float32.
        remat: "auto" if the backward pass of `loss` is to run layers again where what it reads would not fit into
            memory; "none" keeps everything.
        memory_limit: for "auto", bytes that training may take; what the default device has free unless given.
        skip_bad: whether Data and ImageData take the next image for one that cannot be decoded, with a warning, or
            end with an error.

    Attributes:
        graph: the layers with names, shapes and wiring.
        recomputing: with `remat`, what chooses the layers that are run again.

    Raises:
        SchemaError: if the file cannot be read.
        GraphError: naming everything that is wrong with the net.
        CaffejaxError: for options that are none of the choices.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | NetParameter,
        phase: Phase = "TEST",
        *,
        level: int = 0,
        stages: Sequence[str] = (),
        state: NetState | None = None,
        backward: Backward = "autodiff",
        seed: int = 0,
        workers: int = 0,
        kernels: Kernels = "fast",
        precision: Precision = "float32",
        remat: Remat = "none",
        memory_limit: int | None = None,
        skip_bad: bool = False,
        file: str | None = None,
    ) -> None:
        check_precision(precision)
        options: Any = {"seed": seed, "workers": workers, "kernels": kernels, "skip_bad": skip_bad}
        own: Any = {"backward": backward, "remat": remat, "memory_limit": memory_limit}
        check_options(phase=phase, level=level, stages=stages, **options, **own)
        message = read_net(model)
        if file is None and (path := source_file(model)) is not None:
            file = str(path)
        self.backward: Backward = backward
        self.kernels: Kernels = kernels
        self.precision: Precision = precision
        self.remat: Remat = remat
        self.memory_limit = memory_limit
        state = state or net_state(message, phase, level, stages)
        self._definition = message, state, {"file": file, "precision": precision, **options, **own}
        self._set_graph(build_graph(message, state, file=file, precision=precision, **options))

    def __reduce__(self) -> Any:
        # as its definition, to be built anew: what was compiled stays here
        message, state, options = self._definition
        return _built, (type(self), message.SerializeToString(), state.SerializeToString(), options, self.graph.phase)

    def __copy__(self) -> Net:
        return self._with_graph(self.graph)

    def _with_graph(self, graph: Graph) -> Net:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._set_graph(graph)
        return other

    def _set_graph(self, graph: Graph) -> None:
        self.graph = graph
        self._segments = Segments(graph, self.backward, self.kernels) if graph.has_host_layers else None
        self.recomputing: Recomputing | None = None
        if self.remat == "auto" and not graph.has_host_layers:
            self.recomputing = Recomputing(self.graph, self.backward, self.memory_limit)
        elif self.remat == "auto":
            log.warning("no layers are recomputed to save memory: the net has some that run on the host")
        self.forward = self.jit(self.apply, static_argnames="blobs")
        self._other_phase: Net | None = None

    def in_phase(self, phase: Phase) -> Net:
        """The same layers, behaving as in another phase: include and exclude rules are not applied anew."""
        if phase == self.graph.phase:
            return self
        if self._other_phase is None:
            layers = (dataclasses.replace(layer, context=layer.context.in_phase(phase)) for layer in self.graph.layers)
            other = self._with_graph(dataclasses.replace(self.graph, phase=phase, layers=tuple(layers)))
            self._other_phase, other._other_phase = other, self
        return self._other_phase

    def jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """`jax.jit` of a function that runs the net; the function itself where host layers forbid that.

        The parts between host layers are compiled in either case.
        """
        if self._segments is not None:
            return function
        return compiling.jit(function, self.kernels, **options)

    @property
    def has_host_layers(self) -> bool:
        """Whether some layers cannot be compiled; then the net must be called outside of jax.jit."""
        return self.graph.has_host_layers

    @property
    def fed(self) -> tuple[str, ...]:
        """Blobs that `inputs` must hold: tops of Input and data layers."""
        return self.graph.fed

    @property
    def outputs(self) -> tuple[str, ...]:
        """Blobs that no layer reads."""
        return self.graph.outputs

    def sources(self) -> dict[str, Source]:
        """A newly opened source for each data layer, by the layer's key. Close them when done.

        A Python layer is the one source of its own data: it goes on where it was.
        """
        return open_sources(self.graph)

    def init(self, key: jax.Array, dtype: Any = jnp.float32) -> Variables:
        """New blobs from their fillers.

        A blob's numbers depend on the key, the layer's name and the blob's index only, so that other layers
        coming or going change nothing.
        """
        check_key(key)
        blob = partial(initial_blob, self.graph, key=key, dtype=dtype)
        state = self.tree(lambda p: None if p.blob.learnable else blob(p))
        for layer in self.graph.layers:
            if layer.carried:
                own = state.get(layer.key, (None,) * len(layer.params))
                state[layer.key] = (*own, *(blob(p) for p in layer.carried))
        return Variables(params=self.tree(lambda p: blob(p) if p.blob.learnable else None), state=state)

    def apply(
        self,
        params: Params,
        state: Params,
        inputs: Mapping[str, jax.Array],
        *,
        key: jax.Array | None = None,
        blobs: Iterable[str] | None = None,
    ) -> tuple[Blobs, Params]:
        """One forward pass.

        Args:
            params, state: as `init` gives them.
            inputs: an array for each of `fed`; their first axis may differ from the prototxt's.
            key: for layers that are random in this phase.
            blobs: the blobs to return; the net's outputs unless given. In-place layers leave the last value.

        Returns:
            The blobs by name, and the new state.

        Raises:
            CaffejaxError: for what does not fit the net, naming all that is missing, unknown, or of the wrong shape.
            LayerError: naming the layer that cannot take inputs of these shapes and types.
        """
        wanted = self.outputs if blobs is None else known_names(self.graph, "blobs", blobs)
        values, new_state, _ = self._run(params, state, inputs, key)
        return self._given_out(values, wanted), new_state

    def loss(
        self,
        params: Params,
        state: Params,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None = None,
        *,
        blobs: Iterable[str] | None = None,
        probes: Mapping[str, jax.Array] | None = None,
    ) -> tuple[jax.Array, Outputs]:
        """The sum of all tops by their loss weights, ready for `jax.value_and_grad(..., has_aux=True)`.

        Args:
            params, state, inputs, key, blobs: as for `apply`.
            probes: zeros to add to the blobs they name. A probe's gradient is what Caffe calls the blob's diff,
                and is there where Caffe would not compute it, too.

        Raises:
            CaffejaxError: as for `apply`.
        """
        wanted = self.outputs if blobs is None else known_names(self.graph, "blobs", blobs)
        values, new_state, total = self._run(params, state, inputs, key, probes or {}, wanted)
        return total, Outputs(self._given_out(values, wanted), new_state)

    def _run(
        self,
        params: Params,
        state: Params,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None,
        probes: Mapping[str, jax.Array] = MappingProxyType({}),
        wanted: Sequence[str] | None = None,
    ) -> tuple[Blobs, Params, jax.Array]:
        """Blobs, state and loss; only the blobs wanted may be there."""
        check_given(self.graph, self.fed, params, state, inputs, key, probes)
        given = Given(params, state, dict(inputs), key, dict(probes))
        with compared(self.graph, inputs):
            if self._segments is not None:
                result = self._segments(given)
            elif self.recomputing is not None and wanted is not None:
                result = self.recomputing(given, wanted)
            else:
                result = run_layers(self.graph.layers, given, {}, self.backward, self.graph.file)
        return result.values, result.state, result.loss

    def _given_out(self, values: Blobs, names: Iterable[str]) -> Blobs:
        own = unrounded if self.precision == "bfloat16" else lambda value: value
        return {name: own(values[name]) for name in names}

    def tree(self, value: Callable[[Param], Any]) -> Any:
        """`{layer: value of each blob}`, leaving out blobs of other layers and layers with nothing."""
        tree = {layer.key: tuple(value(p) if p.owned else None for p in layer.params) for layer in self.graph.layers}
        return {key: blobs for key, blobs in tree.items() if any(b is not None for b in blobs)}


def _built(kind: type[Net], message: bytes, state: bytes, options: dict[str, Any], phase: Phase) -> Net:
    net = kind(NetParameter.FromString(message), state=NetState.FromString(state), **options)
    return net.in_phase(phase)
