"""Layer-by-layer backward passes, as in Caffe: compute the diffs of bottoms and parameters from the diffs of tops.

Training differentiates the loss of the full net. This module serves callers that need single layers: pycaffe, whose
backward passes start from any diffs and stop at any layer, and the tools in `debugging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..graph import UNNAMED_TOP, Layer, Slot
from ..layers.dispatch import backward
from .interpreter import ComputePart, PassInputs, PassOutputs, Values, compute_part, prepare_layer_inputs
from .schedule import Part


class Diffs(NamedTuple):
    """Gradients of blobs by blob name, and of parameters by the `Slot` where the array is stored."""

    blobs: Mapping[str, jax.Array]
    params: Mapping[Slot, jax.Array]


Pullback = Callable[[Sequence[Any]], Diffs]  # takes the diffs of a layer's tops


def has_backward(layer: Layer) -> bool:
    """Return whether a layer computes diffs in a backward pass."""
    return (
        layer.need_backward
        and not layer.type.is_input
        and layer.type.has_backward
        and bool(find_differentiated_bottoms(layer) or find_differentiated_params(layer))
    )


def find_differentiated_bottoms(layer: Layer) -> list[str]:
    """Return the bottoms whose diffs a layer computes."""
    return [name for name, need in zip(layer.bottoms, layer.bottom_need_backward, strict=True) if need]


def find_differentiated_params(layer: Layer) -> list[Slot]:
    """Return the parameters whose diffs a layer computes, each as the `Slot` where it is stored."""
    return [p.owner for p in layer.params if p.spec.learnable and p.need_backward]


def run_with_pullback(
    part: Part,
    inputs: PassInputs,
    earlier_blobs: Values,
    compute: ComputePart = compute_part,
    host_tops: Mapping[str, jax.Array] | None = None,
    start_diffs: Mapping[Slot, jax.Array] = MappingProxyType({}),
) -> tuple[PassOutputs, Pullback]:
    """Run one layer forward; return its outputs, and a function that maps the diffs of its tops to a `Diffs`.

    Args:
        part: a part that consists of this layer.
        inputs, earlier_blobs: see `compute_part`.
        compute: the function that computes the part.
        host_tops: the tops of a host layer that has already run and is not run again; default: the layer is run.
        start_diffs: for a Python layer of a user, the diffs that its blobs have before its backward pass, which returns
            them with its changes. If they are empty, it returns the diffs of this pass.
    """
    (layer,) = part.layers
    if layer.type.on_host:
        if host_tops is None:
            result = compute(part, inputs, earlier_blobs, None)
        else:
            result = PassOutputs({top: host_tops[top] for top in layer.tops}, dict(inputs.state), jnp.zeros(()))
        return result, partial(_pull_back_on_host, layer, inputs, earlier_blobs, result.values, start_diffs)
    slots, names = find_differentiated_params(layer), find_differentiated_bottoms(layer)

    def forward(params: Mapping[str, Any], bottoms: Values) -> Any:
        result = compute(part, inputs._replace(params={**inputs.params, **params}), {**earlier_blobs, **bottoms}, None)
        return tuple(result.values[top] for top in layer.tops), result

    used_params = {slot.layer: inputs.params[slot.layer] for slot in slots}
    tops, vjp, result = jax.vjp(forward, used_params, {name: earlier_blobs[name] for name in names}, has_aux=True)

    def pullback(top_diffs: Sequence[Any]) -> Diffs:
        cotangents = tuple(map(_match_top, top_diffs, tops, layer.loss_weights))
        with layer.locate_errors():
            params, bottoms = vjp(cotangents)
        return Diffs(bottoms, {slot: params[slot.layer][slot.name] for slot in slots})

    return result, pullback


def run_backward(
    pullbacks: Sequence[tuple[Layer, Pullback]], blob_diffs: dict[str, jax.Array]
) -> Iterator[tuple[Layer, Diffs]]:
    """Run a backward pass: yield each layer, from the last to the first, with the diffs that it computes.

    Args:
        pullbacks: the layers in the order of the forward pass, each with its function from `run_with_pullback`.
        blob_diffs: the diffs to start from, by blob. It is updated with the diffs of bottoms.
    """
    for layer, pullback in reversed(pullbacks):
        tops = zip(layer.tops, layer.loss_weights, strict=True)
        with jax.named_scope(f"{layer.name} backward"):
            diffs = pullback([weight if top == UNNAMED_TOP else blob_diffs[top] for top, weight in tops])
        blob_diffs.update(diffs.blobs)
        yield layer, diffs


def is_users_host_layer(layer: Layer) -> bool:
    """Return whether a layer is a user's Python layer on the host, whose backward changes its blobs' diffs itself."""
    return layer.type.on_host and layer.type.instance is not None


def _pull_back_on_host(
    layer: Layer,
    inputs: PassInputs,
    earlier_blobs: Values,
    values: Values,
    start_diffs: Mapping[Slot, jax.Array],
    top_diffs: Sequence[Any],
) -> Diffs:
    blobs, bottoms = prepare_layer_inputs(layer, inputs.params, inputs.state, earlier_blobs)
    tops = [values[top] for top in layer.tops]
    cotangents = list(map(_match_top, top_diffs, tops, layer.loss_weights))
    context = layer.context.replace(
        fold_in_args=layer.make_fold_in_args(inputs.key),
        propagate_down=layer.bottom_need_backward,
        blob_diffs=tuple(np.asarray(start_diffs[p.owner]) for p in layer.params) if start_diffs else None,
    )
    with layer.locate_errors():
        arrays = jax.tree.map(np.asarray, (blobs, bottoms, tops, cotangents))
        blob_diffs, bottom_diffs = backward(context, *arrays)
    names = set(find_differentiated_bottoms(layer))
    slots = set(start_diffs or find_differentiated_params(layer))
    params = zip((p.owner for p in layer.params), blob_diffs, strict=True)
    return Diffs(
        {name: jnp.asarray(d) for name, d in zip(layer.bottoms, bottom_diffs, strict=True) if name in names},
        {slot: jnp.asarray(d) for slot, d in params if slot in slots},
    )


def _match_top(diff: Any, top: jax.Array, loss_weight: float) -> jax.Array:
    """Convert a diff to the dtype and the shape of its top.

    A diff that the previous batch left may have a different size. As in Caffe, whose blobs keep memory that is large
    enough, a smaller top gets its first elements, and a larger one zeros; but the diff of a loss is its weight.
    """
    diff = jnp.asarray(diff, top.dtype)
    if diff.ndim == 0:
        return jnp.broadcast_to(diff, top.shape)
    if diff.size != top.size:
        if loss_weight:
            return jnp.full(top.shape, loss_weight, top.dtype)
        diff = diff.reshape(-1)[: top.size] if diff.size > top.size else jnp.zeros(top.shape, top.dtype)
    return diff.reshape(top.shape)
