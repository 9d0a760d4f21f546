"""What a net takes, layer by layer: parameters, activations, bytes, multiply-adds. Nothing is run for it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..errors import GraphError, Problem
from ..graph import Graph, Layer
from ..graph.reshape import with_batch
from ..kernels import compiling
from ..layers.calling import forward
from ..net import Net
from ..schedule import Given
from ..schedule.groups import Groups
from ..schedule.recompute import Recomputing
from .counting import multiply_adds

_KEY = jax.eval_shape(jax.random.key, 0)


class LayerMemory(NamedTuple):
    """One layer.

    Attributes:
        name, type: Caffe's.
        tops: their shapes.
        parameters: numbers in the params that are its own, running statistics included.
        parameter_bytes: what they take.
        activations: numbers in its tops; 0 for what shares memory with a bottom: in-place tops and splits.
        activation_bytes: what they take.
        multiply_adds: of the forward pass, for the whole batch; None for host layers, which cannot be looked into.
    """

    name: str
    type: str
    tops: tuple[tuple[int, ...], ...]
    parameters: int
    parameter_bytes: int
    activations: int
    activation_bytes: int
    multiply_adds: int | None


class CompiledMemory(NamedTuple):
    """XLA's own figures, in bytes, of a compiled forward and backward pass.

    Attributes:
        arguments: parameters, statistics and a batch.
        results: gradients, statistics and outputs.
        temporary: all else: activations, diffs, room to work in.
    """

    arguments: int
    results: int
    temporary: int


@dataclass(frozen=True)
class MemoryReport:
    """A net's layers, and what training it takes.

    Attributes:
        layers: one entry per layer, in order.
        training: an estimate of the bytes that training takes, and which layers it runs twice; None in TEST, and
            where nothing is a loss or layers run on the host.
    """

    layers: tuple[LayerMemory, ...]
    training: Groups | None

    @property
    def total(self) -> LayerMemory:
        """The sums over all layers."""
        sums: Any = (sum(layer[i] or 0 for layer in self.layers) for i in range(3, len(LayerMemory._fields)))
        return LayerMemory("total", "", (), *sums)


def memory_report(net: Net, batch: int | None = None) -> MemoryReport:
    """Report what a net takes, layer by layer.

    Args:
        net: the net.
        batch: another batch size: the first axis of all that the net is fed.

    Raises:
        GraphError: if the net cannot take such a batch.
    """
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    training = None
    if not net.has_host_layers and any(graph.losses) and graph.phase == "TRAIN":
        params, state = jax.eval_shape(net.init, _KEY)
        inputs: Any = {name: graph.blobs[name] for name in net.fed}
        given = Given(params, state, inputs, _KEY, {})
        training = (net.recomputing or Recomputing(net.schedule, sys.maxsize)).groups(given)
    return MemoryReport(tuple(_of_layer(layer, graph) for layer in graph.layers), training)


def compiled_memory(net: Net, batch: int | None = None) -> CompiledMemory:
    """Compile the net's loss and gradients, for another batch size if given, and return what they take.

    Raises:
        GraphError: if the net cannot take such a batch, has no gradients, or host layers, which are not compiled.
    """
    if net.has_host_layers:
        parts = "; ".join(str(net.schedule).splitlines())
        message = f"has layers that run on the host and is not compiled as one ({parts}); leave --compiled out"
        raise GraphError(Problem(message, file=net.graph.file))
    net.graph.check_backward()
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    variables = jax.eval_shape(net.init, _KEY)
    inputs = {name: graph.blobs[name] for name in net.fed}
    both = compiling.jit(jax.value_and_grad(net.loss, has_aux=True), net.run.kernels)
    analysis: Any = both.lower(*variables, inputs, _KEY).compile().memory_analysis()
    sizes = (analysis.argument_size_in_bytes, analysis.output_size_in_bytes, analysis.temp_size_in_bytes)
    return CompiledMemory(*map(int, sizes))


def net_sizes(graph: Graph) -> tuple[int, int]:
    """Return how many numbers are in a net's params, and in its activations."""
    layers = [_of_layer(layer, graph, count=False) for layer in graph.layers]
    return sum(layer.parameters for layer in layers), sum(layer.activations for layer in layers)


def _of_layer(layer: Layer, graph: Graph, count: bool = True) -> LayerMemory:
    tops = [graph.blobs[top] for top in layer.tops]
    shared = layer.tops if layer.type.facts.copies else layer.bottoms
    new = [x for name, x in zip(layer.tops, tops, strict=True) if name not in shared]
    parameters = sum(math.prod(p.spec.shape) for p in layer.params if p.owned)
    return LayerMemory(
        name=layer.name,
        type=layer.type.name,
        tops=tuple(x.shape for x in tops),
        parameters=parameters,
        parameter_bytes=parameters * jnp.dtype(jnp.float32).itemsize,
        activations=sum(math.prod(x.shape) for x in new),
        activation_bytes=sum(math.prod(x.shape) * x.dtype.itemsize for x in new),
        multiply_adds=_multiply_adds(layer, graph) if count else None,
    )


def _multiply_adds(layer: Layer, graph: Graph) -> int | None:
    if layer.type.is_fed:
        return 0
    if layer.type.on_host:
        return None
    plain = layer.context.plain()
    blobs = [jax.ShapeDtypeStruct(p.spec.shape, jnp.float32) for p in layer.owned]
    bottoms = [graph.blobs[bottom] for bottom in layer.bottoms]
    return multiply_adds(lambda key, *arrays: forward(plain.with_key((key, 0)), *arrays), _KEY, blobs, bottoms)
