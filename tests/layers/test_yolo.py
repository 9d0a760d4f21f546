"""YOLO's layers against loops over cells and boxes; what ends a list of labels; what they refuse."""

from typing import Any

import jax
import numpy as np
import pytest
from layer_nets import net_text

from caffejax import Net
from caffejax.errors import CaffejaxError
from caffejax.layers.row_padding import strip_padding

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
    model = Net(net_text(kind, text, [x.shape, labels.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return model.apply({}, {}, {"b0": x, "b1": np.float32(labels)}, blobs=["t0"])[0]["t0"]

    result, gradient = jax.jit(jax.value_and_grad(loss))(np.float32(x))
    return float(result), np.asarray(gradient)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 16, 3, 4))


def edges(box: Any) -> np.ndarray:
    return np.array([box[:2] - box[2:] / 2, box[:2] + box[2:] / 2])


def measure(kind: str, a: np.ndarray, b: np.ndarray) -> float:
    (low, high), (low_b, high_b) = edges(a), edges(b)
    hull = np.maximum(high, high_b) - np.minimum(low, low_b)
    union = (np.prod(a[2:]) + np.prod(b[2:])) / (1 + iou(a, b))
    far = np.sum((a - b)[:2] ** 2) / np.sum(hull**2)
    unlike = 4 / np.pi**2 * (np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])) ** 2
    less = {
        "GIOU": 1 - union / np.prod(hull),
        "DIOU": far**0.6,
        "CIOU": far + unlike**2 / (1 - iou(a, b) + unlike + 1e-6),
    }
    return iou(a, b) - float(less.get(kind, 0))


def slopes(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The fork's slopes by x, y, width and height, edge by edge."""
    (low, high), (low_b, high_b) = edges(a), edges(b)
    shared, hull = np.minimum(high, high_b) - np.maximum(low, low_b), np.maximum(high, high_b) - np.minimum(low, low_b)
    inside, around = np.prod(shared), np.prod(hull)
    union = np.prod(a[2:]) + np.prod(b[2:]) - inside
    by_edge = np.zeros((2, 2))  # low and high, along x and y
    for axis, end in np.ndindex(2, 2):
        other, sign = 1 - axis, 2 * end - 1
        inner = high[axis] < high_b[axis] if end else low[axis] > low_b[axis]
        d_inside = sign * shared[other] if inner else 0
        d_union = sign * a[2 + other] - d_inside
        d_around = 0 if inner else sign * hull[other]
        if kind in ("IOU", "MSE") or min(shared) > 0:
            by_edge[end, axis] = (union * d_inside - inside * d_union) / union**2
        if kind == "GIOU":
            by_edge[end, axis] += (around * d_union - union * d_around) / around**2
    result = np.array([*by_edge.sum(0), *(by_edge[1] - by_edge[0])])
    if kind in ("DIOU", "CIOU"):
        c, s = np.sum(hull**2), np.sum((a - b)[:2] ** 2)
        reach = np.array([low < low_b, high > high_b], float)
        result[:2] += (2 * (b - a)[:2] * c - 2 * hull * (reach[1] - reach[0]) * s) / c**2
        result[2:] += 2 * hull * (reach[0] + reach[1]) / 2 * s / c**2
    if kind == "CIOU":
        turn = np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])
        unlike = 4 / np.pi**2 * turn**2
        weight = unlike / (1 - inside / union + unlike + 1e-6)
        result[2:] += weight * 8 / np.pi**2 * turn * np.array([a[3], -a[2]])
    return result


def assignments(kind: str, box: np.ndarray, mask: list[int], least: float) -> list[int]:
    """The places in the mask of the anchors that a box is assigned to, some of them twice."""
    fits = [measure(kind, np.array([0, 0, *a / (32 * np.array([4, 3]))]), np.array([0, 0, *box[2:]])) for a in ANCHORS]
    best = mask.index(k) if (k := int(np.argmax(fits))) in mask else None
    number = k if best is None else best  # the fork compares numbers of anchors with the place in the mask
    other_anchors = [mask.index(n) for n in range(3) if n in mask and n != number and fits[n] > least]
    return other_anchors if best is None else [best, *other_anchors]


@pytest.mark.parametrize(
    ("kind", "mask", "fields"),
    [
        ("MSE", [0, 2], "accumulate: true"),
        ("MSE", [1, 2], "accumulate: false use_focal_loss: true"),
        ("IOU", [0, 2], "use_logic_gradient: true object_scale: 3"),
        ("GIOU", [1, 2], "use_focal_loss: true"),
        ("GIOU", [0, 1], "accumulate: false iou_normalizer: 2"),
        ("DIOU", [1, 2], "max_delta: 0.1"),
        ("CIOU", [0, 2], ""),
        ("CIOU", [1, 2], "least: 1"),
    ],
)
def test_yolov3_of_boxes_that_share_a_cell(x: np.ndarray, kind: str, mask: list[int], fields: str) -> None:
    least, fields = (1.0, "") if fields == "least: 1" else (0.3, fields)
    masks = " ".join(f"mask: {m}" for m in mask)
    text = V3.replace("mask: 0 mask: 2", masks) % f"iou_thresh: {least} class_scale: 2 iou_loss: {kind} {fields}"
    loss, gradient = loss_and_gradient("Yolov3", text, x, LABELS[None, None])

    d = np.zeros((2, 8, 3, 4))
    raw = x.reshape(d.shape)
    s = sigmoid(raw)
    boxes = {}
    for n, j, i in np.ndindex(2, 3, 4):
        size = np.exp(raw[n, 2:4, j, i]) * ANCHORS[mask[n]] / (32 * np.array([4, 3]))
        box = boxes[n, j, i] = np.array([(i + s[n, 0, j, i]) / 4, (j + s[n, 1, j, i]) / 3, *size])
        d[n, 4, j, i] = 0 if max(measure(kind, box, t[1:]) for t in LABELS[:3]) > 0.2 else s[n, 4, j, i]
    normalizer, box_losses = 2 if "normalizer" in fields else 0.25, []
    for label, *values in LABELS[:3]:
        box = np.array(values)
        i, j, c = int(box[0] * 4), int(box[1] * 3), int(label)
        for n in assignments(kind, box, mask, least):
            cell, out, pred = s[n, :, j, i], d[n, :, j, i], boxes[n, j, i]
            if kind == "MSE":
                logs = np.log(np.array(box[2:]) * 32 * [4, 3] / ANCHORS[mask[n]])
                wrong = np.array([*(cell[:2] - [box[0] * 4 - i, box[1] * 3 - j]), *(raw[n, 2:4, j, i] - logs)])
                out[:4] = 2 * (2 - box[2] * box[3]) * wrong
            else:
                slope = normalizer * slopes(kind, pred, box) * [1, 1, *np.exp(raw[n, 2:4, j, i])]
                limit = 0.1 if "max_delta" in fields else 10
                out[:4] = out[:4] * ("accumulate: false" not in fields) - np.clip(slope, -limit, limit)
                box_losses.append(1 - measure("DIOU" if kind == "IOU" else kind, pred, box))
            out[4] = (cell[4] - 1) * (3 if "object_scale" in fields else 1)
            if np.any(out[5:]):
                out[5 + c] = 2 * (cell[5 + c] - 0.95)
            elif "focal" in fields:
                p = cell[5 + c]
                out[5:] = 2 * (cell[5:] - np.eye(3)[c]) * 0.5 * -(1 - p) * (2 * p * np.log(p) + p - 1)
            else:
                out[5:] = 2 * (cell[5:] - np.where(np.eye(3)[c], 0.95, 0.05))
    assert np.any(d[:, 5])
    expected = np.sum((d if kind == "MSE" else d[:, 4:]) ** 2) + (normalizer * np.mean(box_losses) if box_losses else 0)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    if "logic" in fields:  # the fork has written the raw coordinates over their sigmoids by then
        at = np.concatenate([raw[:, :2], s[:, 2:]], axis=1)
        d[:, [0, 1, 4, 5, 6, 7]] *= (at * (1 - at))[:, [0, 1, 4, 5, 6, 7]]
    np.testing.assert_allclose(gradient.reshape(d.shape), d, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rescore", [0, 1])
@pytest.mark.parametrize("bias_match", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_region_loss_by_loops(rescore: int, bias_match: int, seed: int) -> None:
    """YOLOv2's differences cell by cell, then label by label; weights and threshold are drawn."""
    draw, images, side, classes = np.random.default_rng(seed), 2, 4, 3
    names = ("object_scale", "noobject_scale", "class_scale", "coord_scale", "thresh")
    of_object, of_rest, of_class, of_box, limit = factors = [*draw.uniform(0.5, 3, 4), draw.uniform(0.1, 0.6)]
    anchors = draw.uniform(0.5, 4, (5, 2))
    x = draw.normal(size=(images, 5 * (5 + classes), side, side)).astype(np.float32).astype(np.float64)
    labels = np.zeros((images, 1, 300, 5))
    for rows in labels[:, 0]:
        rows[: draw.integers(1, 5)] = [draw.integers(classes), *draw.uniform(0.1, 0.9, 2), *draw.uniform(0.1, 0.8, 2)]
        rows[1:4, 1:] *= draw.uniform(0.5, 1, (3, 4))
    raw = x.reshape(images, 5, 5 + classes, side, side)
    d = np.zeros_like(raw)
    for image, rows in enumerate(np.float32(labels[:, 0]).astype(np.float64)):
        truths = rows[: np.argmin(rows[:, 3])]

        def box(n: int, j: int, i: int, image: int = image) -> np.ndarray:
            t = raw[image, n, :, j, i]
            return np.array([i + sigmoid(t[0]), j + sigmoid(t[1]), *(np.exp(t[2:4]) * anchors[n])]) / side

        for n, j, i in np.ndindex(5, side, side):
            object_ = sigmoid(raw[image, n, 4, j, i])
            if max(iou(box(n, j, i), truth[1:]) for truth in truths) <= limit:
                d[image, n, 4, j, i] = of_rest * object_**2 * (1 - object_)
        for truth in truths:
            i, j = (truth[1:3] * side).astype(int)
            shapes = [anchors[n] / side if bias_match else box(n, j, i)[2:] for n in range(5)]
            n = int(np.argmax([iou(np.array([0, 0, *s]), np.array([0, 0, *truth[3:]])) for s in shapes]))
            t, out = raw[image, n, :, j, i], d[image, n, :, j, i]
            at, object_ = sigmoid(t[:2]), sigmoid(t[4])
            weight = of_box * (1 if rescore else 2 - truth[3] * truth[4])
            out[:2] = weight * (at - (truth[1:3] * side - [i, j])) * at * (1 - at)
            out[2:4] = weight * (t[2:4] - np.log(truth[3:] * side / anchors[n]))
            goal = iou(box(n, j, i), truth[1:]) if rescore else 1
            out[4] = of_object * (object_ - goal) * object_ * (1 - object_)
            out[5:] = of_class * (np.exp(t[5:]) / np.exp(t[5:]).sum() - np.eye(classes)[int(truth[0])])
    text = " ".join(f"{name}: {value}" for name, value in zip(names, factors, strict=True))
    text += f" rescore: {rescore} bias_match: {bias_match} " + " ".join(f"biases: {a}" for a in anchors.ravel())
    text = f"region_loss_param {{ num_class: {classes} num: 5 {text} }}"
    loss, gradient = loss_and_gradient("RegionLoss", text, x, labels)
    np.testing.assert_allclose(loss, np.sum(d**2) / images, rtol=1e-5)
    np.testing.assert_allclose(gradient, d.reshape(x.shape) / images, rtol=1e-4, atol=1e-6)


def test_region_loss_of_boxes_that_share_a_cell(x: np.ndarray) -> None:
    """The last one has it."""
    _, both = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, :2])
    _, last = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, 1:2])
    np.testing.assert_array_equal(both, last)
    _, first = loss_and_gradient("RegionLoss", V2 % "thresh: 1", x, LABELS[None, None, :1])
    assert np.any(both != first)


@pytest.mark.parametrize(("kind", "text"), [("Yolov3", V3 % ""), ("RegionLoss", V2 % "")])
def test_labels_after_the_end_of_a_list_are_ignored(x: np.ndarray, kind: str, text: str) -> None:
    for a, b in zip(*(loss_and_gradient(kind, text, x, LABELS[None, None, :n]) for n in (3, 5)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize(("kind", "text"), [("Yolov3", V3 % ""), ("RegionLoss", V2 % "")])
def test_a_box_without_a_class_is_background(x: np.ndarray, kind: str, text: str, label: int) -> None:
    invalid_labels = LABELS.copy()
    invalid_labels[1, 0] = label
    assert np.isnan(loss_and_gradient(kind, text, x, invalid_labels[None, None])[0])


def test_reorg_is_darknets_loop() -> None:
    s, (channels, height, width) = 2, (8, 4, 6)
    x = np.arange(channels * height * width, dtype=np.float32)
    expected = np.zeros_like(x)
    few = channels // s**2
    for k, j, i in np.ndindex(channels, height, width):
        row, column = j * s + k // few // s, i * s + k // few % s
        expected[i + width * (j + height * k)] = x[column + width * s * (row + height * s * (k % few))]
    model = Net(net_text("Reorg", "reorg_param { stride: 2 }", [(1, channels, height, width)]))
    top = model.forward({}, {}, {"b0": x.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(top.ravel(), expected)
    back = Net(net_text("Reorg", "reorg_param { stride: 2 reverse: true }", [(1, channels, height, width)]))
    again = back.forward({}, {}, {"b0": top.reshape(1, channels, height, width)})[0]["t0"]
    np.testing.assert_array_equal(again.ravel(), x)


OUTPUT = (
    "yolov3_detection_output_param {{ num_classes: 3 num_box: 2 confidence_threshold: 0.3 nms_threshold: {limit} "
    f"mask_group_num: 1 mask: 0 mask: 2 anchors_scale: 32 {BIASES} }}}}"
)


def best_boxes(candidates: list[Any], limit: float) -> np.ndarray:
    kept: list[Any] = []
    for row in sorted(candidates, key=lambda r: -r[0]):
        if all(iou(row[2], k[2]) < limit for k in kept):
            kept.append(row)
    assert len(kept) > 3
    return np.array([[0, c + 1, score, *box[:2] - box[2:] / 2, *box[:2] + box[2:] / 2] for score, c, box in kept])


@pytest.mark.parametrize("limit", [0.4, 1.5])
def test_yolov3_detection_output(x: np.ndarray, limit: float) -> None:
    model = Net(net_text("Yolov3DetectionOutput", OUTPUT.format(limit=limit), [x.shape]), "TEST")
    result = strip_padding(model.apply({}, {}, {"b0": np.float32(x)}, blobs=["t0"])[0]["t0"])[0, 0]
    rows = []
    for n, j, i in np.ndindex(2, 3, 4):
        raw = x.reshape(2, 8, 3, 4)[n, :, j, i]
        s = sigmoid(raw)
        box = [(i + s[0]) / 4, (j + s[1]) / 3, *np.exp(raw[2:4]) * ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))]
        rows += [(s[4] * s[5 + c], c, np.array(box)) for c in range(3) if s[4] * s[5 + c] > 0.3]
    np.testing.assert_allclose(result, best_boxes(rows, limit), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limit", [0.4, 1.5])
def test_gaussian_yolov3_detection_output(limit: float) -> None:
    x = np.random.default_rng(1).normal(size=(1, 24, 3, 4)) * 2
    text = OUTPUT.format(limit=limit).replace("num_box", "gaussian_box: true num_box")
    model = Net(net_text("Yolov3DetectionOutput", text, [x.shape]), "TEST")
    result = strip_padding(model.apply({}, {}, {"b0": np.float32(x)}, blobs=["t0"])[0]["t0"])[0, 0]
    rows = []
    for n, j, i in np.ndindex(2, 3, 4):
        raw = x.reshape(2, 12, 3, 4)[n, :, j, i]
        s = sigmoid(raw)
        width, height = ANCHORS[[0, 2][n]] / (32 * np.array([4, 3]))
        box = [(i + s[0]) / 4, (j + s[2]) / 3, np.exp(raw[4]) * width, np.exp(raw[6]) * height]
        certain = 1 - (s[1] + s[3] + s[5] + s[7]) / 4
        rows += [(certain * s[8] * s[9 + c], c, np.array(box)) for c in range(3) if certain * s[8] * s[9 + c] > 0.3]
    np.testing.assert_allclose(result, best_boxes(rows, limit), rtol=1e-4, atol=1e-5)


def test_yolo_seg_weighs_classes_by_their_pixels() -> None:
    x, labels = np.zeros((1, 2, 1, 1)), np.ones((1, 2, 1, 1))
    model = Net(net_text("YoloSeg", "yolo_seg_param { object_scale: 2 }", [x.shape, x.shape, (1, 2)]), "TRAIN")
    pixels = np.array([[30.0, 10.0]])
    loss = model.forward({}, {}, {"b0": x, "b1": labels, "b2": pixels})[0]["t0"]
    np.testing.assert_allclose(loss, 1.25**2 + 1.75**2)  # (2 - share) * 2 * (1/2 - 1), squared


@pytest.mark.parametrize("grow", [1, 2])
def test_segmentation_evaluate(grow: int) -> None:
    x = np.array([[[[0.9, 0.9], [0.2, 0.2]], [[0.1, 0.1], [0.1, 0.1]]]], np.float32)
    labels = np.repeat(np.repeat(np.array([[[[1, 0], [1, 0]]] * 2], np.float32)[0][None], grow, 2), grow, 3)
    model = Net(net_text("SegmentationEvaluate", "", [x.shape, labels.shape]), "TEST")
    top = model.forward({}, {}, {"b0": x, "b1": labels})[0]["t0"]
    np.testing.assert_allclose(top, [[[[1 / 3, 0]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "text", "shapes", "message"),
    [
        ("Reorg", "", [(1, 4, 2, 2)], "reorg_param.stride must be 1 or more, not 0"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 4, 3, 2)], "height and width divisible by stride = 2"),
        ("Reorg", "reorg_param { stride: 2 }", [(1, 6, 2, 2)], "channels divisible by stride.2 = 4"),
        ("Reorg", "reorg_param { stride: 2 }", [(4, 4)], "4 axes"),
        ("Yolov3", V3 % "", [(1, 15, 3, 4), (1, 1, 5, 5)], "must have 16 channels"),
        ("Yolov3", V3 % "", [(1, 16, 3, 4), (1, 1, 5, 6)], "rows of class, x, y, width and height"),
        ("Yolov3", V3 % "mask: 1", [(1, 16, 3, 4), (1, 1, 5, 5)], "must have num = 2 distinct anchors"),
        (
            "Yolov3",
            (V3 % "").replace("mask: 2", "mask: 3"),
            [(1, 16, 3, 4), (1, 1, 5, 5)],
            "must have indices from 0 to 2",
        ),
        ("Yolov3", V3 % "biases: 3", [(1, 16, 3, 4), (1, 1, 5, 5)], "pairs of width and height, not 7"),
        ("RegionLoss", V2 % "coords: 5", [(1, 16, 3, 4), (1, 1, 5, 5)], "coords must be 4"),
        ("RegionLoss", V2 % "biases: 1 biases: 1", [(1, 16, 3, 4), (1, 1, 5, 5)], "must have num = 2 anchors"),
        ("YoloDetectionOutput", "", [(1, 125, 3, 3)], "biases must be pairs of width and height"),
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
            "24 channels",
        ),
        ("YoloSeg", "", [(1, 2, 3, 4), (1, 2, 3, 5)], "a label for each value"),
        ("SegmentationEvaluate", "", [(1, 2, 3, 4), (1, 3, 3, 4)], "probabilities and labels"),
    ],
)
def test_invalid_settings_and_shapes_are_refused(
    kind: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text(kind, text, shapes), "TRAIN")
