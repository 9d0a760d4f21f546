"""Timing of a net, with each layer compiled separately and with the entire net compiled as one program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.variables import Variables
from ...core.data.loader import Loader
from ...core.data.synthetic_inputs import complete_inputs
from ...core.graph.index_ranges import find_indexing_layers
from ...core.graph.inference_graph import output_and_loss_names
from ...core.layers import SourceInput
from ...core.ops.compilation import Jitted
from ...core.program.frozen import freeze_passes
from ...core.program.interpreter import PassInputs, PassOutputs, Values, compute_part, run_schedule
from ...core.program.net import Net
from ...core.program.schedule import Part, make_unfused_schedule, split_by_layer
from ...core.solver.index_check import check_indices


class LayerTime(NamedTuple):
    """The times of one layer's forward and backward pass, in milliseconds.

    `backward` is 0 for a layer without a backward pass. In a net without a loss, gradients are computed as if the
    outputs were losses.
    """

    name: str
    forward: float
    backward: float


class NetTime(NamedTuple):
    """The times of passes of the entire net, compiled as one program, in milliseconds.

    Attributes:
        forward: the time of a forward pass.
        both: the time of a forward and backward pass.
        frozen: the time of a forward pass of the net compiled for inference, or None if it cannot be compiled for
            inference; see `inference.freeze_passes`.
    """

    forward: float
    both: float
    frozen: float | None


class Timer:
    """Measures the times of a net's layers and of the entire net, one pass at a time.

    `time_layers` times each layer separately, as Caffe runs it, which shows the expensive layers. The sum of these
    times is not the time of the net, because the net is compiled as one program. `time_net` times this program.

    Args:
        net: the net. Tops of Input layers are random, and data layers read their data.
        variables: parameters and running statistics.
        key: the random key of random layers.
    """

    def __init__(self, net: Net, variables: Variables, key: jax.Array) -> None:
        net.graph.check_backward()
        self._net, self._variables, self._key = net, variables, key
        inputs = complete_inputs(net.graph, {}, np.random.default_rng(0)) if net.graph.caller_inputs else {}
        self._caller_inputs = {top: jnp.asarray(inputs[top], jnp.float32) for top in net.graph.caller_inputs}
        self._loader = Loader(net.graph, read_caller_inputs=lambda: self._caller_inputs)
        self._schedule = split_by_layer(make_unfused_schedule(net.graph))
        self._compiled_layers = {
            part: _CompiledLayer(part, not net.graph.loss_weights) for part in self._schedule.parts
        }
        self._forward = net.jit(lambda v, x: net.loss(v.params, v.state, x, key, required=False))
        self._frozen = freeze_passes(net.graph, net.config, variables, output_and_loss_names(net.graph))
        self._both = net.jit(lambda v, x: jax.value_and_grad(self._loss, has_aux=True)(v.params, v.state, x, key))

    def _loss(self, params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the net's loss, or the sum of its outputs if it has no loss."""
        loss, outputs = self._net.loss(params, state, batch, key, required=False)
        if not self._net.graph.loss_weights:
            tops = jax.tree.leaves({top: outputs.blobs[top] for top in self._net.graph.outputs})
            loss = sum((top.sum() for top in tops), loss)
        return loss, outputs

    def time_layers(self) -> list[LayerTime]:
        """Time one forward and backward pass, layer by layer."""
        times: list[LayerTime] = []

        def time_part(part: Part, inputs: PassInputs, values: Values, keep: frozenset[str] | None) -> PassOutputs:
            time, result = self._time_layer(part, inputs, values)
            times.append(time)
            return result

        run_schedule(
            self._schedule, PassInputs(*self._variables, self._caller_inputs, self._key, {}), compute=time_part
        )
        return times

    def time_net(self) -> NetTime:
        """Time one pass of the net, compiled as one program."""
        batch = jax.device_put(next(self._loader))
        forward, _ = _time_call(self._forward, self._variables, batch)
        both, _ = _time_call(self._both, self._variables, batch)
        frozen = None if self._frozen is None else _time_call(self._frozen, batch, self._key)[0]
        return NetTime(forward, both, frozen)

    def _time_layer(self, part: Part, inputs: PassInputs, values: Values) -> tuple[LayerTime, PassOutputs]:
        """Time one layer or, for a data layer, the reading of a batch. Return the time and the layer's outputs."""
        (layer,) = part.layers
        if isinstance(layer.type.implementation, SourceInput):
            milliseconds, tops = _time_call(
                lambda: layer.transform_on_device(list(self._loader.read(layer.key).values()))
            )
            outputs = PassOutputs(dict(zip(layer.tops, tops, strict=True)), {}, jnp.zeros(()))
            return LayerTime(layer.name, milliseconds, 0.0), outputs
        if layer.type.is_input:
            return LayerTime(layer.name, 0.0, 0.0), compute_part(part, inputs, values)
        if find_indexing_layers(part.layers):
            check_indices(layer, [values[name] for name in layer.bottoms])
        return self._compiled_layers[part](inputs, values)

    def close(self) -> None:
        """Close the sources of the data layers."""
        self._loader.close()


class _CompiledLayer:
    """The compiled forward and backward pass of one layer."""

    def __init__(self, part: Part, has_no_loss: bool) -> None:
        (self._layer,) = part.layers
        is_differentiable = self._layer.type.has_backward and not self._layer.type.stops_gradients
        self._need_backward = self._layer.need_backward or (has_no_loss and is_differentiable)

        def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
            return function if self._layer.type.on_host else Jitted(function, self._layer.context.config.kernels)

        def forward_for_backward(inputs: PassInputs, values: Values) -> Any:
            def compute_tops(params: Any, values: Values) -> Any:
                result = compute_part(part, inputs._replace(params=params), values)
                return [result.values[top] for top in self._layer.tops]

            return jax.vjp(compute_tops, inputs.params, values)

        self._forward = compile_function(partial(compute_part, part))
        self._forward_for_backward = compile_function(forward_for_backward)
        self._backward = compile_function(lambda pullback, diffs: pullback(diffs))

    def __call__(self, inputs: PassInputs, values: Values) -> tuple[LayerTime, PassOutputs]:
        """Time both passes, and return the times and the outputs of the forward pass."""
        forward, result = _time_call(self._forward, inputs, values)
        backward = 0.0
        if self._need_backward:
            tops, pullback = self._forward_for_backward(inputs, values)
            backward, _ = _time_call(self._backward, pullback, [jnp.ones_like(top) for top in tops])
        return LayerTime(self._layer.name, forward, backward), result


def average_times(passes: Sequence[Sequence[LayerTime]]) -> Iterator[LayerTime]:
    """Yield the mean times of each layer over several passes."""
    for times in zip(*passes, strict=True):
        yield LayerTime(
            times[0].name,
            float(np.mean([t.forward for t in times])),
            float(np.mean([t.backward for t in times])),
        )


def _time_call(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return 1000 * (time.perf_counter() - start), result
