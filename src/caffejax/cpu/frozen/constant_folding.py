"""Constant folding: fold per-channel factors into weights, compute constants once, and remove identity layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ...core.graph import Graph, Layer, Param, Slot
from ...core.layers import ParamSpec, Traced
from ...core.layers.context import Epilogue
from ...core.layers.shape_ops import concat, concat_axis
from ...core.ops.implementations import find_form, register_forms
from ...core.program.interpreter import PassInputs, VariableTrees, compute_part
from ...core.program.schedule import make_part
from ...core.program.targets import find_readers
from ...core.schema.caffe_pb2 import ConcatParameter
from ..kernels.packed_weights import StoredWeight

Arrays = tuple[Any, ...]
Constants = dict[str, Any]  # NumPy or JAX arrays by blob name


def fold(graph: Graph, variables: VariableTrees) -> tuple[Graph, VariableTrees]:
    """Fold per-channel factors and biases into the weights of the layers before them, and remove identity layers.

    Args:
        graph: a graph in which exactly one layer computes each blob; see `make_inference_graph`.
        variables: parameters and state of the net, which may also contain arrays of layers outside the graph.

    Returns:
        The folded graph and its variables. The names of inputs and outputs do not change. In the folded graph, no
        layers share parameters. Each entry of the variables is an array, or a `ScaledWeight`, which multiplies a weight
        by its factors when NumPy converts it to an array.
    """
    graph = _remove_identities(graph)
    builder = _FoldedGraphBuilder(graph, variables)
    for layer in graph.layers:
        builder.add(layer)
    return builder.build()


def materialize(variables: VariableTrees) -> VariableTrees:
    """Return the parameters and state of a folded graph as JAX arrays. A `StoredWeight` is unpacked."""

    def to_array(weight: Any) -> jax.Array:
        source = weight.source if isinstance(weight, StoredWeight) else weight
        return source if isinstance(source, jax.Array) else jax.device_put(np.asarray(weight))

    arrays: VariableTrees = jax.tree.map(to_array, tuple(variables))
    return arrays


def _remove_identities(graph: Graph) -> Graph:
    """Return the graph without the layers that only copy their bottoms, except those that compute an output."""
    source_names: dict[str, str] = {}
    layers = []
    for layer in graph.layers:
        layer = replace(layer, bottoms=tuple(source_names.get(b, b) for b in layer.bottoms))
        if _is_identity(layer) and not any(top in graph.outputs for top in layer.tops):
            bottoms = layer.bottoms if len(layer.tops) == len(layer.bottoms) else layer.bottoms * len(layer.tops)
            source_names.update(zip(layer.tops, bottoms, strict=True))
        else:
            layers.append(layer)
    return replace(graph, layers=tuple(layers))


def _is_identity(layer: Layer) -> bool:
    traits = layer.type.traits
    return traits.is_copy or bool(layer.context.evaluate(traits.is_identity))


class _FoldedGraphBuilder:
    """The folded graph under construction. Layers are added in order, and folded into earlier layers if possible."""

    def __init__(self, graph: Graph, variables: VariableTrees) -> None:
        self._graph, self._variables = graph, variables
        self._readers = find_readers(graph.layers, graph.outputs)
        self._layers: dict[str, Layer] = {}  # by key
        self._arrays: dict[str, Arrays] = {}
        self._producers: dict[str, str] = {}  # the key of the producer of each blob

    def add(self, layer: Layer) -> None:
        arrays = layer.arrays(*self._variables)
        if not self._fold_into_producer(layer, arrays):
            params = [replace(p, owner=p.slot) for p in layer.all_params]
            n = len(layer.params)
            self._store(replace(layer, params=tuple(params[:n]), recurrent_state=tuple(params[n:])), arrays)

    def build(self) -> tuple[Graph, VariableTrees]:
        layers = tuple(self._layers.values())
        blobs = {top: self._graph.blobs[top] for layer in layers for top in layer.tops}
        trees: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for layer in layers:
            for param, array in zip(layer.all_params, self._arrays[layer.key], strict=True):
                trees[not param.spec.learnable].setdefault(layer.key, {})[param.slot.name] = array
        return replace(self._graph, layers=layers, blobs=blobs), trees

    def _store(self, layer: Layer, arrays: Arrays) -> None:
        self._layers[layer.key], self._arrays[layer.key] = layer, arrays
        self._producers.update(dict.fromkeys(layer.tops, layer.key))

    def _fold_into_producer(self, layer: Layer, arrays: Arrays) -> bool:
        """Fold a layer that applies a factor and a bias to each channel into the layer that computes its bottom.

        This is possible if that layer has a type such as Convolution, and no other layer reads its top.

        Args:
            layer: the layer.
            arrays: the layer's parameters and state.

        Returns:
            Whether the layer was folded.
        """
        if layer.type.traits.channel_affine is None or len(layer.bottoms) != 1 or any(layer.loss_weights):
            return False
        (bottom,) = layer.bottoms
        producer = self._layers.get(self._producers.get(bottom, ""))
        if (
            producer is None
            or producer.type.traits.fold_scale_bias is None
            or len(producer.tops) != 1
            or len(self._readers[bottom]) != 1
        ):
            return False
        shape, affine = self._graph.blobs[bottom].shape, Epilogue(layer.context, tuple(map(np.asarray, arrays)))
        if not affine.is_channel_affine(1, shape[1] if len(shape) > 1 else 0):
            return False
        factors = affine.factor_and_bias()
        folded_layer = producer.context.call(
            producer.type.traits.fold_scale_bias, *factors, blobs=self._arrays[producer.key]
        )
        if folded_layer is None:
            return False
        message, blobs = folded_layer
        params = tuple(
            Param(slot, i, slot, ParamSpec(tuple(b.shape)), "", 1, 1, False)
            for i, b in enumerate(blobs)
            for slot in [Slot(producer.key, str(i))]
        )
        context = replace(producer.context, layer=message)
        del self._producers[bottom]
        self._store(replace(producer, context=context, params=params, tops=layer.tops), blobs)
        return True


def remove_constants(graph: Graph, variables: VariableTrees) -> tuple[Graph, Constants]:
    """Compute the blobs that depend on the shapes of the inputs, but not on their values, such as prior boxes.

    Returns:
        The graph without the layers that compute these blobs, and the blobs, NumPy or JAX arrays by name.
    """
    constants: Constants = {}
    layers = []
    for layer in graph.layers:
        tops = _compute_constant_tops(graph, layer, variables, constants)
        if tops is None:
            layers.append(layer)
        else:
            constants |= tops
    return replace(graph, layers=tuple(layers)), constants


def _compute_constant_tops(
    graph: Graph, layer: Layer, variables: VariableTrees, constants: Mapping[str, Any]
) -> Constants | None:
    """Return a layer's tops by name if they do not depend on the values of the net's inputs, else None."""
    if layer.type.is_input or layer.type.on_host or layer.recurrent_state or not layer.bottoms:
        return None
    if not layer.type.traits.depends_only_on_shapes and not constants.keys() >= set(layer.bottoms):
        return None
    if (compute_tops := host_function(layer)) is not None:
        return compute_tops([constants.get(b, _zeros(graph, b)) for b in layer.bottoms])
    part = make_part([layer])
    params, state = materialize((part.select(variables[0]), part.select(variables[1])))
    earlier_blobs = {b: jax.device_put(np.asarray(constants.get(b, _zeros(graph, b)))) for b in layer.bottoms}
    return dict(compute_part(part, PassInputs(params, state, {}, None, {}), earlier_blobs).values)


def _zeros(graph: Graph, blob: str) -> np.ndarray:
    spec = graph.blobs[blob]
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)  # takes the memory of one element


def host_function(layer: Layer) -> Callable[[Sequence[Any]], Constants] | None:
    """Return a function that computes a layer's tops with NumPy, or None if the layer has no such implementation.

    The function takes a list of the bottoms as arrays, and returns the tops by name.
    """
    implementation = layer.type.implementation
    if not isinstance(implementation, Traced) or layer.all_params or any(layer.loss_weights):
        return None
    forward = find_form(implementation.forward, "host")
    if forward is None:
        return None

    def compute_tops(bottoms: Sequence[Any]) -> Constants:
        with layer.locate_errors(), np.errstate(all="ignore"):  # no warnings about infinity and NaN, as in XLA
            tops = layer.context.call(forward, *(np.asarray(b, np.float32) for b in bottoms))
        return dict(zip(layer.tops, tops if isinstance(tops, tuple) else (tops,), strict=True))

    return compute_tops


def _concat_on_host(p: ConcatParameter, *xs: np.ndarray) -> np.ndarray:
    return np.concatenate(xs, concat_axis(p, xs))


register_forms("host", {concat.forward: _concat_on_host})
