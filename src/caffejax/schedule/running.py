"""Running a graph's layers: in one go where all can be traced, else in compiled segments round the host layers.

Host layers may give tops of other shapes each time, and what follows them is compiled for each shape it meets. Of
Filter the number of rows depends on the data, so layers that treat every row by itself run on rows padded to a power
of two: at most log2(batch) compilations. Each compilation that new shapes need is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, takewhile
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ..errors import located
from ..graph import Graph, Layer, Param
from ..kernels import Kernels, compiling
from ..layers.calling import Backward, finished
from ..layers.checking import check_dtypes
from ..layers.precision import products_of, rounded
from ..layers.registry import Follower
from ..layers.shared import Joint, call_joint, call_shared

log = logging.getLogger("caffejax.net")

Values = dict[str, jax.Array]
Kind = Literal["traced", "rows", "host"]


class Given(NamedTuple):
    """What a forward pass is given: variables, fed blobs, key, and zeros to add to blobs (see `Net.loss`)."""

    params: Mapping[str, Any]
    state: Mapping[str, Any]
    inputs: Mapping[str, jax.Array]
    key: jax.Array | None
    probes: Mapping[str, jax.Array]


class Result(NamedTuple):
    """Blobs by name (with their last value), the state that was given with its changes, the weighted losses."""

    values: Values
    state: dict[str, Any]
    loss: jax.Array


def run_layers(
    layers: Sequence[Layer], given: Given, before: Mapping[str, jax.Array], mode: Backward, file: str | None
) -> Result:
    """Runs layers in order on the blobs in `before`; traceable unless there is a host layer among them."""
    values: Values = dict(before)
    state = dict(given.state)
    total = jnp.zeros(())
    done = 0  # layers, of which some are computed with the one before
    for i, layer in enumerate(layers):
        if i < done:
            continue
        done = i + 1
        where = located(file=file, layer=layer.name, layer_type=layer.type.name)
        with jax.named_scope(layer.name), where, products_of(layer.context):
            if layer.is_fed:
                tops = finished(layer.context, [given.inputs[top] for top in layer.tops])
            elif joint := _call_joint(layer, layers[done:], given, state, values, mode):
                done += joint.taken
                tops = joint.tops
                _write(layer, joint.state, state)
            else:
                tops, new = _call(layer, given, state, values, mode)
                _write(layer, new, state)
        tops = tuple(
            # an in-place blob's diff is that of its first value
            top + given.probes[name].astype(top.dtype) if name in given.probes and name not in values else top
            for name, top in zip(layer.tops, tops, strict=True)
        )
        values.update(zip(layer.tops, tops, strict=True))
        for top, weight in zip(tops, layer.loss_weights, strict=True):
            if weight:
                total += weight * jnp.sum(top, dtype=jnp.promote_types(top.dtype, jnp.float32))
    return Result(values, state, total)


def _call(layer: Layer, given: Given, state: Mapping[str, Any], values: Values, mode: Backward) -> tuple[Any, Any]:
    arrays, bottoms = _given_to(layer, given, state, values)
    return call_shared(layer.context, given.key, layer.bottom_need_backward, arrays, bottoms, mode)


def _call_joint(
    layer: Layer, later: Sequence[Layer], given: Given, state: Mapping[str, Any], values: Values, mode: Backward
) -> Joint | None:
    """As `_call`, with some of the layers that follow in place; None where they have to run alone."""
    if layer.type.joint is None or mode != "autodiff" or not layer.context.fast:
        return None
    followers = [
        Follower(other.context, _arrays(other, given, state)) for other in takewhile(partial(_follows, layer), later)
    ]
    if not followers or any(layer.loss_weights) or not given.probes.keys().isdisjoint(layer.tops):
        return None
    arrays, bottoms = _given_to(layer, given, state, values)
    return call_joint(layer.context, arrays, bottoms, followers)


def _follows(layer: Layer, other: Layer) -> bool:
    """Whether `other` works in place on a layer's only top, and nothing stops a gradient between them."""
    in_place = len(layer.bottoms) == 1 and layer.tops == other.bottoms == other.tops
    return in_place and not any(other.loss_weights) and not any(other.gradient_stops)


def _given_to(
    layer: Layer, given: Given, state: Mapping[str, Any], values: Values
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """A layer's blobs and bottoms, in the floats that it computes in."""
    bottoms = _bottoms(layer, values)
    check_dtypes(layer.context, layer.index_bottoms, bottoms)
    return rounded(layer.context, _arrays(layer, given, state), bottoms)


def _bottoms(layer: Layer, values: Values) -> list[jax.Array]:
    return [
        jax.lax.stop_gradient(values[name]) if stops else values[name]
        for name, stops in zip(layer.bottoms, layer.gradient_stops, strict=True)
    ]


def _arrays(layer: Layer, given: Given, state: Mapping[str, Any]) -> tuple[jax.Array, ...]:
    return tuple(_array(p, given.params if p.blob.learnable else state) for p in (*layer.params, *layer.carried))


def _write(layer: Layer, new: Sequence[jax.Array], state: dict[str, Any]) -> None:
    """Puts a layer's new statistics where the layers after it, which may share them, find them."""
    statistics = [p for p in (*layer.params, *layer.carried) if not p.blob.learnable]
    for param, value in zip(statistics, new, strict=False):
        blobs = list(state[param.owner.layer])
        blobs[param.owner.index] = value
        state[param.owner.layer] = tuple(blobs)


def _array(param: Param, tree: Mapping[str, Any]) -> jax.Array:
    array = tree[param.owner.layer][param.owner.index]
    if not param.need_backward:
        array = jax.lax.stop_gradient(array)
    return array.reshape(param.blob.shape)  # a blob shared PERMISSIVE-ly may have another shape here


class Segments:
    """A graph with host layers, cut into compiled segments round them.

    Args:
        graph: the graph.
        mode: how gradients are made.
        kernels: the operations' formulation.
    """

    def __init__(self, graph: Graph, mode: Backward, kernels: Kernels) -> None:
        kinds = _kinds(graph.layers)
        self._graph, self._mode = graph, mode
        self.segments = [
            _Segment(kind, tuple(layers), mode, graph.file, kernels)
            for kind, layers in groupby(graph.layers, key=lambda layer: kinds[layer.key])
        ]

    def __call__(self, given: Given) -> Result:
        """Runs all segments; for concrete arrays only, also under jax.grad."""
        values: Values = {}
        state = dict(given.state)
        total = jnp.zeros(())
        for segment in self.segments:
            result = segment(given._replace(state=state), values)
            values |= result.values
            state |= result.state
            total += result.loss
        return Result(values, state, total)


@dataclass
class _Segment:
    kind: Kind
    layers: tuple[Layer, ...]
    mode: Backward
    file: str | None
    kernels: Kernels
    sizes: set[Any] = field(default_factory=set)  # numbers of rows, or shapes of all that is read

    def __post_init__(self) -> None:
        made = {top for layer in self.layers for top in layer.tops}
        reads = {bottom for layer in self.layers for bottom in layer.bottoms}
        self.reads = sorted(reads if self.kind == "host" else reads | made)
        self.made = made
        self.keys = {p.owner.layer for layer in self.layers for p in (*layer.params, *layer.carried)}
        self._run = compiling.jit(self._layers, self.kernels) if self.kind != "host" else self._layers

    def __call__(self, given: Given, values: Values) -> Result:
        own = given._replace(
            params={k: v for k, v in given.params.items() if k in self.keys},
            state={k: v for k, v in given.state.items() if k in self.keys},
            inputs={k: v for k, v in given.inputs.items() if k in self.made},
        )
        before = {name: values[name] for name in self.reads if name in values}
        rows = {len(v) for v in before.values()} if self.kind == "rows" and not given.probes else set()
        if len(rows) != 1:
            self._log_shapes(before)
            return self._run(own, before)
        (n,) = rows
        size = 1 << (n - 1).bit_length() if n else 1
        if size not in self.sizes:
            self.sizes.add(size)
            log.info("Compiling layers %s for up to %d rows (%d sizes so far)", self._names, size, len(self.sizes))
        padded = {name: jnp.pad(v, [(0, size - n)] + [(0, 0)] * (v.ndim - 1)) for name, v in before.items()}
        result = self._run(own, padded)
        return result._replace(values={name: v[:n] for name, v in result.values.items()})

    @property
    def _names(self) -> str:
        return f"{self.layers[0].name} .. {self.layers[-1].name}"

    def _log_shapes(self, before: Values) -> None:
        """Says so when other shapes than the first have to be compiled."""
        shapes = tuple(v.shape for v in before.values())
        if self.kind != "traced" or shapes in self.sizes:
            return
        self.sizes.add(shapes)
        if len(self.sizes) > 1:
            text = ", ".join(f"{name} {shape}" for name, shape in zip(before, shapes, strict=True))
            log.info("Compiling layers %s for %s (%d shapes so far)", self._names, text, len(self.sizes))

    def _layers(self, given: Given, before: Values) -> Result:
        return run_layers(self.layers, given, before, self.mode, self.file)


def _kinds(layers: Sequence[Layer]) -> dict[str, Kind]:
    """Which layers run on the host, which on padded rows, which are traced as they are."""
    ragged: set[str] = set()
    kinds: dict[str, Kind] = {}
    for layer in layers:
        rows = bool(layer.bottoms) and ragged.issuperset(layer.bottoms) and _row_wise(layer)
        kinds[layer.key] = "host" if layer.type.host else "rows" if rows else "traced"
        if kinds[layer.key] == "traced" or (layer.type.host and not layer.type.ragged):
            ragged.difference_update(layer.tops)
        else:
            ragged.update(layer.tops)
    return kinds


def _row_wise(layer: Layer) -> bool:
    return layer.type.row_wise and getattr(layer.context.param, "axis", 1) > 0 and not any(layer.loss_weights)
