"""Tests of SegAccuracy and EltwiseAccuracy."""

from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from layer_nets import draw_normal, first_top, net_text
from layer_suite import BATCH, Shape, fork_properties, joint_batches, layer_case, recorded

MAPS: Shape = (BATCH, 4, 5, 6)
LABELS: Shape = (BATCH, 1, 5, 6)

test_recorded = recorded("SegAccuracy", family="segmentation")
test_properties = fork_properties(
    layer_case("EltwiseAccuracy", "eltwise_accuracy_param { top_k: 2 }", MAPS, LABELS, classes=4),
    layer_case("SegAccuracy", "", MAPS, LABELS, classes=4),
    layer_case(
        "SegAccuracy", "seg_accuracy_param { reset: false ignore_label: 3 }", MAPS, LABELS, classes=4, name="kept"
    ),
)
test_joint_batches = joint_batches(
    layer_case(
        "EltwiseAccuracy",
        "eltwise_accuracy_param { ignore_label: 1 }",
        (BATCH, 3, 2, 4),
        (BATCH, 2, 4),
        classes=3,
        name="ignore",
    )
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)


def test_seg_accuracy_and_eltwise_accuracy() -> None:
    scores, labels = draw_normal(2, 3, 4, 5), RANDOM.integers(0, 3, (2, 1, 4, 5)).astype(np.float32)
    labels[0, 0, 0, :3] = 255
    prediction, label = scores.argmax(1).ravel(), labels.ravel()
    expected = np.mean((prediction == label)[label != 255])
    result = first_top("SegAccuracy", "seg_accuracy_param { ignore_label: 255 }", scores, labels)
    np.testing.assert_allclose(result.ravel()[0], expected, rtol=1e-6)
    assert np.isnan(first_top("SegAccuracy", "", scores, labels)).all()
    accuracy = first_top("EltwiseAccuracy", "eltwise_accuracy_param { ignore_label: 255 }", scores, labels)
    np.testing.assert_allclose(accuracy, np.reshape(expected, (1, 1, 1, 1)), rtol=1e-6)
    top_2_accuracy = first_top(
        "EltwiseAccuracy", "eltwise_accuracy_param { top_k: 2 ignore_label: 255 }", scores, labels
    )
    best = scores.argsort(1)[:, 1:].transpose(0, 2, 3, 1).reshape(-1, 2)
    np.testing.assert_allclose(top_2_accuracy.item(), np.mean((best == label[:, None]).any(1)[label != 255]), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("SegAccuracy", "", [IMAGE_SHAPE, (2, 5)], "a label for each position"),
        (
            "EltwiseAccuracy",
            "eltwise_accuracy_param { top_k: 5 }",
            [IMAGE_SHAPE, (2, 1, 5, 6)],
            "top_k must be between 1",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
