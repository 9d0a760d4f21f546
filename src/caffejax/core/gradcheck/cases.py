"""The cases that a gradient check compares: the layers of a net, or a single layer, with arrays of one forward pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import GraphError, LayerError, Problem, did_you_mean, shorten_list
from ...base.variables import Variables
from ..checkpoints.load_save import load_weights
from ..graph import Graph, Layer
from ..layers import Declaration, LayerType
from ..layers.context import Arrays, Phase
from ..layers.registry import is_builtin
from ..program.backward import is_users_host_layer
from ..program.interpreter import PassInputs, PassOutputs, Values, run_schedule
from ..program.layer_function import make_layer_net, name_blobs, parse_layer
from ..program.net import Net
from ..program.schedule import Part, make_unfused_schedule, split_by_layer
from ..schema.caffe_pb2 import LayerParameter
from .layer_gradients import Argument, Case, compute_tops, sample_diffs


def make_cases(
    net: Net,
    layers: Sequence[str] | None,
    variables: Variables,
    inputs: Mapping[str, np.ndarray],
    random: np.random.Generator,
    key: jax.Array,
) -> list[tuple[Layer, Case]]:
    """Return layers with their arrays in one forward pass, as cases to check.

    The arguments of a case are the bottoms and blobs that have a gradient. Layers that have neither bottoms nor blobs
    are omitted.

    Args:
        net: the net.
        layers: names of layers, or None for all layers.
        variables: the net's variables.
        inputs: the net's inputs.
        random: the generator of the diffs of tops.
        key: the random key of random layers.
    """
    selected_layers = [
        layer
        for layer in _select_layers(net.graph, layers)
        if not layer.type.is_input and (layer.bottoms or layer.params)
    ]
    arrays = _layer_arrays(net, selected_layers, variables, inputs, key)
    pairs = []
    for layer in selected_layers:
        blobs, bottoms, tops = arrays[layer.key]
        arguments = _select_arguments(layer)
        propagate_down = layer.bottom_need_backward
        if is_unused(layer):  # it has no params, so all arguments are bottoms
            positions = {argument.position for argument in arguments}
            propagate_down = tuple(i in positions for i in range(len(layer.bottoms)))
        context = replace(layer.context, fold_in_args=layer.make_fold_in_args(key), propagate_down=propagate_down)
        pairs.append((layer, Case(context, blobs, bottoms, tops, sample_diffs(tops, random), arguments)))
    return pairs


def make_net_variables(
    net: Net, weights: Variables | str | os.PathLike[str] | None, random: np.random.Generator, seed: int
) -> Variables:
    """Return the net's variables: `weights`, otherwise the fillers' values, and random params instead of zeros."""
    if isinstance(weights, tuple):
        return Variables(*weights)
    params, state = net.init(jax.random.key(seed), jnp.float64)
    variables = Variables(jax.tree.map(lambda param: _sample_if_zero(param, random), params), state)
    return variables if weights is None else load_weights(weights, net.graph, variables)


def _sample_if_zero(param: jax.Array, random: np.random.Generator) -> jax.Array:
    """Return a random array instead of zeros, at which gradients with respect to other arrays are often zero."""
    if np.any(param):
        return param
    return jnp.asarray(random.normal(size=param.shape) / max(prod(param.shape[1:]), 1) ** 0.5)  # as xavier scales


def _select_layers(graph: Graph, names: Sequence[str] | None) -> list[Layer]:
    if names is None:
        return [layer for layer in graph.layers if not layer.is_inserted_split]
    keys = [layer.key for layer in graph.layers]
    if unknown := [name for name in names if name not in keys]:
        raise GraphError(
            Problem(
                f"the net has no layer '{name}' in phase {graph.phase}"
                + (did_you_mean(name, keys) or f"; it has {', '.join(shorten_list(keys))}"),
                file=graph.file,
            )
            for name in unknown
        )
    return [layer for layer in graph.layers if layer.key in names]


def _select_arguments(layer: Layer) -> tuple[Argument, ...]:
    # a user's host layer computes only the gradients that the net needs. If it needs none, all are computed here, so
    # that the layer is checked although it reads the net's inputs
    computes_all = not is_users_host_layer(layer) or is_unused(layer)
    bottoms = [
        Argument("bottom", i, name_bottom(i, name))
        for i, name in enumerate(layer.bottoms)
        if i not in layer.index_bottoms
        and not layer.type.stops_gradients
        and (computes_all or layer.bottom_need_backward[i])
    ]
    blobs = [Argument("blob", i, p.spec.name or f"blob {i}") for i, p in enumerate(layer.params) if p.spec.learnable]
    return (*bottoms, *blobs)


def name_bottom(index: int, name: str) -> str:
    """Return the name of a bottom in reports."""
    return f"bottom {index} ({name})"


def is_unused(layer: Layer) -> bool:
    """Return whether the net needs no gradient of a user's host layer."""
    return is_users_host_layer(layer) and not layer.params and not any(layer.bottom_need_backward)


def _layer_arrays(
    net: Net, layers: Sequence[Layer], variables: Variables, inputs: Mapping[str, np.ndarray], key: jax.Array
) -> dict[str, tuple[Arrays, Arrays, Arrays]]:
    """Return the blobs, bottoms and tops of each layer in one forward pass, by layer key."""
    selected_keys = {layer.key for layer in layers}
    schedule = split_by_layer(make_unfused_schedule(net.graph))

    def run_layers(variables: Variables, inputs: Mapping[str, jax.Array], key: jax.Array) -> Any:
        arrays = {}

        def run_layer(
            part: Part, pass_inputs: PassInputs, blobs_before: Values, keep: frozenset[str] | None
        ) -> PassOutputs:
            (layer,) = part.layers
            if layer.type.is_input:
                return PassOutputs({top: inputs[top] for top in layer.tops}, {}, jnp.zeros(()))
            with layer.locate_errors():
                blobs = layer.arrays(*variables)
                bottoms = tuple(blobs_before[name] for name in layer.bottoms)
                tops = compute_tops(layer.context.replace(fold_in_args=layer.make_fold_in_args(key)), blobs, bottoms)
            if layer.key in selected_keys:
                arrays[layer.key] = (blobs, bottoms, tops)
            return PassOutputs(dict(zip(layer.tops, map(_to_float64, tops), strict=True)), {}, jnp.zeros(()))

        run_schedule(schedule, PassInputs(*variables, inputs, key, {}), compute=run_layer)
        return arrays

    run = run_layers if net.has_host_layers else jax.jit(run_layers)
    return run(jax.tree.map(_to_float64, variables), jax.tree.map(_to_float64, dict(inputs)), key)


def _to_float64(array: Any) -> jax.Array:
    return jnp.asarray(array, jnp.float64)


def single_layer_net(
    type_or_name: LayerType | Declaration[..., Any] | str | Callable[..., Any],
    param: str | LayerParameter,
    bottoms: Sequence[Any],
    blobs: Sequence[Any] | None,
    phase: Phase,
    random: np.random.Generator,
) -> tuple[Net, dict[str, np.ndarray], Variables]:
    """Build a net with a single layer, and return the net, its inputs by name and its variables.

    The arguments are the same as in `check_gradients`.

    Raises:
        CaffejaxError: if the type is unknown, the text cannot be parsed, or shapes do not fit.
    """
    definition = name_blobs(parse_layer(type_or_name, param), len(bottoms))
    definition.propagate_down[:] = definition.propagate_down or [True] * len(bottoms)
    definition.loss_weight[:] = definition.loss_weight or [1.0] * len(definition.top)  # else nets have no gradients
    named = dict(zip(definition.bottom, bottoms, strict=True))
    arrays = {
        name: np.asarray(bottom)
        for name, bottom in named.items()
        if not (isinstance(bottom, tuple | list) and all(isinstance(n, int) for n in bottom))
    }
    shapes = tuple(arrays[name].shape if name in arrays else tuple(bottom) for name, bottom in named.items())
    net = make_layer_net(definition, shapes, phase)
    return net, arrays, _make_layer_variables(net, blobs, random)


def _make_layer_variables(net: Net, blobs: Sequence[Any] | None, random: np.random.Generator) -> Variables:
    """Return the net's variables from `blobs`, or random variables if it is None.

    Random parameters are normally distributed, and random statistics are uniform in [0.5, 1.5). But they are near the
    initial values that a user's type declares, if not all are zero, because its function may need such numbers.
    """
    initial = net.init(jax.random.key(0), jnp.float64)
    params = jax.tree.map(lambda a: jnp.asarray(random.normal(size=a.shape)), initial.params)
    state = jax.tree.map(lambda a: jnp.asarray(random.uniform(0.5, 1.5, a.shape)), initial.state)
    if not is_builtin(net.graph.layers[-1].type):
        params, state = jax.tree.map(partial(_draw_near, random), initial, Variables(params, state))
    if blobs is not None:
        shapes, expected = [np.shape(b) for b in blobs], [p.spec.shape for p in net.graph.params]
        if shapes != expected:
            raise LayerError(f"the blobs have shapes {shapes}, but the layer needs {expected}")
        for param, blob in zip(net.graph.params, blobs, strict=True):
            tree = params if param.spec.learnable else state
            tree[param.slot.layer][param.slot.name] = jnp.asarray(blob, jnp.float64)
    return Variables(params, state)


def _draw_near(random: np.random.Generator, initial: jax.Array, drawn: jax.Array) -> jax.Array:
    """Return initial values times random factors, because a rule that omits a factor 1 is right at ones.

    Zeros among other numbers become small numbers. If all are zero, return `drawn`.
    """
    nonzero = jnp.where(initial == 0, 0.1 * jnp.abs(initial).max(initial=0), initial)
    return nonzero * random.uniform(0.8, 1.0, initial.shape) if jnp.any(initial) else drawn
