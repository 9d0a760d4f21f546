"""Tests of YoloDetectionOutput, Yolov3DetectionOutput and EvalDetection."""

from typing import Any

import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError, GraphError
from caffejax.core.layers.row_padding import strip_padding
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded
from yolo.cases import (
    ANCHORS,
    BIASES,
    LARGE_ANCHORS,
    SMALL_ANCHORS,
    compute_iou,
    draw_labels,
    draw_small_numbers,
    sigmoid,
)

CELLS = (BATCH, 14, 3, 3)
EVAL_SETTINGS = f"num_class: 2 num_object: 2 {SMALL_ANCHORS} nms: 0.5 threshold: 0.1"


def draw_probabilities(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.uniform(0.1, 0.9, shape).astype(np.float32)


def draw_cell_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw YOLOv1's labels of 2 x 2 cells: difficult flags, object flags, classes, boxes."""
    integers = random.integers(0, 2, (shape[0], 12))
    return np.concatenate([integers, random.uniform(0.1, 0.9, (shape[0], 16))], axis=1).astype(np.float32)


test_recorded = recorded("YoloDetectionOutput", "Yolov3DetectionOutput", family="yolo")
test_properties = fork_properties(
    layer_case(
        "EvalDetection",
        f"eval_detection_param {{ side: 3 {EVAL_SETTINGS} }}",
        CELLS,
        (BATCH, 1, 5, 5),
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    ),
    layer_case(
        "EvalDetection",
        "eval_detection_param { side: 2 num_class: 3 num_object: 2 threshold: 0.2 nms: 0.5 }",
        (BATCH, 52),
        (BATCH, 28),
        name="cells",
        samplers={
            "b0": draw_probabilities,
            "b1": draw_cell_labels,
        },
    ),
    layer_case(
        "YoloDetectionOutput",
        f"yolo_detection_output_param {{ num_classes: 2 num_box: 2 confidence_threshold: 0.2 {SMALL_ANCHORS} }}",
        (BATCH, 14, 3, 4),
        (BATCH, 14, 2, 2),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 anchors_scale: 16 "
        f"mask: 2 mask: 0 confidence_threshold: 0.2 {LARGE_ANCHORS} }}",
        (BATCH, 7, 2, 3),
        (BATCH, 7, 4, 6),
        samplers={"b0": draw_small_numbers, "b1": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 2 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 mask: 0 nms_threshold: 1.5 {LARGE_ANCHORS} }}",
        (BATCH, 14, 2, 3),
        name="all",
        samplers={"b0": draw_small_numbers},
    ),
    layer_case(
        "Yolov3DetectionOutput",
        "yolov3_detection_output_param { num_classes: 2 num_box: 1 anchors_scale: 32 mask_group_num: 1 "
        f"mask: 2 gaussian_box: true {LARGE_ANCHORS} }}",
        (BATCH, 11, 2, 3),
        name="gaussian",
        samplers={"b0": draw_small_numbers},
    ),
)


Shape = tuple[int, ...]


def compute_overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2), np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
    intersection = np.prod(np.maximum(high - low, 0))
    return float(intersection / (np.prod(a[2:]) + np.prod(b[2:]) - intersection))


def evaluate_by_loops(
    predictions: list[Any], truth: list[Any], num_classes: int, nms: float, threshold: float, min_score: float
) -> np.ndarray:
    """Return the row of an image from predictions [class, score, box] and labels [class, box, difficult]."""
    predictions = sorted(predictions, key=lambda p: -p[1])
    selected: list[Any] = []
    for p in predictions:
        if nms < 0 or all(compute_overlap(p[2], q[2]) < nms for q in selected):
            selected.append(p)
    counts = [sum(g[0] == c and not g[2] for g in truth) for c in range(num_classes)]
    rows, matched_truths = [], set()
    for c in range(num_classes):
        for p in (p for p in selected if p[0] == c and p[1] >= min_score):
            candidates = [i for i, g in enumerate(truth) if g[0] == c]
            best = max(candidates, key=lambda i: compute_overlap(p[2], truth[i][1]), default=None)
            is_correct = is_wrong = 0
            if (
                best is None
                or compute_overlap(p[2], truth[best][1]) < threshold
                or (best in matched_truths and not truth[best][2])
            ):
                is_wrong = 1
            elif not truth[best][2]:
                is_correct = 1
                matched_truths.add(best)
            rows.append([c, p[1], is_correct, is_wrong])
    return np.concatenate([counts, np.ravel(rows), np.zeros(4 * (len(predictions) - len(rows)))])


@pytest.mark.parametrize(("nms", "score_type"), [(0.4, "MULTIPLY"), (0.9, "OBJ"), (-1, "PROB")])
def test_eval_detection_of_cells_equals_loops(nms: float, score_type: str) -> None:
    random = np.random.default_rng(1)
    x, labels = random.uniform(0.3, 0.9, (8, 4 * (3 + 5 * 2))), random.uniform(0.2, 0.7, (8, 28))
    labels[:, :4] = random.integers(0, 4, (8, 4)) == 0
    labels[:, 4:8] = random.integers(0, 4, (8, 4)) > 0
    labels[:, 8:12] = random.integers(0, 3, (8, 4))
    text = f"side: 2 num_class: 3 num_object: 2 nms: {nms} threshold: 0.3 score_type: {score_type}"
    (rows,) = run_layer("EvalDetection", f"eval_detection_param {{ {text} }}", x, labels)
    assert rows[:, 3:].reshape(-1, 4)[:, 2:].sum(0).min() > 0  # right ones and wrong ones
    for row, image, label in zip(rows, x.astype(np.float32), labels.astype(np.float32), strict=True):
        result = []
        for cell in range(4):
            class_prob = image[:12].reshape(3, 4)[:, cell]
            for k in range(2):
                objectness, raw = image[12 + 4 * k + cell], image[20:].reshape(2, 4, 4)[k, :, cell]
                box = np.array([(cell % 2 + raw[0]) / 2, (cell // 2 + raw[1]) / 2, raw[2] ** 2, raw[3] ** 2])
                score = {"MULTIPLY": objectness * class_prob.max(), "OBJ": objectness, "PROB": class_prob.max()}[
                    score_type
                ]
                result.append((class_prob.argmax(), score, box))
        truth = [(label[8 + i], label[12:].reshape(4, 4)[i], label[i] == 1) for i in range(4) if label[4 + i]]
        np.testing.assert_allclose(row, evaluate_by_loops(result, truth, 3, nms, 0.3, 0), rtol=1e-5)


def test_eval_detection_of_anchors_equals_loops() -> None:
    random = np.random.default_rng(2)
    x, labels = random.normal(size=(2, 2 * 7, 3, 3)), random.uniform(0.2, 0.8, (2, 30, 5))
    labels[..., 0] = random.integers(0, 2, (2, 30))
    labels[:, 6:, 1:] = 0
    x[:, 4, 0, 0] = -9  # a score under the least
    biases = [0.7, 0.9, 1.6, 1.2]
    text = " ".join(f"biases: {b}" for b in biases)
    text = f"eval_detection_param {{ side: 3 num_class: 2 num_object: 2 nms: 0.6 threshold: 0.3 {text} }}"
    (rows,) = run_layer("EvalDetection", text, x, labels)
    assert rows[:, 2:].reshape(-1, 4)[:, 2:].sum(0).min() > 0
    for row, image, label in zip(rows, x.astype(np.float32), labels.astype(np.float32), strict=True):
        result = []
        for n, i, j in np.ndindex(2, 3, 3):
            raw = image.reshape(2, 7, 3, 3)[n, :, i, j]
            sigmoid = 1 / (1 + np.exp(-raw))
            class_prob = np.exp(raw[5:]) / np.exp(raw[5:]).sum()
            sides = np.exp(raw[2:4]) * biases[2 * n : 2 * n + 2] / 3
            box = np.array([(j + sigmoid[0]) / 3, (i + sigmoid[1]) / 3, *sides])
            result.append((class_prob.argmax(), sigmoid[4] * class_prob.max(), box))
        truth = [(g[0], g[1:], False) for g in label[:6]]
        np.testing.assert_allclose(row, evaluate_by_loops(result, truth, 2, 0.6, 0.3, 0.005), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("EvalDetection", "eval_detection_param { side: 0 }", [(2, 4), (2, 4)], "side must be positive"),
        ("EvalDetection", "eval_detection_param { side: 2 }", [(2, 4), (2, 4)], "bottom 0 must have 30 values"),
        ("EvalDetection", "eval_detection_param { biases: 1 biases: 2 }", [(2, 25, 7, 7), (2, 5)], "2 anchors, not 2"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


DETECTION_OUTPUT_PARAM = (
    "yolov3_detection_output_param {{ num_classes: 3 num_box: 2 confidence_threshold: 0.3 nms_threshold: {limit} "
    f"mask_group_num: 1 mask: 0 mask: 2 anchors_scale: 32 {BIASES} }}}}"
)


def suppress_by_loops(candidates: list[Any], limit: float) -> np.ndarray:
    selected: list[Any] = []
    for row in sorted(candidates, key=lambda r: -r[0]):
        if all(compute_iou(row[2], k[2]) < limit for k in selected):
            selected.append(row)
    assert len(selected) > 3
    return np.array([[0, c + 1, score, *box[:2] - box[2:] / 2, *box[:2] + box[2:] / 2] for score, c, box in selected])


@pytest.mark.parametrize("limit", [0.4, 1.5])
def test_yolov3_detection_output_equals_loops(x: np.ndarray, limit: float) -> None:
    model = Net(net_text("Yolov3DetectionOutput", DETECTION_OUTPUT_PARAM.format(limit=limit), [x.shape]), "TEST")
    result = strip_padding(model.apply({}, {}, {"b0": np.float32(x)}, blobs=["t0"])[0]["t0"])[0, 0]
    rows = []
    for n, j, i in np.ndindex(2, 3, 4):
        raw = x.reshape(2, 8, 3, 4)[n, :, j, i]
        s = sigmoid(raw)
        box = [(i + s[0]) / 4, (j + s[1]) / 3, *np.exp(raw[2:4]) * ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))]
        rows += [(s[4] * s[5 + c], c, np.array(box)) for c in range(3) if s[4] * s[5 + c] > 0.3]
    np.testing.assert_allclose(result, suppress_by_loops(rows, limit), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limit", [0.4, 1.5])
def test_gaussian_yolov3_detection_output_equals_loops(limit: float) -> None:
    x = np.random.default_rng(1).normal(size=(1, 24, 3, 4)) * 2
    text = DETECTION_OUTPUT_PARAM.format(limit=limit).replace("num_box", "gaussian_box: true num_box")
    model = Net(net_text("Yolov3DetectionOutput", text, [x.shape]), "TEST")
    result = strip_padding(model.apply({}, {}, {"b0": np.float32(x)}, blobs=["t0"])[0]["t0"])[0, 0]
    rows = []
    for n, j, i in np.ndindex(2, 3, 4):
        raw = x.reshape(2, 12, 3, 4)[n, :, j, i]
        s = sigmoid(raw)
        width, height = ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))
        box = [(i + s[0]) / 4, (j + s[2]) / 3, np.exp(raw[4]) * width, np.exp(raw[6]) * height]
        certainty = 1 - (s[1] + s[3] + s[5] + s[7]) / 4
        rows += [(certainty * s[8] * s[9 + c], c, np.array(box)) for c in range(3) if certainty * s[8] * s[9 + c] > 0.3]
    np.testing.assert_allclose(result, suppress_by_loops(rows, limit), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("YoloDetectionOutput", "", [(1, 125, 3, 3)], "biases must be pairs of width and height"),
        (
            "Yolov3DetectionOutput",
            DETECTION_OUTPUT_PARAM.format(limit=0.5),
            [(1, 16, 3, 4)] * 2,
            "mask_group_num is 1, but there are 2",
        ),
        (
            "Yolov3DetectionOutput",
            DETECTION_OUTPUT_PARAM.format(limit=0.5).replace("num_box", "gaussian_box: true num_box"),
            [(1, 16, 3, 4)],
            "24 channels",
        ),
    ],
)
def test_invalid_settings_and_shapes_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text(layer_type, text, shapes), "TRAIN")
