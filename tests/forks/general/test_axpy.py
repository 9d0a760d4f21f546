"""Tests of Axpy."""

from typing import Any

import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)

test_recorded = recorded("Axpy", family="general")
test_properties = fork_properties(
    layer_case("Axpy", "", (BATCH, 4, 1, 1), MAPS, MAPS),
)


IMAGE_SHAPE = (2, 4, 5, 6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Axpy", "", [(2, 3), IMAGE_SHAPE, IMAGE_SHAPE], r"bottom 0 must hold a factor for each channel, \(2, 4\)"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
