"""YOLO's layers against loops over cells and boxes; what ends a list of labels; what they refuse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import net

from caffejax import Net
from caffejax.errors import CaffejaxError
from caffejax.layers.row_padding import strip_padding
from caffejax.layers.yolo.yolo_loss import MEASURES, box_pull

ANCHORS = np.array([[10, 14], [40, 30], [60, 90]])
BIASES = " ".join(f"biases: {n}" for n in ANCHORS.ravel())
V3 = f"yolov3_param {{ num_class: 3 num: 2 anchors_scale: 32 mask: 0 mask: 2 coord_scale: 2 {BIASES} %s }}"
V2 = "region_loss_param { num_class: 3 num: 2 coord_scale: 2 biases: 0.4 biases: 0.5 biases: 2 biases: 3 %s }"
# two boxes of one cell and anchor, another of the other anchor, one after the end
LABELS = np.array(
    [[1, 0.42, 0.35, 0.7, 0.9], [2, 0.44, 0.36, 0.6, 0.8], [0, 0.9, 0.9, 0.1, 0.12], [0] * 5, [1, 0.1, 0.1, 0.5, 0.5]]
)


def iou(a: Any, b: Any) -> float:
    sides = np.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2) - np.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
    inside = np.prod(np.maximum(sides, 0))
    return float(inside / (np.prod(a[2:]) + np.prod(b[2:]) - inside))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def loss_and_gradient(kind: str, text: str, x: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    it = Net(net(kind, text, [x.shape, labels.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return it.apply({}, {}, {"b0": x, "b1": np.float32(labels)}, blobs=["t0"])[0]["t0"]

    found, gradient = jax.jit(jax.value_and_grad(loss))(np.float32(x))
    return float(found), np.asarray(gradient)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 16, 3, 4))


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("focal", [True, False])
def test_yolov3_of_boxes_that_share_a_cell(x: np.ndarray, accumulate: bool, focal: bool) -> None:
    more = f"accumulate: {str(accumulate).lower()} use_focal_loss: {str(focal).lower()} iou_thresh: 0.3 class_scale: 2"
    loss, gradient = loss_and_gradient("Yolov3", V3 % more, x, LABELS[None, None])

    d = np.zeros((2, 8, 3, 4))
    raw = x.reshape(d.shape)
    s = sigmoid(raw)
    for n, j, i in np.ndindex(2, 3, 4):
        size = np.exp(raw[n, 2:4, j, i]) * ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))
        box = np.array([(i + s[n, 0, j, i]) / 4, (j + s[n, 1, j, i]) / 3, *size])
        d[n, 4, j, i] = 0 if max(iou(box, t[1:]) for t in LABELS[:3]) > 0.2 else s[n, 4, j, i]
    for label, *box in LABELS[:3]:
        shapes = [np.array([0, 0, *a / (32 * np.array([4, 3]))]) for a in ANCHORS]
        fits = [iou(np.array([0, 0, *box[2:]]), shape) for shape in shapes]
        i, j, c = int(box[0] * 4), int(box[1] * 3), int(label)
        for n, a in enumerate([0, 2]):
            if a != np.argmax(fits) and fits[a] <= np.float32(0.3):
                continue
            cell, out = s[n, :, j, i], d[n, :, j, i]
            logs = np.log(np.array(box[2:]) * 32 * [4, 3] / ANCHORS[a])
            wrong = np.array([*(cell[:2] - [box[0] * 4 - i, box[1] * 3 - j]), *(raw[n, 2:4, j, i] - logs)])
            out[:4] = out[:4] * accumulate + 2 * (2 - box[2] * box[3]) * wrong
            out[4] = cell[4] - 1
            if np.any(out[5:]):
                out[5 + c] = 2 * (cell[5 + c] - 0.95)
            elif focal:
                p = cell[5 + c]
                out[5:] = 2 * (cell[5:] - np.eye(3)[c]) * 0.5 * -(1 - p) * (2 * p * np.log(p) + p - 1)
            else:
                out[5:] = 2 * (cell[5:] - np.where(np.eye(3)[c], 0.95, 0.05))
    assert np.count_nonzero(d[:, 5]) >= 2
    np.testing.assert_allclose(gradient.reshape(d.shape), d, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, np.sum(d * d), rtol=1e-4)


def test_region_loss_of_boxes_that_share_a_cell(x: np.ndarray) -> None:
    """The last one has it."""
    _, both = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, :2])
    _, last = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, 1:2])
    np.testing.assert_array_equal(both, last)
    _, first = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, :1])
    assert np.any(both != first)


@pytest.mark.parametrize(("kind", "text"), [("Yolov3", V3 % ""), ("RegionLoss", V2 % "")])
def test_what_follows_the_end_of_a_list_does_not_count(x: np.ndarray, kind: str, text: str) -> None:
    for a, b in zip(*(loss_and_gradient(kind, text, x, LABELS[None, None, :n]) for n in (3, 5)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize(("kind", "text"), [("Yolov3", V3 % ""), ("RegionLoss", V2 % "")])
def test_a_box_of_no_class(x: np.ndarray, kind: str, text: str, label: int) -> None:
    strange = LABELS.copy()
    strange[1, 0] = label
    assert np.isnan(loss_and_gradient(kind, text, x, strange[None, None])[0])


def test_measures() -> None:
    """Of two boxes of 2 x 2, one step apart along each axis, and of a box and itself."""
    a, b = jnp.array([1.0, 1, 2, 2]), jnp.array([2.0, 2, 2, 2])
    expected = {"IOU": 1 / 7, "GIOU": 1 / 7 - 2 / 9, "DIOU": 1 / 7 - 2 / 18, "CIOU": 1 / 7 - 2 / 18}
    assert {name: float(f(a, b, a)) for name, f in MEASURES.items()} == pytest.approx(expected)
    assert all(float(f(a, a, a)) == pytest.approx(1) for f in MEASURES.values())


@pytest.mark.parametrize("name", MEASURES)
def test_a_step_against_the_difference_fits_better(name: str) -> None:
    random = np.random.default_rng(1)
    pred, truth = (jnp.asarray(random.uniform(0.3, 0.7, (20, 4))) for _ in range(2))
    better = pred - 1e-4 * box_pull(MEASURES[name], pred, truth, jnp.zeros((20, 2)))
    assert np.all(MEASURES[name](better, truth, pred) > MEASURES[name](pred, truth, pred))


def test_reorg_is_darknets_loop() -> None:
    s, (channels, height, width) = 2, (8, 4, 6)
    x = np.arange(channels * height * width, dtype=np.float32)
    expected = np.zeros_like(x)
    few = channels // s**2
    for k, j, i in np.ndindex(channels, height, width):
        row, column = j * s + k // few // s, i * s + k // few % s
        expected[i + width * (j + height * k)] = x[column + width * s * (row + height * s * (k % few))]
    it = Net(net("Reorg", "reorg_param { stride: 2 }", [(1, channels, height, width)]))
    top = it.forward({}, {}, {"b0": x.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(top.ravel(), expected)
    back = Net(net("Reorg", "reorg_param { stride: 2 reverse: true }", [(1, channels, height, width)]))
    again = back.forward({}, {}, {"b0": top.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(again.ravel(), x)


OUTPUT = (
    "yolov3_detection_output_param {{ num_classes: 3 num_box: 2 confidence_threshold: 0.3 nms_threshold: {limit} "
    f"mask_group_num: 1 mask: 0 mask: 2 anchors_scale: 32 {BIASES} }}}}"
)


@pytest.mark.parametrize("limit", [0.4, 1.5])
def test_yolov3_detection_output(x: np.ndarray, limit: float) -> None:
    it = Net(net("Yolov3DetectionOutput", OUTPUT.format(limit=limit), [x.shape]), "TEST")
    found = strip_padding(it.apply({}, {}, {"b0": np.float32(x)}, blobs=["t0"])[0]["t0"])[0, 0]
    rows = []
    for n, j, i in np.ndindex(2, 3, 4):
        raw = x.reshape(2, 8, 3, 4)[n, :, j, i]
        s = sigmoid(raw)
        box = [(i + s[0]) / 4, (j + s[1]) / 3, *np.exp(raw[2:4]) * ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))]
        rows += [(s[4] * s[5 + c], c, np.array(box)) for c in range(3) if s[4] * s[5 + c] > 0.3]
    kept: list[Any] = []
    for row in sorted(rows, key=lambda r: -r[0]):
        if all(iou(row[2], k[2]) < limit for k in kept):
            kept.append(row)
    expected = [[0, c + 1, score, *box[:2] - box[2:] / 2, *box[:2] + box[2:] / 2] for score, c, box in kept]
    assert len(kept) > 3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_yolo_seg_weighs_classes_by_their_pixels() -> None:
    x, labels = np.zeros((1, 2, 1, 1)), np.ones((1, 2, 1, 1))
    it = Net(net("YoloSeg", "yolo_seg_param { object_scale: 2 }", [x.shape, x.shape, (1, 2)]), "TRAIN")
    pixels = np.array([[30.0, 10.0]])
    loss = it.forward({}, {}, {"b0": x, "b1": labels, "b2": pixels})[0]["t0"]
    np.testing.assert_allclose(loss, 1.25**2 + 1.75**2)  # (2 - share) * 2 * (1/2 - 1), squared


@pytest.mark.parametrize("grow", [1, 2])
def test_segmentation_evaluate(grow: int) -> None:
    x = np.array([[[[0.9, 0.9], [0.2, 0.2]], [[0.1, 0.1], [0.1, 0.1]]]], np.float32)
    labels = np.repeat(np.repeat(np.array([[[[1, 0], [1, 0]]] * 2], np.float32)[0][None], grow, 2), grow, 3)
    it = Net(net("SegmentationEvaluate", "", [x.shape, labels.shape]), "TEST")
    top = it.forward({}, {}, {"b0": x, "b1": labels})[0]["t0"]
    np.testing.assert_allclose(top, [[[[1 / 3, 0]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "text", "shapes", "message"),
    [
        ("Reorg", "", [(1, 4, 2, 2)], "needs reorg_param.stride"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 4, 3, 2)], "height and width divisible by stride = 2"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 6, 2, 2)], "channels divisible by stride.2 = 4"),
        ("Reorg", "reorg_param { stride: 2 }", [(4, 4)], "4 axes"),
        ("Yolov3", V3 % "", [(1, 15, 3, 4), (1, 1, 5, 5)], "must have 16 channels"),
        ("Yolov3", V3 % "", [(1, 16, 3, 4), (1, 1, 5, 6)], "rows of class, x, y, width and height"),
        ("Yolov3", V3 % "mask: 1", [(1, 16, 3, 4), (1, 1, 5, 5)], "must be num = 2 anchors"),
        (
            "Yolov3",
            (V3 % "").replace("mask: 2", "mask: 3"),
            [(1, 16, 3, 4), (1, 1, 5, 5)],
            "must be indices of the 3 anchors",
        ),
        ("Yolov3", V3 % "biases: 3", [(1, 16, 3, 4), (1, 1, 5, 5)], "must be widths and heights, not 7"),
        ("RegionLoss", V2 % "coords: 5", [(1, 16, 3, 4), (1, 1, 5, 5)], "coords must be 4"),
        ("RegionLoss", V2 % "biases: 1 biases: 1", [(1, 16, 3, 4), (1, 1, 5, 5)], "must be of num = 2 anchors"),
        ("YoloDetectionOutput", "", [(1, 125, 3, 3)], "biases must be widths and heights"),
        (
            "Yolov3DetectionOutput",
            OUTPUT.format(limit=0.5),
            [(1, 16, 3, 4)] * 2,
            "mask_group_num is 1, but there are 2",
        ),
        (
            "Yolov3DetectionOutput",
            OUTPUT.format(limit=0.5).replace("num_box", "gaussian_box: true num_box"),
            [(1, 16, 3, 4)],
            "gaussian_box",
        ),
        ("YoloSeg", "", [(1, 2, 3, 4), (1, 2, 3, 5)], "a label for each number"),
        ("SegmentationEvaluate", "", [(1, 2, 3, 4), (1, 3, 3, 4)], "probabilities and labels"),
    ],
)
def test_refusals(kind: str, text: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net(kind, text, shapes), "TRAIN")
