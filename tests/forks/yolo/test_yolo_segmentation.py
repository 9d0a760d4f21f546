"""Tests of YoloSeg and SegmentationEvaluate."""

from typing import Any

import cv2
import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case, recorded

test_recorded = recorded("SegmentationEvaluate", "YoloSeg", family="yolo")
test_properties = fork_properties(
    layer_case("YoloSeg", "yolo_seg_param { object_scale: 0.5 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)),
    layer_case(
        "YoloSeg",
        "yolo_seg_param { object_scale: 0.5 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 3, 4),
        (BATCH, 2),
        name="weighted",
    ),
    layer_case(
        "SegmentationEvaluate", "segmentation_evaluate_param { num_classes: 2 }", (BATCH, 2, 3, 4), (BATCH, 2, 3, 4)
    ),
    layer_case(
        "SegmentationEvaluate",
        "segmentation_evaluate_param { num_classes: 2 }",
        (BATCH, 2, 3, 4),
        (BATCH, 2, 6, 8),
        name="scaled",
    ),
)


def reference_differences(x: np.ndarray, labels: np.ndarray, counts: np.ndarray | None, scale: float) -> np.ndarray:
    """MobileNet-YOLO's loop, but that no weight is negative."""
    num, classes, height, width = x.shape
    differences = np.empty(x.shape)
    for c in range(classes):
        weight = scale
        if counts is not None:
            others = sum(height * width - counts[n, c] for n in range(num))
            weight = scale * max(0, 2 - counts[:, c].sum() / others)
        for n, i, j in np.ndindex(num, height, width):
            d = 1 / (1 + np.exp(-x[n, c, i, j])) - labels[n, c, i, j]
            differences[n, c, i, j] = d * (weight if labels[n, c, i, j] > 0.5 else scale)
    return differences


@pytest.mark.parametrize("is_weighted", [False, True])
def test_yolo_seg_equals_the_loop(is_weighted: bool) -> None:
    """The loss and the gradient; class 2 has more than two thirds of the pixels."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(3, 3, 4, 5)), rng.random((3, 3, 4, 5))
    labels[:, 2] = labels[:, 2] * 0.1 + 0.9
    counts = labels.sum((2, 3))
    expected = reference_differences(x, labels, counts if is_weighted else None, 0.5)
    shapes = [x.shape, x.shape, *([counts.shape] if is_weighted else [])]
    model = Net(net_text("YoloSeg", "yolo_seg_param { object_scale: 0.5 }", shapes), "TRAIN")
    inputs = {"b0": x, "b1": labels, "b2": counts}

    def compute_loss(scores: Any) -> Any:
        return model.forward({}, {}, {name: scores if name == "b0" else inputs[name] for name in model.input_names})[0][
            "t0"
        ]

    loss, gradient = jax.value_and_grad(compute_loss)(x.astype(np.float32))
    np.testing.assert_allclose(loss, np.sum(expected**2) / 3, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected / 3, rtol=1e-4, atol=1e-6)
    assert (expected[:, 2][labels[:, 2] > 0.5] == 0).all() == is_weighted


@pytest.mark.parametrize("size", [(6, 8), (12, 20), (7, 9), (3, 4), (4, 5), (2, 12)])
def test_probabilities_are_resized_as_by_opencv(size: tuple[int, int]) -> None:
    """The IoU of each class equals the fork's."""
    rng = np.random.default_rng(1)
    x, labels = rng.random((1, 3, 6, 8)), rng.random((1, 3, *size))
    labels[0, 2] = 0
    model = Net(
        net_text("SegmentationEvaluate", "segmentation_evaluate_param { threshold: 0.4 }", [x.shape, labels.shape]),
        "TEST",
    )
    top = model.forward({}, {}, {"b0": x, "b1": labels})[0]["t0"]
    expected = []
    for c in range(3):
        resized = cv2.resize((x[0, c].astype(np.float32) * 255).astype(np.uint8), size[::-1])
        is_predicted, is_label = (
            resized > int(np.float32(0.4) * 255) if size != (6, 8) else x[0, c] > 0.4,
            labels[0, c] > 0.4,
        )
        union = np.sum(is_predicted | is_label)
        expected.append(np.sum(is_predicted & is_label) / union if is_label.any() else 0 if size == (6, 8) else -1)
    np.testing.assert_allclose(top[0, 0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1, 2])
def test_segmentation_evaluate(scale: int) -> None:
    x = np.array([[[[0.9, 0.9], [0.2, 0.2]], [[0.1, 0.1], [0.1, 0.1]]]], np.float32)
    labels = np.repeat(np.repeat(np.array([[[[1, 0], [1, 0]]] * 2], np.float32)[0][None], scale, 2), scale, 3)
    model = Net(net_text("SegmentationEvaluate", "", [x.shape, labels.shape]), "TEST")
    top = model.forward({}, {}, {"b0": x, "b1": labels})[0]["t0"]
    np.testing.assert_allclose(top, [[[[1 / 3, 0]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("YoloSeg", "", [(1, 2, 3, 4), (1, 2, 3, 5)], "a label for each value"),
        ("SegmentationEvaluate", "", [(1, 2, 3, 4), (1, 3, 3, 4)], "probabilities and labels"),
    ],
)
def test_invalid_settings_and_shapes_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text(layer_type, text, shapes), "TRAIN")
