"""Tests of Normalize."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax import CaffejaxError, Net
from layer_nets import net_text
from layer_suite import IMAGE, fork_properties, layer_case, recorded

test_recorded = recorded("Normalize", family="detection")
test_properties = fork_properties(
    layer_case("Normalize", "normalize_param { }", IMAGE, name="normface"),
    layer_case("Normalize", "normalize_param { bp_norm: true }", IMAGE, name="normface_lengths", tops=2),
    layer_case("Normalize", "norm_param { across_spatial: false }", IMAGE, name="places"),
    layer_case("Normalize", "norm_param { channel_shared: false }", IMAGE, name="image_channels"),
)


@pytest.mark.parametrize(
    ("text", "shape", "num_blobs"),
    [
        ("", (2, 3, 4, 5), 1),
        ("", (2, 3, 1, 1), 0),
        ("", (2, 3), 0),
        ('top: "length"', (2, 3, 4, 5), 0),
        ("normalize_param { }", (2, 3, 4, 5), 0),
        ("norm_param { }", (2, 3), 1),
        ("param { lr_mult: 0 }", (2, 3), 1),
        ("blobs { data: 2 }", (2, 3), 1),
    ],
)
def test_settings_select_the_fork_of_normalize(text: str, shape: tuple[int, ...], num_blobs: int) -> None:
    assert len(Net(net_text("Normalize", text, [shape]), "TRAIN").graph.layer("layer").params) == num_blobs


@pytest.mark.parametrize("text", ["norm_param { across_spatial: false }", "normalize_param { }"])
def test_normalized_positions_have_length_1(text: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    net = Net(net_text("Normalize", text, [x.shape]), "TEST")
    y = net.apply(*net.init(jax.random.key(0)), {"b0": x})[0]["t0"]
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("backward", ["rules", "autodiff"])
@pytest.mark.parametrize(("norm_type", "bp_norm"), [("L1", False), ("L1", True), ("L2", True)])
def test_gradient_of_normalized_positions_and_lengths(norm_type: str, bp_norm: bool, backward: Any) -> None:
    random = np.random.default_rng(0)
    x, dy, d_length = (
        random.normal(size=(2, 3, 4, 5)),
        random.normal(size=(2, 3, 4, 5)),
        random.normal(size=(2, 1, 4, 5)),
    )
    x[0, 1] = 0
    text = f'normalize_param {{ normalize_type: "{norm_type}" bp_norm: {str(bp_norm).lower()} }}'
    net = Net(net_text("Normalize", text, [x.shape], tops=2), "TRAIN", backward=backward)

    def compute_tops(x: Any) -> Any:
        result = net.apply({}, {}, {"b0": x})[0]
        return result["t0"], result["t1"]

    (top, length), vjp = jax.vjp(compute_tops, np.float32(x))
    expected_length = (np.abs(x) if norm_type == "L1" else x**2).sum(1, keepdims=True) + 1e-6
    expected_length = expected_length if norm_type == "L1" else np.sqrt(expected_length)
    np.testing.assert_allclose(top, x / expected_length, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(length, expected_length, rtol=1e-5)
    slope = np.sign(x) if norm_type == "L1" else x / expected_length
    expected = (
        dy - slope * (dy * x / expected_length).sum(1, keepdims=True)
    ) / expected_length + bp_norm * d_length * slope
    np.testing.assert_allclose(vjp((np.float32(dy), np.float32(d_length)))[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Normalize", "norm_param { eps: -1 }", [(2, 3)], "eps must not be negative"),
        ("Normalize", 'normalize_param { normalize_type: "L3" }', [(2, 3)], 'must be "L1" or "L2", not "L3"'),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{message}"):
        Net(net_text(layer_type, text, shapes), "TRAIN")
