"""Tests of ChannelNorm, FlowWarp and Mean."""

import math

import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import first_top, net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)
FLOW = (BATCH, 2, 5, 6)

test_recorded = recorded("ChannelNorm", "FlowWarp", "Mean", family="flow")
test_properties = fork_properties(
    layer_case("ChannelNorm", "", IMAGES),
    layer_case("FlowWarp", "", IMAGES, FLOW),
    layer_case("Mean", "mean_param { operation: SUBTRACT value: 1 value: 2 output_scale: 0.5 }", IMAGES),
)


RANDOM = np.random.default_rng(0)


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


MAP_SHAPE = (1, 2, 5, 6)


def test_flow_warp_equals_loops() -> None:
    image, flow = RANDOM.normal(size=(1, 3, 4, 5)), 2 * RANDOM.normal(size=(1, 2, 4, 5))
    flow[0, :, 0, 0], flow[0, :, 1, 1] = math.nan, 1  # nowhere, and exactly at a place
    expected = warp_by_loops(image, flow)
    assert np.isnan(expected).any()
    top = first_top("FlowWarp", "flow_warp_param { fill_value: NOT_A_NUMBER }", image, flow)
    np.testing.assert_allclose(top, expected, atol=1e-5)
    np.testing.assert_allclose(first_top("FlowWarp", "", image, flow), np.nan_to_num(expected), atol=1e-5)


def test_channel_norm_and_mean() -> None:
    x = np.zeros((1, 2, 1, 2))
    x[0, :, 0, 0] = 3, -4
    np.testing.assert_allclose(first_top("ChannelNorm", "", x), [[[[5, 0]]]], rtol=1e-6)
    text = "mean_param { operation: ADD value: 1 value: 2 input_scale: 2 mean_scale: 3 output_scale: 0.5 }"
    np.testing.assert_allclose(first_top("Mean", text, x)[0, :, 0], [[4.5, 1.5], [-1, 3]], rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("FlowWarp", "", [MAP_SHAPE, (1, 3, 5, 6)], r"shape \(1, 2, 5, 6\)"),
        ("Mean", "mean_param { operation: ADD value: 1 value: 2 value: 3 }", [MAP_SHAPE], "multiple of the 3 values"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
