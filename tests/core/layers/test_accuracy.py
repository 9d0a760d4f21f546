"""Tests of Accuracy."""

import numpy as np

from layer_nets import run_layer
from layer_suite import LABELS, MATRIX, joint_batches, layer_case, properties, recorded

test_recorded = recorded("Accuracy")
test_properties = properties(
    layer_case("Accuracy", "accuracy_param { top_k: 2 }", MATRIX, LABELS, classes=5),
)
test_joint_batches = joint_batches(
    layer_case("Accuracy", "accuracy_param { ignore_label: 1 }", MATRIX, LABELS, classes=5, tops=2, name="classes")
)


def test_accuracy_with_top_k_0_is_0() -> None:
    (accuracy,) = run_layer("Accuracy", "top_k: 0", np.eye(4), np.arange(4), phase="TRAIN")
    assert accuracy == 0
