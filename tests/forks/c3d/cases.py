"""What several files of tests share: settings, and functions that draw bottoms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from caffejax.core.program.net import Net
from layer_nets import net_text


def run_with_gradient(layer_type: str, text: str, *bottoms: Any) -> tuple[Any, Any]:
    """Return the top, and the gradient of the sum of its squares."""
    net = Net(net_text(layer_type, text, [np.shape(b) for b in bottoms]))
    params, state = net.init(jax.random.key(0))

    def compute_loss(x: Any) -> Any:
        inputs = {"b0": x, **{f"b{i}": jnp.asarray(b, jnp.float32) for i, b in enumerate(bottoms) if i}}
        top = net.apply(params, state, inputs)[0]["t0"]
        return jnp.sum(jnp.square(top)), top

    (_, top), diff = net.jit(jax.value_and_grad(compute_loss, has_aux=True))(jnp.asarray(bottoms[0], jnp.float32))
    return top, diff
