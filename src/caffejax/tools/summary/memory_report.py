"""Memory and cost of a net by layer: parameters, activations, bytes and multiply-adds. No layer is run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax

from ...base.errors import GraphError, Problem
from ...base.human_readable import format_bytes, format_count
from ...base.text_table import align_columns
from ...core.graph.reshape import with_batch
from ...core.ops import compilation
from ...core.program.net import Net
from ...core.program.rematerialize import RematGroups, choose_remat_groups
from ...core.solver.training_memory import KEY_SHAPE, make_pass_inputs
from .net_summary import LayerSummary, summarize_layer

SUMMED_FIELDS = ("parameters", "parameter_bytes", "activations", "activation_bytes", "multiply_adds")


class CompiledMemory(NamedTuple):
    """Memory of a compiled forward and backward pass in bytes, as XLA reports it.

    Attributes:
        arguments: parameters, statistics and a batch.
        results: gradients, statistics and outputs.
        temporary: activations, diffs and workspaces.
    """

    arguments: int
    results: int
    temporary: int


@dataclass(frozen=True)
class MemoryReport:
    """Costs of a net's layers, and the memory of training.

    Attributes:
        layers: one entry per layer, in order.
        training: the estimated memory of training, and the layers that are rematerialized. It is None in phase TEST,
            for nets without a loss, and for nets with layers on the host.
    """

    layers: tuple[LayerSummary, ...]
    training: RematGroups | None

    def __str__(self) -> str:
        return "\n".join([*align_columns(self._rows(), num_text_columns=3), *self._training_lines()])

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield "layer", "type", "tops", "parameters", "activations", "bytes", "multiply-adds"
        for layer in self.layers:
            tops = " ".join("x".join(map(str, shape)) or "scalar" for shape in layer.top_shapes)
            yield layer.name, layer.type, tops, *_format_sizes({name: getattr(layer, name) for name in SUMMED_FIELDS})
        yield "total", "", "", *_format_sizes(self.total)

    def _training_lines(self) -> Iterator[str]:
        if (training := self.training) is None:
            return
        yield f"\nParameters, gradients, history, statistics and a batch: {format_bytes(training.fixed)}"
        yield f"Training, with activations and their diffs: about {format_bytes(training.peak_without_remat)}"
        if training.num_recomputed:
            layers = f"{training.num_recomputed} of {len(self.layers)} layers"
            groups = format_count(len(training.groups) - 1, "group")
            yield f"Training, computing {layers} in {groups} twice: about {format_bytes(training.peak)}"
        if not training.fits:
            yield "That is more than the limit, and rematerialization cannot reduce it; a smaller batch takes less."

    @property
    def total(self) -> dict[str, int]:
        """The numbers of parameters, activations, bytes of both, and multiply-adds, summed over all layers."""
        return {name: sum(getattr(layer, name) or 0 for layer in self.layers) for name in SUMMED_FIELDS}


def _format_sizes(sizes: Mapping[str, int | None]) -> tuple[str, ...]:
    num_bytes = (sizes["parameter_bytes"] or 0) + (sizes["activation_bytes"] or 0)
    numbers = sizes["parameters"], sizes["activations"], num_bytes, sizes["multiply_adds"]
    return tuple("?" if n is None else f"{n:,}" for n in numbers)


def report_memory(net: Net, batch: int | None = None) -> MemoryReport:
    """Report a net's parameters, activations, bytes and multiply-adds by layer.

    Args:
        net: the net.
        batch: the batch size, which is the first axis of every input, or None for the net's batch size.

    Raises:
        GraphError: if the net does not support this batch size.
    """
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    training = None
    if not net.has_host_layers and any(graph.loss_weights) and graph.phase == "TRAIN":
        inputs = make_pass_inputs(net, graph)
        training = (
            net.rematerializer.choose_groups(inputs)
            if net.rematerializer
            else choose_remat_groups(net.layer_schedule, inputs, sys.maxsize)
        )
    return MemoryReport(tuple(summarize_layer(layer, graph) for layer in graph.layers), training)


def report_compiled_memory(net: Net, batch: int | None = None) -> CompiledMemory:
    """Compile the net's loss and gradients, and return the memory that the program uses.

    Args:
        net: the net.
        batch: the batch size, which is the first axis of every input, or None for the net's batch size.

    Raises:
        GraphError: if the net does not support this batch size, has no gradients, or has host layers, which are not
            compiled.
    """
    if net.has_host_layers:
        parts = "; ".join(str(net.layer_schedule).splitlines())
        message = f"has layers that run on the host, so it is not compiled as one program ({parts}); omit --compiled"
        raise GraphError(Problem(message, file=net.graph.file))
    net.graph.check_backward()
    graph = net.graph if batch is None else with_batch(net.graph, batch)
    variables = jax.eval_shape(net.init, KEY_SHAPE)
    inputs = {name: graph.blobs[name] for name in net.input_names}
    loss_and_gradients = jax.value_and_grad(partial(net.loss, required=False), has_aux=True)
    program = compilation.Jitted(loss_and_gradients, net.config.kernels)
    analysis: Any = program.lower(*variables, inputs, KEY_SHAPE).compile().memory_analysis()
    sizes = (analysis.argument_size_in_bytes, analysis.output_size_in_bytes, analysis.temp_size_in_bytes)
    return CompiledMemory(*map(int, sizes))
