"""Tests of MemoryLoss, GradientScaler, Gather and Debug."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, LABELS, MATRIX, fork_properties, layer_case

test_properties = fork_properties(
    layer_case("MemoryLoss", "", (BATCH, 5), LABELS),
    layer_case("GradientScaler", "gradient_scaler_param { lower_bound: 0.2 max_iter: 10 }", MATRIX),
    layer_case("Gather", "", (BATCH, 5), (BATCH,), tops=2),
    layer_case("Debug", "", (BATCH, 5)),
)


Shape = tuple[int, ...]


def test_gradient_scaler_factor_grows_with_passes() -> None:
    text = net_text(
        "GradientScaler", "gradient_scaler_param { lower_bound: 0.1 upper_bound: 0.9 alpha: 5 max_iter: 2 }", [(2, 3)]
    )
    net = Net(text, "TRAIN")
    params, state = net.init(jax.random.key(0))
    x = jnp.array([[1.0, -2, 3], [np.inf, 0, 5]])

    def loss(x: jax.Array, state: Any) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        blobs, new_state = net.apply(params, state, {"b0": x})
        return jnp.sum(blobs["t0"] * jnp.arange(6.0).reshape(2, 3)), (blobs["t0"], new_state)

    for t in range(4):
        gradient, (top, state) = jax.grad(loss, has_aux=True)(x, state)
        np.testing.assert_array_equal(top, x)
        factor = 2 * 0.8 / (1 + np.exp(-5 * min(t / 2, 1))) - 0.8 + 0.1
        np.testing.assert_allclose(gradient, -factor * np.arange(6).reshape(2, 3), rtol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("GradientScaler", "gradient_scaler_param { max_iter: 0 }", [(2, 4)], "max_iter must be 1 or more"),
        ("GradientScaler", "gradient_scaler_param { lower_bound: 2 }", [(2, 4)], "must be at most upper_bound"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("Gather", "gather_param { axis: 1 }", [(8, 4)], "gather_param"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
