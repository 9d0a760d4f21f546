"""Collect a dump: run a net once, and keep every blob, diff and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..._version import __version__
from ...data.synthetic_inputs import complete_inputs
from ...errors import GraphError, Problem
from ...graph import Graph, Layer, Slot, is_random
from ...net import Net, Variables
from ..apart import Apart, ApartTaps
from ..taps import Diffs, Taps, Tops
from .dump import Dump, DumpedLayer


class Repeatable(np.random.RandomState):
    """NumPy's old generator, whose numbers every version of NumPy makes, those that old Caffes run with included."""

    def integers(self, high: int, size: tuple[int, ...]) -> Any:
        """Draw whole numbers below `high`."""
        return self.randint(high, size=size)


def collect(
    net: Net,
    variables: Variables,
    inputs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    seed: int = 0,
    apart: Apart | None = None,
) -> Dump:
    """Run a net once; return every blob, and with `backward` every diff and gradient.

    Args:
        net: the net.
        variables: its params and state.
        inputs: what to feed it, by blob. What is not given comes from the net's data layers, the first batch of each;
            for Input layers `RandomState(seed)` of NumPy draws it, in their order, from the normal distribution, or
            whole numbers where it is read as labels, boxes where it is read as MultiBoxLoss's ground truth.
        backward: whether to run backward as well.
        seed: for these inputs, and for layers that are random.
        apart: what each layer reads, in place of what the layers before it made.

    Raises:
        GraphError: for inputs that do not fit, and with `backward` if there is no loss or no gradient.
        DataError: if the net's data cannot be read.
    """
    if backward:
        _check_loss(net.graph)
    random: Any = Repeatable(seed)
    with np.errstate(over="ignore"):  # of float64 numbers that are infinite in float32
        fed = {name: np.float32(x) for name, x in complete_inputs(net.graph, inputs or {}, random).items()}
    key = jax.random.key(seed)

    shapes: dict[str, list[jax.ShapeDtypeStruct]] = {}  # of all bottoms, whose numbers would be as much memory again

    def numbers(params: Any, state: Any, batch: Any, key: Any, apart: Apart | None) -> tuple[Tops, Tops, Diffs | None]:
        given = net, params, state, batch, key
        taps = Taps(*given) if apart is None else ApartTaps(*given, apart)
        on_host: Tops = {}
        tops: Tops = {}
        for layer, read, made in taps.layers():
            shapes[layer.key], tops[layer.key] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in read], made
            if layer.type.on_host:
                on_host[layer.key] = read
        return on_host, tops, taps.diffs(tops) if backward else None

    on_host, tops, diffs = jax.device_get(net.jit(numbers)(*variables, fed, key, apart))
    arrays: dict[str, Any] = {f"input/{name}": x for name, x in fed.items()}
    arrays |= _params(net.graph, variables) | _blobs(net, tops, apart)
    arrays["loss"] = np.float32(_loss(net.graph, tops))
    if diffs is not None:
        arrays |= _diffs(net.graph, tops, diffs)
    bottoms = shapes | on_host
    layers = tuple(
        DumpedLayer(layer.key, layer.type.name, layer.bottoms, layer.tops, is_random(layer, bottoms[layer.key]))
        for layer in net.graph.layers
    )
    # of a net of bfloat16, which .npz files do not know, as float32
    found = {
        name: np.asarray(x, None if np.asarray(x).dtype.kind in "biuf" else np.float32) for name, x in arrays.items()
    }
    return Dump(f"caffejax {__version__}", net.graph.name, net.graph.phase, layers, found, apart=apart is not None)


def _check_loss(graph: Graph) -> None:
    if not any(graph.losses.values()):
        message = f"has no loss in phase {graph.phase}, so that there is nothing to run backward from"
        raise GraphError(Problem(f"{message}; leave --backward out, or collect from the train net", graph.file))
    graph.check_backward()


def _params(graph: Graph, variables: Variables) -> dict[str, Any]:
    """Return every layer's params, shared ones with every layer that uses them."""
    return {
        f"param/{layer.key}/{i}": np.float32(
            (variables.params if p.spec.learnable else variables.state)[p.owner.layer][p.owner.index]
        ).reshape(p.spec.shape)
        for layer in graph.layers
        for i, p in enumerate(layer.params)
    }


def _blobs(net: Net, tops: Tops, apart: Apart | None) -> dict[str, Any]:
    """Return every blob, and what layers made that others wrote over."""
    made: dict[str, tuple[str, Any]] = {}  # by blob: the layer, and what it made
    over: list[tuple[str, str, Any]] = []
    for layer in net.graph.layers:
        for name, value in zip(layer.tops, tops[layer.key], strict=True):
            if name in made:
                over.append((name, *made[name]))
            made[name] = layer.key, value
    final = {name: value for name, (_, value) in made.items()}
    trimmed = net.trimmed(final)
    if apart is not None:  # as many rows as each layer was given
        read = {name: x for blobs in apart.bottoms.values() for name, x in blobs.items()}
        trimmed = {name: net.trimmed({**read, name: value})[name] for name, value in final.items()}
    found = {f"blob/{name}": value for name, value in trimmed.items()}
    return found | {f"top/{key}/{name}": net.trimmed({**final, name: value})[name] for name, key, value in over}


def _loss(graph: Graph, tops: Tops) -> float:
    weighted = ((w, top) for x in graph.layers for w, top in zip(x.loss_weights, tops[x.key], strict=True))
    return sum(float(weight * np.sum(top, dtype=np.float64)) for weight, top in weighted if weight)


def _diffs(graph: Graph, tops: Tops, diffs: Diffs) -> dict[str, Any]:
    """Return what Caffe's backward pass computes: not the diffs that no layer needs, which autodiff has as well."""
    found: dict[str, Any] = {}
    made: dict[str, Layer] = {}
    grads: dict[Slot, Any] = {}
    for layer in graph.layers:
        read = zip(layer.bottoms, diffs.bottoms[layer.key], layer.bottom_need_backward, strict=True)
        for name, diff, need in read:
            if need and layer.need_backward and diff is not None:
                found[_diff_name(made[name], name)] = diff
        for name, weight, top in zip(layer.tops, layer.loss_weights, tops[layer.key], strict=True):
            made[name] = layer
            if weight:
                found[_diff_name(layer, name)] = np.full_like(top, weight)
        for param, share in zip(layer.params, diffs.params[layer.key], strict=True):
            if share is not None and layer.need_backward:
                grads[param.owner] = grads.get(param.owner, 0) + share
    return found | {
        f"grad/{layer.key}/{i}": grads[p.owner].reshape(p.spec.shape)
        for layer in graph.layers
        for i, p in enumerate(layer.params)
        if p.owner in grads
    }


def _diff_name(maker: Layer, blob: str) -> str:
    return f"top_diff/{maker.key}/{blob}" if blob in maker.bottoms else f"diff/{blob}"
