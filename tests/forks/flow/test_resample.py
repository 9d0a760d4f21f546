"""Tests of Resample, Downsample and Accum."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import first_top, net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)

test_recorded = recorded("Accum", family="flow")
test_properties = fork_properties(
    layer_case("Resample", "resample_param { height: 3 width: 7 }", IMAGES, name="linear"),
    layer_case("Resample", "resample_param { height: 8 width: 9 type: CUBIC }", IMAGES, name="cubic"),
    layer_case("Resample", "resample_param { type: NEAREST }", IMAGES, (BATCH, 1, 3, 3), name="nearest"),
    layer_case("Downsample", "downsample_param { top_height: 3 top_width: 2 }", IMAGES),
    layer_case("Accum", "accum_param { size_divisible_by: 7 }", IMAGES, (BATCH, 1, 3, 2)),
)


RANDOM = np.random.default_rng(0)

MAP_SHAPE = (1, 2, 5, 6)


@pytest.mark.parametrize("method", ["LINEAR", "CUBIC", "NEAREST"])
@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
@settings(max_examples=10)
def test_resampling_keeps_constants(method: str, height: int, width: int, antialias: bool) -> None:
    text = f"resample_param {{ type: {method} height: {height} width: {width} antialias: {str(antialias).lower()} }}"
    top = first_top("Resample", text, np.full((1, 1, 5, 5), 3.0))
    # as in the fork, the first column's place comes of the heights: it may lie outside of the filter's reach
    assert top.shape == (1, 1, height, width)
    assert np.all(np.isclose(top, 3, atol=1e-4) | (top == 0))
    if height == width:
        np.testing.assert_allclose(top, 3, rtol=1e-4)


def test_resampled_values() -> None:
    x = np.arange(4.0)[None, None, None] * np.ones((1, 1, 4, 1))
    top = first_top("Resample", "resample_param { height: 8 width: 8 }", x)
    np.testing.assert_allclose(top[0, 0, 3], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3], atol=1e-6)
    half_size_top = first_top("Resample", "resample_param { height: 2 width: 2 antialias: false }", x)
    np.testing.assert_allclose(half_size_top[0, 0, 0], [0.5, 2.5], atol=1e-6)
    np.testing.assert_array_equal(first_top("Resample", "resample_param { height: 4 width: 4 type: NEAREST }", x), x)


def test_downsampling_ignores_nan() -> None:
    x = np.arange(5.0) * np.ones((1, 1, 5, 1))
    text = "downsample_param { top_height: 3 top_width: 3 }"
    np.testing.assert_allclose(first_top("Downsample", text, x)[0, 0, 0], [1 / 3, 2, 11 / 3], atol=1e-6)
    x[0, 0, :, 0] = math.nan
    top = first_top("Downsample", text, x)[0, 0]
    assert np.all(np.isnan(top[:, 0]))
    np.testing.assert_allclose(top[:, 1:], [[2, 11 / 3]] * 3, atol=1e-6)


def test_accum_keeps_the_corners_of_maps() -> None:
    small, large = RANDOM.normal(size=(1, 2, 2, 3)), RANDOM.normal(size=(1, 1, 4, 5))
    top = first_top("Accum", "", small, large)
    np.testing.assert_allclose(top[:, 2:], large, atol=1e-6)
    np.testing.assert_allclose(top[:, :2, ::3, ::2], small, atol=1e-6)
    text = "accum_param { have_reference: true }"
    np.testing.assert_allclose(
        first_top("Accum", text, large, small)[..., ::2], large[:, :, ::3, ::2][..., ::2], atol=1e-6
    )
    assert first_top("Accum", "accum_param { size_divisible_by: 8 }", small, large).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("Resample", "", [MAP_SHAPE], "would have size"),
        ("Resample", "resample_param { type: AREA height: 2 width: 2 }", [MAP_SHAPE], "AREA is not supported"),
        ("Downsample", "downsample_param { top_height: 1 top_width: 2 }", [MAP_SHAPE], "2 or more"),
        ("Accum", "accum_param { have_reference: true }", [MAP_SHAPE], "two bottoms"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
