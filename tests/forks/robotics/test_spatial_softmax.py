"""Tests of SpatialSoftmax and Softmax."""

from typing import Any

import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, MATRIX, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("SpatialSoftmax", family="robotics")
test_properties = fork_properties(
    layer_case("Softmax", "softmax_param { temperature: 2.5 }", MATRIX, name="with_temperature"),
    layer_case("SpatialSoftmax", "spatial_softmax_param { temperature: 2 }", MAPS),
)


IMAGE_SHAPE = (2, 4, 5, 6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("SpatialSoftmax", "spatial_softmax_param { temperature: 0 }", [IMAGE_SHAPE], "temperature must be positive"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
