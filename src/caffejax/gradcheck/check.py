"""`check_gradients`: the layers of a net, or one layer by itself, checked where a forward pass takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checkpoints.loading import load_weights
from ..data.synthetic_inputs import complete_inputs
from ..errors import GraphError, LayerError, Problem, did_you_mean
from ..execution import Given, Part, Result, Values, one_by_one, run, schedule_of
from ..graph import Graph, Layer
from ..layers import LayerType
from ..layers.calling import Arrays
from ..layers.context import Phase
from ..net import Net, Variables
from ..schema.caffe_pb2 import LayerParameter
from .alone import lone_layer
from .case import Argument, Case, compute_tops, draw_diffs
from .report import Report, Row
from .verdict import compare, derive


def check_gradients(
    net_or_layer: Net | LayerType | str | Callable[..., Any],
    param: str | LayerParameter = "",
    *,
    bottoms: Sequence[Any] = (),
    blobs: Sequence[Any] | None = None,
    layers: Sequence[str] | None = None,
    weights: Variables | str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    phase: Phase = "TRAIN",
    samples: int | None = None,
    seed: int = 0,
) -> Report:
    """Compare autodiff, the hand-written Backward and central finite differences, in float64.

    Every layer is checked by itself, at the bottoms that a forward pass gives it, for random diffs of its tops;
    with respect to each bottom (but labels and indices) and each learnable param. Rule and autodiff must agree
    to 1e-6, both with finite differences to 1e-6. Elements on a kink are compared between rule and autodiff
    only. Layers on the host have no autodiff: there the rule is compared with finite differences. Types that prefer
    their rule have a gradient that is not the derivative: there autodiff must agree with finite differences, the
    net's gradient with the rule, and the rule must point the derivative's way.

        check_gradients(Net("train_val.prototxt", "TRAIN"), layers=["conv1", "norm1"])
        check_gradients("InnerProduct", "inner_product_param { num_output: 3 }", bottoms=[(2, 5)])
        check_gradients(MyLossLayer, bottoms=[(4, 3), (4, 3)])

    Args:
        net_or_layer: a net; or a registered layer type or its name; or a Python layer, that is a class or function
            as a Python layer names it, at the top level of a module. Those with Caffe's interface compute in float32,
            so theirs is compared to 1e-3.
        param: the lone layer's LayerParameter; name, bottoms and tops may be left out.
        bottoms: the lone layer's bottoms: each a shape, to be filled at random, or an array.
        blobs: the lone layer's blobs; random unless given.
        layers: names of the net's layers to check; all but the Splits that the net inserted, unless given.
        weights: the net's variables or a .caffemodel; from the fillers unless given.
        inputs: arrays by name for blobs that the net is fed. The rest comes from the data layers' sources or at
            random: standard normal, labels valid class indices.
        phase: the lone layer's phase; a net has its own.
        samples: how many elements of each array finite differences are taken of; unless given 64, fewer for
            large arrays.
        seed: for everything random. Layers that are random themselves use one key throughout.

    Raises:
        CaffejaxError: for layers that do not exist, shapes that do not fit, files that cannot be read.
    """
    if samples is not None and samples < 1:
        raise GraphError(f"samples must be at least 1, not {samples}")
    random = np.random.default_rng(seed)
    with jax.enable_x64(True):
        if isinstance(net_or_layer, Net):
            net, given = net_or_layer, dict(inputs or {})
            variables = _variables(net, weights, seed)
        else:
            net, given, variables = lone_layer(net_or_layer, param, bottoms, blobs, phase, random)
            layers = [net.graph.layers[-1].key]
        rows: list[Row] = []
        for layer, case in cases(
            net, layers, variables, complete_inputs(net.graph, given, random), random, jax.random.key(seed)
        ):
            with layer.located():
                rows += compare(layer.key, case, derive(case, samples, random))
    return Report(tuple(rows))


def cases(
    net: Net,
    layers: Sequence[str] | None,
    variables: Variables,
    inputs: Mapping[str, np.ndarray],
    random: np.random.Generator,
    key: jax.Array,
) -> list[tuple[Layer, Case]]:
    """Return the layers (all, if None) as they are in one forward pass; leave out those without arguments."""
    chosen = [layer for layer in _chosen(net.graph, layers) if _arguments(layer)]
    points = _points(net, chosen, variables, inputs, key)
    found = []
    for layer in chosen:
        blobs, bottoms, tops = points[layer.key]
        context = replace(layer.context, base_key=layer.base_key(key), propagate_down=layer.bottom_need_backward)
        diffs = draw_diffs(tops, random)
        found.append((layer, Case(context, blobs, bottoms, tops, diffs, _arguments(layer))))
    return found


def _variables(net: Net, weights: Variables | str | os.PathLike[str] | None, seed: int) -> Variables:
    if isinstance(weights, tuple):
        return Variables(*weights)
    variables = net.init(jax.random.key(seed), jnp.float64)
    return variables if weights is None else load_weights(weights, net.graph, variables)


def _chosen(graph: Graph, names: Sequence[str] | None) -> list[Layer]:
    if names is None:
        return [layer for layer in graph.layers if not layer.inserted_split]
    known = {layer.key for layer in graph.layers}
    if unknown := [name for name in names if name not in known]:
        raise GraphError(
            Problem(f"the net has no layer '{name}' in phase {graph.phase}{did_you_mean(name, known)}", file=graph.file)
            for name in unknown
        )
    return [layer for layer in graph.layers if layer.key in names]


def _arguments(layer: Layer) -> tuple[Argument, ...]:
    if layer.type.is_fed:
        return ()
    bottoms = [
        Argument("bottom", i, f"bottom {i} ({name})")
        for i, name in enumerate(layer.bottoms)
        if i not in layer.index_bottoms and _gradient_exists(layer, i)
    ]
    blobs = [Argument("blob", i, f"blob {i}") for i, p in enumerate(layer.params) if p.spec.learnable]
    return (*bottoms, *blobs)


def _gradient_exists(layer: Layer, bottom: int) -> bool:
    """Return whether there is a gradient to check: a user's backward makes only those that the net asks for."""
    return layer.type.instance is None or not layer.type.on_host or layer.bottom_need_backward[bottom]


def _points(
    net: Net, layers: Sequence[Layer], variables: Variables, inputs: Mapping[str, np.ndarray], key: jax.Array
) -> dict[str, tuple[Arrays, Arrays, Arrays]]:
    """Compute blobs, bottoms and tops of each of the layers in one forward pass."""
    wanted = {layer.key for layer in layers}
    schedule = one_by_one(schedule_of(net.graph))

    def walk(variables: Variables, inputs: Mapping[str, jax.Array], key: jax.Array) -> Any:
        points = {}

        def run_plain(part: Part, given: Given, before: Values, keep: frozenset[str] | None) -> Result:
            (layer,) = part.layers
            if layer.type.is_fed:
                return Result({top: inputs[top] for top in layer.tops}, {}, jnp.zeros(()))
            with layer.located():
                blobs = tuple(_blob(variables, p) for p in layer.owned)
                bottoms = tuple(before[name] for name in layer.bottoms)
                tops = compute_tops(layer.context.with_key(layer.base_key(key)), blobs, bottoms)
            if layer.key in wanted:
                points[layer.key] = (blobs, bottoms, tops)
            return Result(dict(zip(layer.tops, map(_to_float64, tops), strict=True)), {}, jnp.zeros(()))

        run(schedule, Given(*variables, inputs, key, {}), runner=run_plain)
        return points

    compiled = walk if net.has_host_layers else jax.jit(walk)
    return compiled(jax.tree.map(_to_float64, variables), jax.tree.map(_to_float64, dict(inputs)), key)


def _blob(variables: Variables, param: Any) -> jax.Array:
    tree = variables.params if param.spec.learnable else variables.state
    array = tree[param.owner.layer][param.owner.index]
    if array is None:
        raise LayerError(f"the variables hold no blob {param.slot.index}")
    return array.reshape(param.spec.shape)


def _to_float64(array: Any) -> jax.Array:
    return jnp.asarray(array, jnp.float64)
