"""Tests of SmoothL1Loss."""

from typing import Any

import numpy as np
import pytest

from caffejax import CaffejaxError, Net, check_gradients
from layer_nets import net_text
from layer_suite import MATRIX, fork_properties, joint_batches, layer_case, recorded

test_recorded = recorded("SmoothL1Loss", family="rcnn")
test_properties = fork_properties(
    layer_case("SmoothL1Loss", "", MATRIX, MATRIX, name="ssd"),
    layer_case("SmoothL1Loss", "loss_weight: 1", MATRIX, MATRIX, MATRIX, name="fast"),
    layer_case("SmoothL1Loss", "smooth_l1_loss_param { sigma: 2 }", MATRIX, MATRIX, MATRIX, MATRIX, name="faster"),
)
test_joint_batches = joint_batches(
    layer_case(
        "SmoothL1Loss",
        "loss_weight: 2 smooth_l1_loss_param {} loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }",
        MATRIX,
        MATRIX,
        name="PRE_FIXED",
    )
)


@pytest.mark.parametrize(
    ("text", "weight"),
    [("", 1), ("smooth_l1_loss_param { sigma: 2 }", 0), ("loss_weight: 3 smooth_l1_loss_param { sigma: 2 }", 3)],
)
def test_default_loss_weight_of_smooth_l1_loss(text: str, weight: float) -> None:
    layer = Net(net_text("SmoothL1Loss", text, [(2, 3), (2, 3)]), "TRAIN").graph.layer("layer")
    assert sum(layer.loss_weights) == weight


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("SmoothL1Loss", "smooth_l1_loss_param { sigma: 0 }", [(2, 3), (2, 3)], "sigma must be positive"),
        ("SmoothL1Loss", "", [(2, 3), (3, 2)], "bottom 1 must have the shape of bottom 0"),
        ("SmoothL1Loss", "", [(2, 3)] * 3, "set loss_weight"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{message}"):
        Net(net_text(layer_type, text, shapes), "TRAIN")


@pytest.mark.parametrize("bottoms", [[(2, 4)] * 4, [(2, 4), (2, 4), np.zeros((2, 4)), np.zeros((2, 4))]])
def test_losses_are_not_zero_for_lack_of_labels(bottoms: Any) -> None:
    report = check_gradients("SmoothL1Loss", "", bottoms=bottoms, samples=4)
    assert report.ok, report
    assert not any(row.zero for row in report.rows), report
