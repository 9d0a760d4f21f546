"""Tests of EuclideanDistance and WeightedEuclideanLoss."""

from typing import Any

import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

test_recorded = recorded("EuclideanDistance", "WeightedEuclideanLoss", family="robotics")
test_properties = fork_properties(
    layer_case("EuclideanDistance", "", (BATCH, 6), (BATCH, 6)),
    layer_case("WeightedEuclideanLoss", "", (BATCH, 3), (BATCH, 3), (BATCH, 3, 3)),
)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("EuclideanDistance", "", [(2, 4), (2, 4)], "3 numbers for each point, but has 4"),
        ("WeightedEuclideanLoss", "", [(2, 4), (2, 4), (2, 4)], "a matrix of 4 x 4 for each row"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
