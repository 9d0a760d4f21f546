"""Log lines for the setting `debug_info`: the mean absolute value of every blob and diff, in Caffe's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..net import Net, Params
from .intermediates import LayerTrace


class DebugInfo:
    """Computes the debug info of a net's passes. The computation is compiled once.

    Args:
        net: the net.
        backward: whether to include the backward pass.
    """

    def __init__(self, net: Net, backward: bool = True) -> None:
        self._net, self._backward = net, backward
        self._jitted_means = net.jit(self._compute_means)

    def format_lines(
        self, params: Params, state: Params, batch: Mapping[str, jax.Array], key: jax.Array
    ) -> Iterator[str]:
        """Yield the log lines of one pass in Caffe's order: forward pass, backward pass, norms of all parameters."""
        means = jax.device_get(self._jitted_means(params, state, batch, key))
        for layer in self._net.graph.layers:
            for name, value in zip(layer.tops, means["tops"][layer.key], strict=True):
                yield f"    [Forward] Layer {layer.name}, top blob {name} data: {value:g}"
            for param in layer.params:
                if param.spec.learnable:
                    value = means["params"][param.owner.layer][param.owner.index]
                    yield f"    [Forward] Layer {layer.name}, param blob {_get_param_name(param)} data: {value:g}"
        if not self._backward:
            return
        for layer in reversed(self._net.graph.layers):
            bottoms = zip(layer.bottoms, means["gradients"][layer.key].bottoms, layer.bottom_need_backward, strict=True)
            for name, value, needs_backward in bottoms:
                if needs_backward and layer.need_backward:
                    yield f"    [Backward] Layer {layer.name}, bottom blob {name} diff: {value:g}"
            for param, value in zip(layer.params, means["gradients"][layer.key].params, strict=True):
                if value is not None and layer.need_backward:
                    yield f"    [Backward] Layer {layer.name}, param blob {_get_param_name(param)} diff: {value:g}"
        (l1, l1_diff), (l2, l2_diff) = means["norms"]
        yield (
            f"    [Backward] All net params (data, diff): L1 norm = ({l1:g}, {l1_diff:g}); "
            f"L2 norm = ({l2:g}, {l2_diff:g})"
        )

    def _compute_means(self, params: Params, state: Params, batch: Any, key: jax.Array) -> dict[str, Any]:
        trace = LayerTrace(self._net, params, state, batch, key, backward=self._backward)
        tops = {layer.key: tops for layer, _, tops in trace.forward()}
        means: dict[str, Any] = {"tops": _mean_abs(tops), "params": _mean_abs(params)}
        if self._backward:
            gradients = trace.gradients()
            param_diffs = [layer.params for layer in gradients.values()]
            means["gradients"] = _mean_abs(gradients)
            means["norms"] = [[norm(jax.tree.leaves(tree)) for tree in (params, param_diffs)] for norm in (_l1, _l2)]
        return means


def _get_param_name(param: Any) -> str:
    return param.name or str(param.slot.index)


def _mean_abs(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.mean(jnp.abs(x)), tree)


def _l1(arrays: list[jax.Array]) -> jax.Array:
    return sum((jnp.sum(jnp.abs(a)) for a in arrays), start=jnp.zeros(()))


def _l2(arrays: list[jax.Array]) -> jax.Array:
    return jnp.sqrt(sum((jnp.sum(jnp.square(a)) for a in arrays), start=jnp.zeros(())))
