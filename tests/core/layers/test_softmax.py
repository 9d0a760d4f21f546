"""Tests of Softmax and SoftmaxWithLoss."""

import numpy as np

from layer_nets import run_layer
from layer_suite import (
    BATCH,
    IMAGE,
    LABELS,
    MATRIX,
    joint_batches,
    layer_case,
    normalizations_case,
    properties,
    recorded,
)

MAP = (BATCH, 3, 2, 4)

test_recorded = recorded("Softmax", "SoftmaxWithLoss")
test_properties = properties(
    layer_case("Softmax", "", IMAGE),
    layer_case("SoftmaxWithLoss", "", MATRIX, LABELS, classes=5),
    layer_case("SoftmaxWithLoss", "loss_param { ignore_label: 1 }", IMAGE, (BATCH, 5, 6), name="ignore", classes=3),
)
test_joint_batches = joint_batches(
    *(
        normalizations_case(layer_case("SoftmaxWithLoss", "", MAP, (BATCH, 2, 4), classes=3), **ignored)
        for ignored in ({}, {"ignore_label": 1})
    )
)


def test_softmax_with_loss_is_clamped() -> None:
    (loss,) = run_layer("SoftmaxWithLoss", "", [[0, 1e6]], [0], phase="TRAIN")
    np.testing.assert_allclose(loss, -np.log(np.finfo(np.float32).tiny), rtol=1e-6)
