"""Finds where a training step left the finite numbers: runs it again, layer by layer, forward and then backward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..execution import Given, is_fed, run_layers
from ..graph import Layer
from ..net import Net, Params
from .state import TrainState, pass_key

CLASS_LOSSES = ("SoftmaxWithLoss", "MultinomialLogisticLoss", "InfogainLoss", "HingeLoss")

Arrays = Sequence[jax.Array]


class Where(NamedTuple):
    """What was not finite, in which layer, and what to do; the usual advice unless given."""

    message: str
    layer: Layer | None = None
    advice: str = ""


def find(net: Net, before: TrainState, batches: Mapping[str, jax.Array], after: TrainState, passes: int) -> Where:
    """Where the step from `before` to `after` left the finite numbers.

    Args:
        net: the train net.
        before, after: the state that the step was given, and the one it made.
        batches: its batches, stacked along a first axis, `passes` long.
    """
    if (found := not_finite(before, net)) is not None:
        return found._replace(message=f"{found.message} before this step", advice="Start from other weights")
    state = before.state
    for number in range(passes):
        batch = {name: array[number] for name, array in batches.items()}
        replay = _Replay(net, before.params, state, batch, pass_key(before, number))
        if (found := replay.forward() or replay.backward()) is not None:
            return found
        _, state = net.apply(before.params, state, batch, key=pass_key(before, number), blobs=())
    if (found := not_finite(after, net)) is not None:
        return found._replace(message=f"all gradients are finite, but the update overflows: {found.message}")
    return Where("the loss is not finite, though it is when the layers run one by one: numbers near overflow")


def not_finite(state: TrainState, net: Net | None = None) -> Where | None:
    """The first parameter or running statistic that is not finite."""
    for what, tree in (("parameter", state.params), ("running statistic", state.state)):
        for key in [layer.key for layer in net.graph.layers] if net else tree:
            for i, blob in enumerate(tree.get(key, ())):
                if blob is not None and not _finite(blob):
                    at = "" if net else f" of layer '{key}'"
                    return Where(f"{what} {i}{at} {_kinds(blob)}", net.graph.layer(key) if net else None)
    return None


class _Replay:
    """One pass through the net, in which each layer's blobs and tops can be told from those of all others."""

    def __init__(self, net: Net, params: Params, state: Params, batch: Mapping[str, jax.Array], key: jax.Array) -> None:
        self._net, self._state, self._batch, self._key = net, state, batch, key
        self._params = {
            layer.key: {p.owner.layer: params[p.owner.layer] for p in layer.params if p.blob.learnable}
            for layer in net.graph.layers
        }
        self._bottoms: dict[str, Arrays] = {}
        self._tops: dict[str, Arrays] = {}

    def forward(self) -> Where | None:
        """The first layer with a top that is not finite."""
        values: dict[str, jax.Array] = {}
        for layer in self._net.graph.layers:
            bottoms = self._bottoms[layer.key] = [values[name] for name in layer.bottoms]
            result = self._run(layer, self._params[layer.key], values)
            tops = self._tops[layer.key] = [result.values[name] for name in layer.tops]
            for name, top in zip(layer.tops, tops, strict=True):
                if not _finite(top):
                    return _blame(layer, bottoms, name, top)
            values = result.values
        return None

    def backward(self) -> Where | None:
        """The first layer, in the order of the backward pass, with a gradient that is not finite."""
        zeros = jax.tree.map(jnp.zeros_like, self._tops)
        blob_grads, top_grads = jax.grad(self._loss, argnums=(0, 1))(self._params, zeros)
        made: dict[str, jax.Array] = {}  # the diffs of the blobs' values of the moment
        read: dict[str, list[jax.Array]] = {}
        for layer in self._net.graph.layers:
            read[layer.key] = [made[name] for name in layer.bottoms]
            made |= zip(layer.tops, top_grads[layer.key], strict=True)
        for layer in reversed(self._net.graph.layers):
            ends = "the gradient of {} {}; all before it in the backward pass are finite"
            for name, diff in zip(layer.bottoms, read[layer.key], strict=True):
                if not _finite(diff):
                    return Where(ends.format(f"its bottom '{name}'", _kinds(diff)), layer)
            for p in layer.params:
                grads = blob_grads[layer.key].get(p.owner.layer)
                if grads is not None and (grad := grads[p.owner.index]) is not None and not _finite(grad):
                    return Where(ends.format(f"its parameter {p.slot.index}", _kinds(grad)), layer)
        return None

    def _loss(self, blobs: Any, taps: Any) -> jax.Array:
        values: dict[str, jax.Array] = {}
        total = jnp.zeros(())
        for layer in self._net.graph.layers:
            result = self._run(layer, blobs[layer.key], values)
            tapped = [result.values[n] + tap for n, tap in zip(layer.tops, taps[layer.key], strict=True)]
            values = {**result.values, **dict(zip(layer.tops, tapped, strict=True))}
            total += result.loss
        return total

    def _run(self, layer: Layer, blobs: Any, values: Mapping[str, jax.Array]) -> Any:
        given = Given(blobs, self._state, self._batch, self._key, {})
        return run_layers((layer,), given, values, self._net.backward, self._net.graph.file)


def _blame(layer: Layer, bottoms: Arrays, name: str, top: jax.Array) -> Where:
    """Why the layer's top may not be finite, with finite bottoms."""
    message = f"its output '{name}' {_kinds(top)}"
    if is_fed(layer):
        return Where(message, layer, "No setting mends that: the data itself is not finite")
    if layer.type.name in CLASS_LOSSES and (wrong := _wrong_label(layer, *bottoms[:2])):
        return Where(f"{message}: {wrong}", layer, "Correct the labels or the number of outputs, or set ignore_label")
    ranges = [f"'{n}' from {jnp.min(b):g} to {jnp.max(b):g}" for n, b in zip(layer.bottoms, bottoms, strict=True)]
    return Where(f"{message}; its bottoms go {', '.join(ranges)}" if ranges else message, layer)


def _wrong_label(layer: Layer, scores: jax.Array, labels: jax.Array) -> str:
    axis = getattr(layer.context.param, "axis", None)
    classes = math.prod(scores.shape[1:]) if axis is None else scores.shape[axis]
    numbers = np.asarray(labels).astype(np.int64)
    wrong = (numbers < 0) | (numbers >= classes)
    if layer.context.layer.loss_param.HasField("ignore_label"):
        wrong &= numbers != layer.context.layer.loss_param.ignore_label
    if not wrong.any():
        return ""
    first = [int(i) for i in np.argwhere(wrong)[0]]
    more = f" ({wrong.sum()} labels like it)" if wrong.sum() > 1 else ""
    label, last = numbers[tuple(first)], classes - 1
    return f"label {label} at {first} of '{layer.bottoms[1]}' is not one of the classes 0 to {last}{more}"


def _finite(x: jax.Array) -> bool:
    return bool(jnp.isfinite(x).all())


def _kinds(x: jax.Array) -> str:
    """`has 3 NaN and 1 infinite of 12 values`."""
    counts = {"NaN": int(jnp.isnan(x).sum()), "infinite": int(jnp.isinf(x).sum())}
    return f"has {' and '.join(f'{n} {kind}' for kind, n in counts.items() if n)} of {x.size} values"
