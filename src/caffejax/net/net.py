"""A net as pure functions: `init` makes params and state, `apply` runs the layers, `loss` sums the losses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from ..errors import WeightsError
from ..execution import PassInputs, PassOutputs, plan, run, run_part
from ..execution.interpreter import CompiledParts
from ..execution.memory_check import check_room
from ..execution.rematerialize import Rematerializer
from ..execution.schedule import trimmed_blobs, unfuse
from ..execution.validation import check_given, check_key, check_selection, known_names, shape_hints
from ..forks import refuse_in_forks
from ..graph import Graph, Param, build_graph, inference_graph, net_state
from ..graph.graph import tree_of
from ..graph.reshape import reshape_graph, with_batch
from ..inference.frozen_net import Frozen
from ..kernels import compiling
from ..layers import Phase, Source
from ..layers.dtypes import to_float32
from ..options import Options, Reading, Run, resolved
from ..schema import read_what_is_right, source_file
from ..schema.caffe_pb2 import NetParameter, NetState
from ..variables import Blobs, Outputs, Params, ParamsLike, Variables, index_blobs
from .initial import initial_variables
from .on_disk import OnDisk
from .pickled import rebuilt
from .rewriting import rewritten
from .shown import Shown

log = logging.getLogger("caffejax.net")


@refuse_in_forks("init", "freeze", "apply", "loss")
class Net(Shown, OnDisk):
    """A Caffe net for one phase.

    Args:
        model: path of a prototxt, its text, or a NetParameter.
        phase: "TRAIN" or "TEST".
        level: a further condition of the layers' include and exclude rules.
        stages: likewise.
        state: a complete NetState in place of phase, level and stages.
        run: how it computes.
        reading: how its data is read.
        file: where a NetParameter came from: for messages, and for paths relative to it.
        options: fields of `Run` and `Reading`, by name, in place of those of `run` and `reading`.

    Attributes:
        graph: the layers with names, shapes and wiring.
        run, reading: the options.
        schedule: how the layers run.
        runner: what runs a part of it.
        recomputing: with `remat`, what chooses the layers that are run again.

    Raises:
        SchemaError: if the file cannot be read, or its text is wrong, naming what else is wrong with the net.
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
        run: Run = Run(),
        reading: Reading = Reading(),
        file: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_selection(phase=phase, level=level, stages=stages)
        self.run, self.reading = resolved(run, reading, options)
        message, wrong = read_what_is_right(model)
        if file is None and (path := source_file(model)) is not None:
            file = str(path)
        state = state or net_state(message, phase, level, stages)
        self._definition = message, state, file
        self._reshaped = False  # whether the graph is another than the definition's
        self._set_graph(build_graph(message, state, file=file, run=self.run, reading=self.reading, wrong=wrong))

    def __reduce__(self) -> Any:
        # as its definition, to be built anew: what was compiled stays here
        message, state, file = self._definition
        options = {"run": self.run, "reading": self.reading, "file": file}
        made_of = message.SerializeToString(), state.SerializeToString(), options
        return rebuilt, (type(self), *made_of, self.graph if self._reshaped else self.graph.phase)

    def __copy__(self) -> Net:
        return self._with_graph(self.graph)

    def _with_graph(self, graph: Graph, reshaped: bool = False) -> Net:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._reshaped = self._reshaped or reshaped
        other._set_graph(graph)
        return other

    def _set_graph(self, graph: Graph) -> None:
        self.graph = graph
        self.schedule = plan(graph)
        self.runner = CompiledParts(self.run.kernels) if graph.has_host_layers else run_part
        self.recomputing: Rematerializer | None = None
        if self.run.remat == "auto" and graph.layers and not graph.has_host_layers:
            self.recomputing = Rematerializer(self.schedule, self.run.memory_limit)
        elif self.run.remat == "auto" and graph.has_host_layers:
            log.warning("no layers are recomputed to save memory: the net has some that run on the host")
        self._unseen = True  # whether nobody has asked if there is room
        self._forward = self.jit(self.apply, static_argnames="blobs")
        self._other_phase: Net | None = None

    def with_batch(self, batch: int, axis: int = 0) -> Net:
        """Return the same net built for another batch size: the length of that axis of all that it is fed.

        Raises:
            GraphError: naming every layer that cannot take it, or whose params it would change.
        """
        return self._with_graph(with_batch(self.graph, batch, axis), reshaped=True)

    def for_inference(self, outputs: Iterable[str] | None = None) -> Net:
        """Return the layers that some blobs need, in phase TEST; its outputs are these. The same variables fit.

        Args:
            outputs: the blobs; unless given the net's outputs, with what losses and scores compare in place of these.

        Raises:
            GraphError: naming the blobs that the net does not have.
        """
        test = self.in_phase("TEST")
        names = None if outputs is None else known_names(test.graph, "outputs", outputs)
        return test._with_graph(inference_graph(test.graph, names), reshaped=True)

    def first_layers(self, last: int) -> Net:
        """Return the net of the layers up to number `last`, with the same variables; of blobs these layers' values."""
        layers = self.graph.layers[: last + 1]
        blobs = {top: self.graph.blobs[top] for layer in layers for top in layer.tops}
        read = {bottom for layer in layers for bottom in layer.bottoms}
        outputs = tuple(name for name in blobs if name not in read)
        return self._with_graph(replace(self.graph, layers=layers, blobs=blobs, outputs=outputs), reshaped=True)

    def freeze(self, variables: Variables, outputs: Iterable[str] | None = None) -> Frozen:
        """Return the net in phase TEST as a function of its inputs alone, which gives the outputs by name.

        Args:
            variables: params and state.
            outputs: the blobs that are wanted; as for `for_inference`.

        Raises:
            GraphError: naming the blobs that the net does not have.
            WeightsError: naming all params and state that are missing, or of a wrong shape or type.
        """
        if isinstance(variables, Mapping) or isinstance(outputs, Mapping) or len(variables) != 2:
            raise WeightsError("params and state are one argument: net.freeze((params, state))")
        subject = self.for_inference(outputs)
        return Frozen(subject.graph, variables, subject.run)

    def with_run(self, run: Run) -> Net:
        """Return the same net, for inputs of the same shapes, computing in another way."""
        message, state, file = self._definition
        other = type(self)(message, state=state, file=file, run=run, reading=self.reading).in_phase(self.graph.phase)
        return other._with_graph(
            reshape_graph(other.graph, {name: self.graph.blobs[name].shape for name in self.input_names}),
            self._reshaped,
        )

    def in_phase(self, phase: Phase) -> Net:
        """Return the same layers behaving as in another phase; include and exclude rules are not applied anew."""
        if phase == self.graph.phase:
            return self
        if self._other_phase is None:
            other = self._with_graph(self.graph.in_phase(phase))
            self._other_phase, other._other_phase = other, self
        return self._other_phase

    def jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Compile a function that runs the net, as `jax.jit` does; return it as it is where host layers forbid that.

        The parts between host layers are compiled in either case.
        """
        return function if self.has_host_layers else compiling.jit(function, self.run.kernels, **options)

    @property
    def has_host_layers(self) -> bool:
        """Whether some layers cannot be compiled; then the net must be called outside of jax.jit."""
        return self.graph.has_host_layers

    @property
    def input_names(self) -> tuple[str, ...]:
        """Blobs that `inputs` must hold: tops of Input and data layers."""
        return self.graph.input_names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Blobs that no layer reads."""
        return self.graph.outputs

    def sources(self) -> dict[str, Source]:
        """Open a new source for each data layer, by the layer's key. Close them when done.

        A Python layer is the one source of its own data: it goes on where it was.
        """
        from ..data.loader import open_sources  # inference needs none of it

        return open_sources(self.graph)

    def init(self, key: jax.Array, dtype: Any = jnp.float32, shardings: Any = None) -> Variables:
        """Make new params and state with the layers' fillers.

        The numbers depend on the key, the layer's name and the param's index only, so that other layers coming or
        going change nothing. Params that `shardings`, a tree like them, cuts over several devices are made in parts
        there, so that none has to fit one device; all processes then call it together.

        Raises:
            GraphError: naming all layers that there is no room for.
        """
        check_key(key)
        if not isinstance(key, jax.core.Tracer):  # shapes alone take no room
            check_room(self.graph, shardings)
        return initial_variables(self.graph, key, dtype, index_blobs(shardings or {}))

    def apply(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        *,
        key: jax.Array | None = None,
        blobs: Iterable[str] | None = None,
    ) -> tuple[Blobs, Params]:
        """Run one forward pass.

        Args:
            params: as `init` gives them.
            state: likewise.
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
        result = self._result(PassInputs(params, state, inputs, key, {}), wanted)
        return self._returned(result.values, wanted), result.state

    def forward(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        *,
        key: jax.Array | None = None,
        blobs: Iterable[str] | None = None,
    ) -> tuple[Blobs, Params]:
        """Do as `apply`, compiled, with the compiler options that are fastest on a CPU."""
        found: tuple[Blobs, Params] = self._forward(
            params, state, inputs, key=key, blobs=blobs if blobs is None else tuple(blobs)
        )
        return found

    def loss(
        self,
        params: ParamsLike,
        state: ParamsLike,
        inputs: Mapping[str, jax.Array],
        key: jax.Array | None = None,
        *,
        blobs: Iterable[str] | None = None,
        taps: Mapping[str, jax.Array] | None = None,
    ) -> tuple[jax.Array, Outputs]:
        """Sum all tops by their loss weights; ready for `jax.value_and_grad(..., has_aux=True)`.

        Args:
            params: as `init` gives them.
            state: likewise.
            inputs: as for `apply`.
            key: likewise.
            blobs: likewise.
            taps: zeros to add to the blobs they name. A tap's gradient is what Caffe calls the blob's diff, and is
                there where Caffe would not compute it, too.

        Raises:
            CaffejaxError: as for `apply`.
        """
        wanted = self.outputs if blobs is None else known_names(self.graph, "blobs", blobs)
        result = self._result(PassInputs(params, state, inputs, key, taps or {}), wanted, training=True)
        return result.loss, Outputs(self._returned(result.values, wanted), result.state)

    def trimmed(self, blobs: Blobs) -> Blobs:
        """Return blobs without rows of padding, as Caffe has them.

        The tops of layers whose number of rows depends on the data, such as DetectionOutput, have as many rows as
        there can be while they are in compiled code; so do the blobs that follow row by row, which are trimmed if the
        one that began it is among `blobs`. Not to be called in compiled code.
        """
        return trimmed_blobs(self.graph, blobs)

    def _result(self, given: PassInputs, wanted: tuple[str, ...], *, training: bool = False) -> PassOutputs:
        """Run the net, for its backward pass as well if `training`."""
        given = check_given(self.graph, given)
        if self._unseen and not isinstance(next(iter(given.blobs.values()), None), jax.core.Tracer):
            check_room(self.graph)
            self._unseen = False
        with shape_hints(self.graph, given.blobs):
            schedule = self.recomputing.schedule(given) if training and self.recomputing else self.schedule
            return run(unfuse(schedule, frozenset(given.taps)), given, wanted=wanted, runner=self.runner)

    def _returned(self, values: Blobs, names: Iterable[str]) -> Blobs:
        own = to_float32 if self.run.precision == "bfloat16" else lambda value: value
        return {name: own(values[name]) for name in names}

    def rewritten(self, params: ParamsLike) -> Params:
        """Return params as a forward pass of Caffe leaves them: some types write into theirs, see `ParamSpec`."""
        return rewritten(self.graph, index_blobs(params))

    def tree(self, value: Callable[[Param], Any]) -> Any:
        """Return `{layer: {index: value(param)}}` for every param and running statistic.

        Params whose value is None are left out, and so are layers without any value.

        Args:
            value: a function of a `Param`, with its `slot`, `spec.shape`, `lr_mult` and the like.
        """
        return tree_of((p for p in self.graph.params if p.is_owner), value)
