"""A small Faster R-CNN with built-in Python layers learns to detect the objects in eight synthetic images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import caffejax.pycaffe as caffe
from caffejax.core.layers import layer_types
from caffejax.forks.detection.boxes import overlaps
from caffejax.forks.rcnn.rpn_proposals import decode_boxes
from rcnn.synthetic_images import SIZE, draw_image

pytestmark = pytest.mark.long

CONFIG = Path(__file__).parents[3] / "configs" / "faster_rcnn_toy"
IM_INFO = np.asarray([[SIZE, SIZE, 1]], np.float32)
STDS = np.asarray([0.1, 0.1, 0.2, 0.2], np.float32)


def decode_detections(tops: dict[str, Any]) -> list[tuple[int, float, np.ndarray]]:
    """Return the detections (class, score, box) with a score above 0.5, best first, without duplicates of a class."""
    result: list[tuple[int, float, np.ndarray]] = []
    boxes = np.asarray(tops["rois"])[:, 1:]
    deltas = np.asarray(tops["bbox_pred"]).reshape(len(boxes), 3, 4) * STDS
    prob = np.asarray(tops["cls_prob"])
    candidates = [(label, prob[i, label], i) for i in range(len(boxes)) for label in (1, 2) if prob[i, label] > 0.5]
    for label, score, i in sorted(candidates, key=lambda c: -c[1]):
        box = np.asarray(decode_boxes(boxes[i], deltas[i, label]))
        if all(kept_label != label or float(overlaps(box, kept_box, 1.0)) <= 0.3 for kept_label, _, kept_box in result):
            result.append((label, float(score), box))
    return result


@pytest.mark.skipif("SmoothL1Loss" not in layer_types(), reason="needs SmoothL1Loss")
def test_trained_net_detects_the_objects_of_its_training_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(CONFIG)
    random = np.random.default_rng(0)
    images = [draw_image(random) for _ in range(8)]
    solver = caffe.get_solver("solver.prototxt")
    order = np.concatenate([random.permutation(8) for _ in range(50)])
    for i in order:
        data, boxes = images[i]
        for name, value in {"data": data, "im_info": IM_INFO, "gt_boxes": boxes}.items():
            solver.net.blobs[name].data[...] = value
        solver.step(1)
    weights = str(tmp_path / "toy.caffemodel")
    solver.net.save(weights)
    net = caffe.Net("test.prototxt", weights, caffe.TEST)
    num_hits, num_false_positives = 0, 0
    for data, boxes in images:
        net.blobs["data"].data[...] = data
        net.blobs["im_info"].data[...] = IM_INFO
        detections = decode_detections(net.forward(blobs=["rois"]))
        hits = [any(label == truth[4] and overlap(box, truth) > 0.5 for label, _, box in detections) for truth in boxes]
        num_hits, num_false_positives = num_hits + sum(hits), num_false_positives + len(detections) - sum(hits)
    assert num_hits == 16
    assert num_false_positives <= 2


def overlap(box: np.ndarray, truth: np.ndarray) -> float:
    return float(overlaps(box, truth[:4], 1.0))
