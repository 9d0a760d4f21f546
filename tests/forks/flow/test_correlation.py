"""Tests of Correlation and Correlation1D."""

import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import first_top, net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

IMAGES = (BATCH, 2, 5, 6)

test_recorded = recorded("Correlation", family="flow")
test_properties = fork_properties(
    layer_case(
        "Correlation", "correlation_param { pad: 3 kernel_size: 3 max_displacement: 2 stride_2: 2 }", IMAGES, IMAGES
    ),
    layer_case(
        "Correlation",
        "correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 stride_1: 2 correlation_type: SUBTRACT }",
        IMAGES,
        IMAGES,
        name="subtract",
    ),
    layer_case(
        "Correlation1D",
        "correlation_param { pad: 2 kernel_size: 1 max_displacement: 2 single_direction: -1 }",
        IMAGES,
        IMAGES,
    ),
)


RANDOM = np.random.default_rng(0)

MAP_SHAPE = (1, 2, 5, 6)


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
    np.testing.assert_allclose(first_top("Correlation1D", text, a, b), expected, atol=1e-6)


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
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
