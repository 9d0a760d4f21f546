"""Tests of L1Loss and LpqLoss."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)

test_recorded = recorded("L1Loss", family="flow")
test_properties = fork_properties(
    layer_case("L1Loss", "", (BATCH, 5), (BATCH, 5)),
    layer_case("L1Loss", "l1_loss_param { plateau: 0.1 }", IMAGES, name="flow"),
    layer_case(
        "L1Loss", "l1_loss_param { l2_per_location: true normalize_by_num_entries: true }", IMAGES, IMAGES, name="l2"
    ),
    layer_case(
        "LpqLoss", "lpq_loss_param { p: 2 q: 0.4 p_epsilon: 0.1 normalize_by_num_entries: true }", IMAGES, IMAGES
    ),
)


RANDOM = np.random.default_rng(0)


def compute_loss_and_diff(text: str, x: np.ndarray, layer_type: str = "L1Loss") -> tuple[float, np.ndarray]:
    net = Net(net_text(layer_type, text, [x.shape]))
    return jax.value_and_grad(lambda x: net.apply({}, {}, {"b0": x})[0]["t0"])(jnp.asarray(x, jnp.float32))


MAP_SHAPE = (1, 2, 5, 6)


def test_losses_ignore_nan() -> None:
    x = RANDOM.normal(size=(2, 2, 3, 4))
    x[0, :, 0, 0] = math.nan
    valid = ~np.isnan(x)
    loss, diff = compute_loss_and_diff("l1_loss_param { plateau: 0.5 normalize_by_num_entries: true }", x)
    is_counted = valid & (np.abs(np.nan_to_num(x)) >= 0.5)
    np.testing.assert_allclose(loss, np.abs(x[is_counted]).sum() / (valid.sum() / 2), rtol=1e-5)
    np.testing.assert_allclose(diff, np.where(is_counted, np.sign(x), 0) / (valid.sum() / 2), rtol=1e-5)

    loss, diff = compute_loss_and_diff("l1_loss_param { l2_per_location: true epsilon: 0.25 plateau: 0.5 }", x)
    squares = np.nansum(x**2, axis=1, keepdims=True) * (np.nansum(x**2, axis=1, keepdims=True) >= 0.25)
    np.testing.assert_allclose(loss, np.sqrt(squares + 0.25).sum() / 2, rtol=1e-5)
    expected = np.nan_to_num(x) / np.sqrt(squares + 0.25) * (squares > 0) / 2
    np.testing.assert_allclose(diff, expected, rtol=1e-5, atol=1e-7)


def test_lpq_loss_with_any_exponents() -> None:
    x = RANDOM.normal(size=(2, 3, 2, 2))
    text = "lpq_loss_param { p: 1.5 q: 0.4 p_epsilon: 0.1 q_epsilon: 0.2 }"
    loss, _ = compute_loss_and_diff(text, x, "LpqLoss")
    sums = np.sum((np.abs(x) + 0.1) ** 1.5, axis=1)
    np.testing.assert_allclose(loss, np.sum((sums + 0.2) ** 0.4) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("L1Loss", "", [MAP_SHAPE, (1, 2, 5, 5)], "bottoms of equal shape"),
        ("LpqLoss", "lpq_loss_param { p: 1 p: 2 q: 1 q: 2 }", [MAP_SHAPE], "one p and one q"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
