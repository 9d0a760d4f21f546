"""Tests of Reorg and AssistedExcitation."""

import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError, GraphError
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from yolo.cases import draw_labels

test_recorded = recorded("AssistedExcitation", "Reorg", family="yolo")
test_properties = fork_properties(
    layer_case(
        "AssistedExcitation", "", (BATCH, 3, 4, 5), (BATCH, 1, 5, 5), (BATCH, 1, 4, 5), samplers={"b1": draw_labels}
    ),
    layer_case("Reorg", "reorg_param { stride: 2 }", (BATCH, 4, 4, 6)),
    layer_case("Reorg", "reorg_param { stride: 2 reverse: true }", (BATCH, 4, 3, 2), name="reverse"),
)


Shape = tuple[int, ...]


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (2, 4, 5)])
def test_assisted_excitation_adds_the_mean_inside_boxes(shape: tuple[int, ...]) -> None:
    x, mean = np.zeros((2, 3, 4, 5)), np.arange(1, 41).reshape(2, 1, 4, 5)
    labels = np.zeros((2, 1, 3, 5))
    labels[0, 0, 0, 1:] = 0.5, 0.5, 0.4, 0.5  # columns 1.5 .. 3.5, rows 1 .. 3
    labels[0, 0, 2, 1:] = 0.5, 0.5, 1, 1  # after the end
    labels[1, 0, 0, 1:] = 0.99, 0.1, 0.001, 0.001  # one cell at least
    (result,) = run_layer("AssistedExcitation", "", x, labels, mean.reshape(shape))
    expected = np.zeros((2, 4, 5))
    expected[0, 1:3, 1:4] = mean[0, 0, 1:3, 1:4]
    expected[1, 0, 4] = mean[1, 0, 0, 4]
    np.testing.assert_array_equal(result, np.repeat(expected[:, None], 3, axis=1))


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("AssistedExcitation", "", [(2, 3, 4, 5), (2, 1, 3, 5), (2, 3, 4, 5)], "one channel"),
        ("AssistedExcitation", "", [(2, 3, 4, 5), (2, 1, 3, 4), (2, 1, 4, 5)], "rows of class"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


def test_reorg_equals_the_loop_of_darknet() -> None:
    s, (channels, height, width) = 2, (8, 4, 6)
    x = np.arange(channels * height * width, dtype=np.float32)
    expected = np.zeros_like(x)
    num_output_channels = channels // s**2
    for k, j, i in np.ndindex(channels, height, width):
        row, column = j * s + k // num_output_channels // s, i * s + k // num_output_channels % s
        expected[i + width * (j + height * k)] = x[column + width * s * (row + height * s * (k % num_output_channels))]
    model = Net(net_text("Reorg", "reorg_param { stride: 2 }", [(1, channels, height, width)]))
    top = model.forward({}, {}, {"b0": x.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(top.ravel(), expected)
    inverse_net = Net(net_text("Reorg", "reorg_param { stride: 2 reverse: true }", [(1, channels, height, width)]))
    inverse_top = inverse_net.forward({}, {}, {"b0": top.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(inverse_top.ravel(), x)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Reorg", "", [(1, 4, 2, 2)], "reorg_param.stride must be 1 or more, not 0"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 4, 3, 2)], "height and width divisible by stride = 2"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 6, 2, 2)], "channels divisible by stride.2 = 4"),
        ("Reorg", "reorg_param { stride: 2 }", [(4, 4)], "4 axes"),
    ],
)
def test_invalid_settings_and_shapes_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text(layer_type, text, shapes), "TRAIN")
