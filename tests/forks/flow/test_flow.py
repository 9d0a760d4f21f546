"""FlowNet 2's layers: comparison with loops, invariants, and errors."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text

RANDOM = np.random.default_rng(0)


def run(layer_type: str, text: str, *bottoms: Any) -> np.ndarray:
    net = Net(net_text(layer_type, text, [np.shape(b) for b in bottoms]))
    inputs = {f"b{i}": jnp.asarray(b, jnp.float32) for i, b in enumerate(bottoms)}
    return np.asarray(net.apply({}, {}, inputs)[0]["t0"])


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_correlation1d_equals_loops(direction: int) -> None:
    a, b = RANDOM.normal(size=(2, 1, 3, 2, 7))
    text = f"correlation_param {{ pad: 2 kernel_size: 1 max_displacement: 2 single_direction: {direction} }}"
    shifts = {-1: range(-3, 0), 0: range(-2, 3), 1: range(3)}[direction]
    expected = np.zeros((1, len(shifts), 2, 7))
    for k, shift in enumerate(shifts):
        for x in range(7):
            if 0 <= x + shift < 7:
                expected[0, k, :, x] = np.mean(a[0, :, :, x] * b[0, :, :, x + shift], axis=0)
    np.testing.assert_allclose(run("Correlation1D", text, a, b), expected, atol=1e-6)


def warp_by_loops(image: np.ndarray, flow: np.ndarray) -> np.ndarray:
    top = np.full(image.shape, math.nan)
    _, _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            column, row = x + flow[0, 0, y, x], y + flow[0, 1, y, x]
            if 0 <= column < width and 0 <= row < height:
                left, above = int(column), int(row)
                right, below = min(left + 1, width - 1), min(above + 1, height - 1)
                p, q = column - left, row - above
                upper = (1 - p) * image[..., above, left] + p * image[..., above, right]
                lower = (1 - p) * image[..., below, left] + p * image[..., below, right]
                top[..., y, x] = (1 - q) * upper + q * lower
    return top


def test_flow_warp_equals_loops() -> None:
    image, flow = RANDOM.normal(size=(1, 3, 4, 5)), 2 * RANDOM.normal(size=(1, 2, 4, 5))
    flow[0, :, 0, 0], flow[0, :, 1, 1] = math.nan, 1  # nowhere, and exactly at a place
    expected = warp_by_loops(image, flow)
    assert np.isnan(expected).any()
    top = run("FlowWarp", "flow_warp_param { fill_value: NOT_A_NUMBER }", image, flow)
    np.testing.assert_allclose(top, expected, atol=1e-5)
    np.testing.assert_allclose(run("FlowWarp", "", image, flow), np.nan_to_num(expected), atol=1e-5)


@pytest.mark.parametrize("method", ["LINEAR", "CUBIC", "NEAREST"])
@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
@settings(max_examples=10)
def test_resampling_keeps_constants(method: str, height: int, width: int, antialias: bool) -> None:
    text = f"resample_param {{ type: {method} height: {height} width: {width} antialias: {str(antialias).lower()} }}"
    top = run("Resample", text, np.full((1, 1, 5, 5), 3.0))
    # as in the fork, the first column's place comes of the heights: it may lie outside of the filter's reach
    assert top.shape == (1, 1, height, width)
    assert np.all(np.isclose(top, 3, atol=1e-4) | (top == 0))
    if height == width:
        np.testing.assert_allclose(top, 3, rtol=1e-4)


def test_resampled_values() -> None:
    x = np.arange(4.0)[None, None, None] * np.ones((1, 1, 4, 1))
    top = run("Resample", "resample_param { height: 8 width: 8 }", x)
    np.testing.assert_allclose(top[0, 0, 3], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-6)
    half_size_top = run("Resample", "resample_param { height: 2 width: 2 antialias: false }", x)
    np.testing.assert_allclose(half_size_top[0, 0, 0], [0.5, 2.5], atol=1e-6)
    np.testing.assert_array_equal(run("Resample", "resample_param { height: 4 width: 4 type: NEAREST }", x), x)


def test_downsampling_ignores_nan() -> None:
    x = np.arange(5.0) * np.ones((1, 1, 5, 1))
    text = "downsample_param { top_height: 3 top_width: 3 }"
    np.testing.assert_allclose(run("Downsample", text, x)[0, 0, 0], [1 / 3, 2, 11 / 3], atol=1e-6)
    x[0, 0, :, 0] = math.nan
    top = run("Downsample", text, x)[0, 0]
    assert np.all(np.isnan(top[:, 0]))
    np.testing.assert_allclose(top[:, 1:], [[2, 11 / 3]] * 3, atol=1e-6)


def test_accum_keeps_the_corners_of_maps() -> None:
    small, large = RANDOM.normal(size=(1, 2, 2, 3)), RANDOM.normal(size=(1, 1, 4, 5))
    top = run("Accum", "", small, large)
    np.testing.assert_allclose(top[:, 2:], large, atol=1e-6)
    np.testing.assert_allclose(top[:, :2, ::3, ::2], small, atol=1e-6)
    text = "accum_param { have_reference: true }"
    np.testing.assert_allclose(run("Accum", text, large, small)[..., ::2], large[:, :, ::3, ::2][..., ::2], atol=1e-6)
    assert run("Accum", "accum_param { size_divisible_by: 8 }", small, large).shape == (1, 3, 8, 8)


def compute_loss_and_diff(text: str, x: np.ndarray, layer_type: str = "L1Loss") -> tuple[float, np.ndarray]:
    net = Net(net_text(layer_type, text, [x.shape]))
    return jax.value_and_grad(lambda x: net.apply({}, {}, {"b0": x})[0]["t0"])(jnp.asarray(x, jnp.float32))


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


def test_channel_norm_and_mean() -> None:
    x = np.zeros((1, 2, 1, 2))
    x[0, :, 0, 0] = 3, -4
    np.testing.assert_allclose(run("ChannelNorm", "", x), [[[[5, 0]]]], rtol=1e-6)
    text = "mean_param { operation: ADD value: 1 value: 2 input_scale: 2 mean_scale: 3 output_scale: 0.5 }"
    np.testing.assert_allclose(run("Mean", text, x)[0, :, 0], [[4.5, 1.5], [-1, 3]], rtol=1e-6)


MAP_SHAPE = (1, 2, 5, 6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        (
            "Correlation",
            "correlation_param { kernel_size: 2 max_displacement: 1 }",
            [MAP_SHAPE, MAP_SHAPE],
            "must be odd",
        ),
        ("Correlation", "correlation_param { kernel_size: 1 }", [MAP_SHAPE, MAP_SHAPE], "max_displacement must be set"),
        (
            "Correlation",
            "correlation_param { kernel_size: 1 max_displacement: 3 }",
            [MAP_SHAPE, MAP_SHAPE],
            "do not fit",
        ),
        (
            "Correlation",
            "correlation_param { kernel_size: 1 max_displacement: 1 stride_2: 0 }",
            [MAP_SHAPE, MAP_SHAPE],
            "positive",
        ),
        (
            "Correlation",
            "correlation_param { kernel_size: 1 max_displacement: 1 }",
            [MAP_SHAPE, (1, 2, 5, 5)],
            "equal shape with 4 axes",
        ),
        ("FlowWarp", "", [MAP_SHAPE, (1, 3, 5, 6)], r"shape \(1, 2, 5, 6\)"),
        ("Resample", "", [MAP_SHAPE], "would have size"),
        ("Resample", "resample_param { type: AREA height: 2 width: 2 }", [MAP_SHAPE], "AREA is not supported"),
        ("Downsample", "downsample_param { top_height: 1 top_width: 2 }", [MAP_SHAPE], "2 or more"),
        ("Accum", "accum_param { have_reference: true }", [MAP_SHAPE], "two bottoms"),
        ("L1Loss", "", [MAP_SHAPE, (1, 2, 5, 5)], "bottoms of equal shape"),
        ("LpqLoss", "lpq_loss_param { p: 1 p: 2 q: 1 q: 2 }", [MAP_SHAPE], "one p and one q"),
        ("Mean", "mean_param { operation: ADD value: 1 value: 2 value: 3 }", [MAP_SHAPE], "multiple of the 3 values"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
