"""What several files of tests share: settings, and functions that draw bottoms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caffejax.core.program.net import Net
from layer_nets import net_text

MARGIN_PARAM = "margin_inner_product_param {{ num_output: 3 type: {} base: {} gamma: 1 {} }}"


def compute_tops_and_diff(layer_type: str, text: str, x: Any, labels: Any, phase: Any = "TRAIN") -> tuple[Any, Any]:
    net = Net(net_text(layer_type, text, [np.shape(x), np.shape(labels)], tops=2), phase)
    params, state = net.init(jax.random.key(0))

    def sum_first_top(x: Any) -> Any:
        tops = net.apply(params, state, {"b0": x, "b1": jnp.asarray(labels, jnp.float32)})[0]
        return jnp.sum(tops["t0"]), (np.asarray(jax.lax.stop_gradient(tops["t1"])), tops["t0"])

    (_, (second_top, top)), diff = jax.value_and_grad(sum_first_top, has_aux=True)(jnp.asarray(x, jnp.float32))
    return (np.asarray(top), second_top), np.asarray(diff)
