"""Log lines for the setting `debug_info`: the mean absolute value of every blob and diff, in Caffe's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ...base.variables import Params
from ..program.net import Net
from .caffe_optimizer import compute_total_norm
from .intermediates import LayerTrace

Pass = tuple[Params, Params, Mapping[str, jax.Array], jax.Array]  # params, state, batch, key


class DebugInfo:
    """Computes the debug info of a net's passes. The computation is compiled once.

    Args:
        net: the net.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._jitted_pass = net.jit(self._compute_pass)

    def format_lines(self, passes: Iterable[Pass]) -> Iterator[str]:
        """Yield the log lines of an iteration in Caffe's order: for each pass forward, backward and norms.

        As in Caffe, diffs of params are what has been added up so far: in the backward pass, by the layers that share
        them, and by the earlier passes of the iteration. Running statistics go on from pass to pass.

        Args:
            passes: `(params, state, batch, key)` of each pass. The states after the first are not used.
        """
        diffs: Params | None = None
        state: Params = {}
        for params, initial_state, batch, key in passes:
            if diffs is None:
                state, diffs = initial_state, jax.tree.map(jnp.zeros_like, params)
            means, state, diffs = self._jitted_pass(params, state, batch, key, diffs)
            yield from self._format_pass(jax.device_get(means))

    def _format_pass(self, means: dict[str, Any]) -> Iterator[str]:
        for layer in self._net.graph.layers:
            for name, value in zip(layer.tops, means["tops"][layer.key], strict=True):
                yield f"    [Forward] Layer {layer.name}, top blob {name} data: {value:g}"
            for param, value in zip(layer.params, means["params"][layer.key], strict=True):
                name = param.shared_name or str(param.index)
                yield f"    [Forward] Layer {layer.name}, param blob {name} data: {value:g}"
        for layer in reversed(self._net.graph.layers):
            if not layer.need_backward or layer.key not in means["gradients"]:
                continue
            gradients = means["gradients"][layer.key]
            for name, value, needs_backward in zip(
                layer.bottoms, gradients.bottoms, layer.bottom_need_backward, strict=True
            ):
                if needs_backward:
                    yield f"    [Backward] Layer {layer.name}, bottom blob {name} diff: {value:g}"
            for index, value in enumerate(gradients.params):
                if value is not None:
                    yield f"    [Backward] Layer {layer.name}, param blob {index} diff: {value:g}"
        (l1, l1_diff), (l2, l2_diff) = means["norms"]
        yield (
            f"    [Backward] All net params (data, diff): L1 norm = ({l1:g}, {l1_diff:g}); "
            f"L2 norm = ({l2:g}, {l2_diff:g})"
        )

    def _compute_pass(
        self, params: Params, state: Params, batch: Any, key: jax.Array, diffs: Params
    ) -> tuple[dict[str, Any], Params, Params]:
        """Return the means of a pass, the state after it, and `diffs` with the gradients of the pass added."""
        trace = LayerTrace(self._net, params, state, batch, key)
        tops, blobs = {}, {}
        for layer, _, layer_tops in trace.forward():
            tops[layer.key] = layer_tops
            blobs[layer.key] = [p.array(params, trace.state) for p in layer.params]
        means: dict[str, Any] = {"tops": _mean_abs(tops), "params": _mean_abs(blobs)}
        diffs = {layer: dict(blobs) for layer, blobs in diffs.items()}
        gradients = {}
        for layer, contribution in trace.backward():
            sums = list(contribution.params)
            for i, (param, gradient) in enumerate(zip(layer.params, contribution.params, strict=True)):
                if gradient is not None:
                    owner = param.owner
                    diffs[owner.layer][owner.name] = sums[i] = diffs[owner.layer][owner.name] + gradient
            gradients[layer.key] = contribution._replace(params=sums)
        means["gradients"] = _mean_abs(gradients)
        # Caffe's learnable params, which include running statistics
        trees = [p.array(params, trace.state) for p in self._net.graph.unique_params], diffs
        means["norms"] = [[norm(tree) for tree in trees] for norm in (_l1, compute_total_norm)]
        return means, trace.state, diffs


def _mean_abs(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.mean(jnp.abs(x)), tree)


def _l1(tree: Any) -> jax.Array:
    return sum((jnp.sum(jnp.abs(a)) for a in jax.tree.leaves(tree)), start=jnp.zeros(()))
