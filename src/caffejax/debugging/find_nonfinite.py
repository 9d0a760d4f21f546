"""Non-finite search: run a failed training step again layer by layer to find where NaN or infinity arose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..graph import Layer
from ..graph.traits import index_blob, out_of_range
from ..net import Net, Variables
from .intermediates import LayerTrace

Arrays = Sequence[jax.Array]


class NonFinite(NamedTuple):
    """A description of a value that is not finite, its layer, and advice.

    Attributes:
        message: the value, and the number of NaN and infinite elements.
        layer: the layer with the value; None if unknown.
        advice: a remedy; "" for the general advice.
    """

    message: str
    layer: Layer | None = None
    advice: str = ""


def find_nonfinite(
    net: Net, before: Variables, batches: Mapping[str, jax.Array], keys: Sequence[jax.Array], after: Variables
) -> NonFinite:
    """Find the first value of a training step that is not finite, in the order of computation.

    Args:
        net: the train net.
        before, after: the variables before and after the step.
        batches: arrays by input name, with the step's batches stacked along a new first axis.
        keys: the PRNG key of each batch's pass.
    """
    if (first := not_finite(before, net)) is not None:
        return first._replace(message=f"{first.message} before this step", advice="Start from other weights")
    state = before.state
    for number, key in enumerate(keys):
        batch = {name: array[number] for name, array in batches.items()}
        trace = LayerTrace(net, before.params, state, batch, key)
        if (first := _search_forward(trace) or _search_backward(trace)) is not None:
            return first
        _, state = net.apply(before.params, state, batch, key=key, blobs=())
    if (first := not_finite(after, net)) is not None:
        return first._replace(message=f"all gradients are finite, but the update overflows: {first.message}")
    return NonFinite(
        "the loss is not finite, but all numbers are finite when the layers run one by one: they are close to overflow"
    )


def not_finite(variables: Variables, net: Net | None = None) -> NonFinite | None:
    """Return the first parameter or running statistic that is not finite, or None if all are finite.

    With `net` the search follows the order of its layers.
    """
    for what, tree in (("parameter", variables.params), ("running statistic", variables.state)):
        for key in [layer.key for layer in net.graph.layers] if net else tree:
            for i, blob in sorted(tree.get(key, {}).items()):
                if not _finite(blob):
                    at = "" if net else f" of layer '{key}'"
                    return NonFinite(f"{what} {i}{at} {_kinds(blob)}", net.graph.layer(key) if net else None)
    return None


def _search_forward(trace: LayerTrace) -> NonFinite | None:
    """Return the first layer with a top that is not finite, or None if all are finite."""
    for layer, bottoms, tops in trace.forward():
        for name, top in zip(layer.tops, tops, strict=True):
            if not _finite(top):
                return _blame(layer, bottoms, name, top)
    return None


def _search_backward(trace: LayerTrace) -> NonFinite | None:
    """Return the first layer, in the order of the backward pass, with a gradient that is not finite, or None."""
    message = "the gradient of {} {}; everything before it in the backward pass is finite"
    for layer, gradients in trace.backward():
        for name, diff in zip(layer.bottoms, gradients.bottoms, strict=True):
            if diff is not None and not _finite(diff):
                return NonFinite(message.format(f"its bottom '{name}'", _kinds(diff)), layer)
        for i, diff in enumerate(gradients.params):
            if diff is not None and not _finite(diff):
                return NonFinite(message.format(f"its parameter {i}", _kinds(diff)), layer)
    return None


def _blame(layer: Layer, bottoms: Arrays, name: str, top: jax.Array) -> NonFinite:
    """Return the report on a top that is not finite although the layer's bottoms are finite, with a likely cause."""
    message = f"its output '{name}' {_kinds(top)}"
    if layer.type.is_fed:
        return NonFinite(message, layer, "Correct the data: it is not finite itself, so no setting helps")
    if wrong := _wrong_label(layer, bottoms):
        return NonFinite(
            f"{message}: {wrong}", layer, "Correct the labels or the number of outputs, or set ignore_label"
        )
    ranges = [f"'{n}' from {jnp.min(b):g} to {jnp.max(b):g}" for n, b in zip(layer.bottoms, bottoms, strict=True)]
    return NonFinite(f"{message}; ranges of its bottoms: {', '.join(ranges)}" if ranges else message, layer)


def _wrong_label(layer: Layer, bottoms: Arrays) -> str:
    """Describe a label outside the classes of a loss; return "" if all labels are valid."""
    indices = layer.type.gradient.indices
    classes = None if indices.classes is None or indices.gathers else indices.classes(layer.context, *bottoms)
    if classes is None:
        return ""
    numbers = np.trunc(np.asarray(bottoms[indices.bottoms[0]]))
    wrong = out_of_range(numbers, classes, indices.ignore_label(layer.context) if indices.ignore_label else None)
    if not wrong.any():
        return ""
    first = [int(i) for i in np.argwhere(wrong)[0]]
    more = f" ({wrong.sum()} labels like it)" if wrong.sum() > 1 else ""
    label, name = numbers[tuple(first)], index_blob(layer)
    return f"label {label:g} at {first} of '{name}' is not one of the classes 0 to {classes - 1}{more}"


def _finite(x: jax.Array) -> bool:
    return bool(jnp.isfinite(x).all())


def _kinds(x: jax.Array) -> str:
    """Return text such as `has 3 NaN and 1 infinite of 12 values`."""
    counts = {"NaN": int(jnp.isnan(x).sum()), "infinite": int(jnp.isinf(x).sum())}
    return f"has {' and '.join(f'{n} {kind}' for kind, n in counts.items() if n)} of {x.size} values"
