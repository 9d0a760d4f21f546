"""Search for NaN and infinity: run a failed training step again, layer by layer, to find where they first occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...base.variables import Variables
from ..graph import Layer
from ..graph.index_ranges import find_index_blob, find_out_of_range
from ..program.net import Net
from .intermediates import LayerTrace

Arrays = Sequence[jax.Array]

_LARGE = 1e6  # numbers beyond it are a sign that training diverges


class NonFinite(NamedTuple):
    """A description of an array with elements that are not finite, its layer, and advice.

    Attributes:
        message: the name of the array, and how many of its elements are NaN and how many are infinite.
        layer: the layer of the array, or None if it is unknown.
        advice: how to correct this error, or "" if only the general advice applies.
    """

    message: str
    layer: Layer | None = None
    advice: str = ""


def find_nonfinite(
    net: Net,
    variables_before: Variables,
    batches: Mapping[str, jax.Array],
    keys: Sequence[jax.Array],
    variables_after: Variables,
) -> NonFinite:
    """Find the first array of a training step that is not finite, in the order of computation.

    Args:
        net: the train net.
        variables_before, variables_after: the variables before and after the step.
        batches: arrays by input name, with the step's batches stacked along a new first axis.
        keys: the random key of the pass of each batch.
    """
    if (nonfinite := find_nonfinite_variable(variables_before, net)) is not None:
        return nonfinite._replace(message=f"{nonfinite.message} before this step", advice="Start from other weights")
    state = variables_before.state
    for batch_index, key in enumerate(keys):
        batch = {name: array[batch_index] for name, array in batches.items()}
        nonfinite = find_nonfinite_in_pass(net, Variables(variables_before.params, state), batch, key)
        if nonfinite is not None:
            return nonfinite
        _, state = net.apply(variables_before.params, state, batch, key=key, blobs=())
    if (nonfinite := find_nonfinite_variable(variables_after, net)) is not None:
        message = f"all gradients are finite, but the update overflows: {nonfinite.message}"
        return nonfinite._replace(message=message, advice="Lower the learning rate, or set clip_gradients")
    return NonFinite(
        "the loss is not finite, but all numbers are finite when the layers run one by one: they are close to overflow"
    )


def find_nonfinite_variable(variables: Variables, net: Net | None = None) -> NonFinite | None:
    """Return the first parameter or running statistic that is not finite, or None if all are finite.

    If `net` is set, the search follows the order of its layers.
    """
    for kind, tree in (("parameter", variables.params), ("running statistic", variables.state)):
        for key in [layer.key for layer in net.graph.layers] if net else tree:
            for i, blob in sorted(tree.get(key, {}).items()):
                if not _is_finite(blob):
                    owner_text = "" if net else f" of layer '{key}'"
                    return NonFinite(
                        f"{kind} {i}{owner_text} {_describe_nonfinite(blob)}", net.graph.layer(key) if net else None
                    )
    return None


def find_nonfinite_in_pass(
    net: Net, variables: Variables, batch: Mapping[str, jax.Array], key: jax.Array
) -> NonFinite | None:
    """Return the first array of a forward and backward pass that is not finite, or None if all are finite."""
    trace = LayerTrace(net, *variables, batch, key)
    for layer, bottoms, tops in trace.forward():
        for name, top in zip(layer.tops, tops, strict=True):
            if not _is_finite(top):
                return _describe_top(layer, bottoms, name, top)
    for layer, gradients in trace.backward():
        sources = [f"bottom '{name}'" for name in layer.bottoms] + [f"parameter {p.slot.name}" for p in layer.params]
        for source, gradient in zip(sources, gradients.bottoms + gradients.params, strict=True):
            if gradient is not None and not _is_finite(gradient):
                message = f"the gradient of its {source} {_describe_nonfinite(gradient)}"
                return NonFinite(f"{message}; everything before it in the backward pass is finite", layer)
    return None


def _describe_top(layer: Layer, bottoms: Arrays, name: str, top: jax.Array) -> NonFinite:
    message = f"its output '{name}' {_describe_nonfinite(top)}"
    if layer.type.is_input:
        return NonFinite(message, layer, "Correct the data: it is not finite itself, so no setting helps")
    if invalid_label := _describe_invalid_label(layer, bottoms):
        return NonFinite(
            f"{message}: {invalid_label}", layer, "Correct the labels or the number of outputs, or set ignore_label"
        )
    ranges = [f"'{n}' from {jnp.min(b):g} to {jnp.max(b):g}" for n, b in zip(layer.bottoms, bottoms, strict=True)]
    are_ordinary = not layer.params and all(jnp.abs(b).max(initial=0) < _LARGE for b in bottoms)
    advice = "The layer cannot take some of these numbers, such as the logarithm of a number below 0"
    message = f"{message}; ranges of its bottoms: {', '.join(ranges)}" if ranges else message
    return NonFinite(message, layer, advice if are_ordinary else "")


def _describe_invalid_label(layer: Layer, bottoms: Arrays) -> str:
    indices = layer.type.gradient.indices
    num_classes = indices.num_classes and layer.context.call(indices.num_classes, *bottoms)
    if num_classes is None or indices.gathers:
        return ""
    labels = np.trunc(np.asarray(bottoms[indices.bottoms[0]]))
    invalid = find_out_of_range(labels, num_classes, layer.context.evaluate(indices.ignore_label))
    if not invalid.any():
        return ""
    position = [int(i) for i in np.argwhere(invalid)[0]]
    count_note = f" ({invalid.sum()} labels are invalid)" if invalid.sum() > 1 else ""
    label, name = labels[tuple(position)], find_index_blob(layer)
    return f"label {label:g} at {position} of '{name}' is not one of the classes 0 to {num_classes - 1}{count_note}"


def _is_finite(x: jax.Array) -> bool:
    return bool(jnp.isfinite(x).all())


def _describe_nonfinite(x: jax.Array) -> str:
    """Return a text such as "has 3 NaN and 1 infinite of 12 values (first at [0, 2])"."""
    counts = {"NaN": int(jnp.isnan(x).sum()), "infinite": int(jnp.isinf(x).sum())}
    position = [int(i) for i in np.unravel_index(int(jnp.argmin(jnp.isfinite(x))), x.shape)]
    place = f" (first at {position})" if x.size > 1 else ""
    return f"has {' and '.join(f'{n} {kind}' for kind, n in counts.items() if n)} of {x.size} values{place}"
