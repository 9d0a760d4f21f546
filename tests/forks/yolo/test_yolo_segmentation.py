"""Tests of YoloSeg and SegmentationEvaluate."""

import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text
from layer_suite import BATCH, fork_properties, layer_case

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


def test_yolo_seg_weights_classes_by_their_pixels() -> None:
    x, labels = np.zeros((1, 2, 1, 1)), np.ones((1, 2, 1, 1))
    model = Net(net_text("YoloSeg", "yolo_seg_param { object_scale: 2 }", [x.shape, x.shape, (1, 2)]), "TRAIN")
    pixels = np.array([[30.0, 10.0]])
    loss = model.forward({}, {}, {"b0": x, "b1": labels, "b2": pixels})[0]["t0"]
    np.testing.assert_allclose(loss, 1.25**2 + 1.75**2)  # (2 - share) * 2 * (1/2 - 1), squared


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
