"""Intermediate values of a net: selected blobs of each batch, or every layer's values and gradients in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...base.variables import Blobs, Params, Variables
from ..graph import Layer
from ..program.backward import Diffs, Pullback, has_backward, run_backward, run_with_pullback
from ..program.frozen import freeze_passes
from ..program.interpreter import PassInputs, PassOutputs, Values, iterate_parts
from ..program.net import Net
from ..program.net_arguments import check_blob_names
from ..program.schedule import Part, make_unfused_schedule, split_at_host_layers, split_by_layer
from .index_check import IndexCheck

Tops = dict[str, list[jax.Array]]  # by layer key: the value of each top immediately after the layer


def extract_features(
    net: Net,
    variables: Variables,
    blobs: Iterable[str],
    batches: Iterable[Mapping[str, Any]],
    key: jax.Array | None = None,
    *,
    freeze: bool = True,
) -> Iterator[Blobs]:
    """Compute blobs of a net, batch by batch. Recurrent state passes from one batch to the next.

    Args:
        net: the net.
        variables: parameters and initial state.
        blobs: names of the blobs.
        batches: the net's inputs for each batch, such as a `data.loader.Loader`. They are read one at a time.
        key: the random key, into which the number of the batch is folded. The default is `jax.random.key(0)`.
        freeze: whether to compile the net for inference if possible, which takes as long as a few batches.

    Returns:
        An iterator over the blobs of each batch, by name.

    Raises:
        GraphError: immediately, if the net does not have one of the blobs.
        LayerError: during iteration, if an index is out of range.
    """
    names = check_blob_names(net.graph, "blobs", blobs)
    key = jax.random.key(0) if key is None else key
    frozen_net = freeze_passes(net.graph, net.config, variables, names) if freeze else None
    check_indices, forward = IndexCheck(net), net.jit(partial(net.apply, blobs=names))

    def compute_blobs() -> Iterator[Blobs]:
        params, state = variables
        for batch_index, batch in enumerate(batches):
            inputs = params, state, batch, jax.random.fold_in(key, batch_index)
            check_indices(*inputs)
            if frozen_net is not None:
                yield frozen_net(*inputs[2:])
                continue
            values, state = forward(*inputs)
            yield values

    return compute_blobs()


class LayerGradients(NamedTuple):
    """Gradients of the loss that one layer's backward pass computes.

    Attributes:
        bottoms: the gradient with respect to the value of each bottom that the layer read, or None if it is not
            computed.
        params: the gradient with respect to each parameter, or None if it is not computed. If several layers share a
            parameter, the gradient is this layer's contribution.
    """

    bottoms: list[jax.Array | None]
    params: list[jax.Array | None]


class IsolatedInputs(NamedTuple):
    """Arrays for running each layer independently of the other layers, by layer key and blob.

    Attributes:
        bottoms: values of each layer's bottoms. If a bottom has no value here, the layer reads the result of the layers
            before it.
        top_diffs: diffs of each layer's tops. A layer without an entry runs no backward pass.
    """

    bottoms: Mapping[str, Mapping[str, Any]]
    top_diffs: Mapping[str, Mapping[str, Any]]


class LayerTrace:
    """Runs a net layer by layer, forward and then backward, and yields every layer's values and gradients.

    Args:
        net: the net.
        params, state, batch, key: see `Net.loss`.
        backward: whether to prepare the backward pass in the forward pass.
        isolated: arrays on which each layer runs, instead of the results of the layers before and after it, or None.

    Attributes:
        state: the running statistics after the layers that have run.
    """

    def __init__(
        self,
        net: Net,
        params: Params,
        state: Params,
        batch: Mapping[str, jax.Array],
        key: jax.Array,
        *,
        backward: bool = True,
        isolated: IsolatedInputs | None = None,
    ) -> None:
        self._schedule = split_at_host_layers(
            split_by_layer(make_unfused_schedule(net.graph)), trim=net.has_host_layers
        )
        self._layers, self._run_part = net.graph.layers, net.compute_part
        self._inputs = PassInputs(params, state, batch, key, {})
        self._has_backward, self._isolated_inputs = backward, isolated
        self._pullbacks: list[tuple[Layer, Pullback]] = []
        self._seeds: dict[str, jax.Array] = {}
        self.state: dict[str, Any] = dict(state)

    def forward(self) -> Iterator[tuple[Layer, list[jax.Array], list[jax.Array]]]:
        """Run the layers one at a time, and yield each layer with its bottoms and its tops."""
        self._pullbacks, self._seeds, self.state = [], {}, dict(self._inputs.state)
        for part, inputs, result in iterate_parts(self._schedule, self._inputs, compute=self._run_layer):
            (layer,) = part.layers
            self.state |= {name: {**self.state[name], **blobs} for name, blobs in result.state.items()}
            tops = [result.values[name] for name in layer.tops]
            for name, weight, top in zip(layer.tops, layer.loss_weights, tops, strict=True):
                self._seeds[name] = jnp.full_like(top, weight)  # for the last value of a blob that layers overwrite
            yield layer, [inputs[name] for name in layer.bottoms], tops

    def backward(self) -> Iterator[tuple[Layer, LayerGradients]]:
        """Run the backward passes of the layers that `forward` has run, and yield each layer with its gradients."""
        diffs = (
            self._iterate_isolated_diffs()
            if self._isolated_inputs is not None
            else run_backward(self._pullbacks, dict(self._seeds))
        )
        for layer, layer_diffs in diffs:
            params = [layer_diffs.params.get(p.owner) for p in layer.params]
            yield layer, LayerGradients([layer_diffs.blobs.get(name) for name in layer.bottoms], params)

    def gradients(self) -> dict[str, LayerGradients]:
        """Run the backward passes, and return the gradients of all layers by layer key."""
        missing_gradients = (
            (x.key, LayerGradients([None] * len(x.bottoms), [None] * len(x.params))) for x in self._layers
        )
        return dict(missing_gradients) | {layer.key: gradients for layer, gradients in self.backward()}

    def _run_layer(self, part: Part, inputs: PassInputs, values: Values, keep: frozenset[str] | None) -> PassOutputs:
        (layer,) = part.layers
        if self._isolated_inputs is not None:
            values = values | dict(self._isolated_inputs.bottoms.get(layer.key, {}))
        if not self._has_backward or not has_backward(layer):
            return self._run_part(part, inputs, values, keep)
        result, pullback = run_with_pullback(part, inputs, values, self._run_part)
        self._pullbacks.append((layer, pullback))
        return result

    def _iterate_isolated_diffs(self) -> Iterator[tuple[Layer, Diffs]]:
        assert self._isolated_inputs is not None
        for layer, pullback in reversed(self._pullbacks):
            if top_diffs := self._isolated_inputs.top_diffs.get(layer.key):
                diffs = pullback([top_diffs.get(name, 0) for name in layer.tops])
                # only diffs of bottoms with a prescribed value can be compared
                bottoms = self._isolated_inputs.bottoms.get(layer.key, {})
                yield layer, diffs._replace(blobs={n: d for n, d in diffs.blobs.items() if n in bottoms})
