"""Tests of Permute, Flip, Reverse and others."""

from typing import Any

import pytest

from caffejax import CaffejaxError, Net
from layer_nets import net_text
from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Permute", "Flip", "Reverse", "ShuffleChannel", "Transpose", family="detection")
test_properties = fork_properties(
    layer_case("ShuffleChannel", "shuffle_channel_param { group: 2 }", MAPS),
    layer_case("Flip", "flip_param { flip_height: true }", IMAGE),
    layer_case("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", IMAGE),
    layer_case("Reverse", "reverse_param { axis: 2 axis: 3 }", IMAGE),
    layer_case("Transpose", "transpose_param { dim: 0 dim: 3 dim: 1 dim: -2 }", IMAGE),
)


IMAGE_SHAPE = (2, 4, 5, 6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        (
            "ShuffleChannel",
            "shuffle_channel_param { group: 3 }",
            [IMAGE_SHAPE],
            "channels, 4, must be a multiple of group 3",
        ),
        ("ShuffleChannel", "shuffle_channel_param { group: 0 }", [IMAGE_SHAPE], "group must be positive"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Permute", "permute_param { order: 0 order: 0 }", [(2, 3)], "each at most once"),
        ("Permute", "permute_param { order: 2 }", [(2, 3)], "must list axes of the bottom"),
        ("Transpose", "transpose_param { dim: 1 }", [(2, 3)], "each axis of the bottom"),
        ("Reverse", "reverse_param { axis: 1 axis: -1 }", [(2, 3)], "must list each axis at most once"),
        ("Flip", "", [(2, 3)], "4 axes"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{message}"):
        Net(net_text(layer_type, text, shapes), "TRAIN")
