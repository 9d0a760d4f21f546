"""Tests of RegionLoss and Yolov3."""

from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text
from layer_suite import BATCH, Case, fork_properties, layer_case, recorded
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

YOLOV3_SETTINGS = f"num_class: 2 num: 2 anchors_scale: 32 mask: 1 mask: 2 coord_scale: 0.1 {LARGE_ANCHORS}"


def loss_case(layer_type: str, param: str, channels: int, name: str = "") -> Case:
    return layer_case(
        layer_type,
        param,
        (BATCH, channels, 3, 4),
        (BATCH, 1, 5, 5),
        name=name,
        samplers={"b0": draw_small_numbers, "b1": draw_labels},
    )


test_recorded = recorded("RegionLoss", "Yolov3", family="yolo")
test_properties = fork_properties(
    loss_case(
        "RegionLoss", f"region_loss_param {{ num_class: 2 num: 2 coord_scale: 0.1 thresh: 0.6 {SMALL_ANCHORS} }}", 14
    ),
    loss_case(
        "RegionLoss",
        f"region_loss_param {{ num_class: 2 num: 2 rescore: 0 bias_match: 0 coord_scale: 0.1 {SMALL_ANCHORS} }}",
        14,
        "match",
    ),
    loss_case("Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} }}", 14),
    loss_case(
        "Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} use_focal_loss: true use_logic_gradient: true }}", 14, "focal"
    ),
    *(
        loss_case("Yolov3", f"yolov3_param {{ {YOLOV3_SETTINGS} iou_loss: {kind} }}", 14, kind)
        for kind in ("IOU", "GIOU", "DIOU", "CIOU")
    ),
)


YOLOV3_PARAM = f"yolov3_param {{ num_class: 3 num: 2 anchors_scale: 32 mask: 0 mask: 2 coord_scale: 2 {BIASES} %s }}"

REGION_LOSS_PARAM = (
    "region_loss_param { num_class: 3 num: 2 coord_scale: 2 biases: 0.4 biases: 0.5 biases: 2 biases: 3 %s }"
)

# two boxes of one cell and anchor, another of the other anchor, one after the end
LABELS = np.array(
    [[1, 0.42, 0.35, 0.7, 0.9], [2, 0.44, 0.36, 0.6, 0.8], [0, 0.9, 0.9, 0.1, 0.12], [0] * 5, [1, 0.1, 0.1, 0.5, 0.5]]
)


def compute_loss_and_gradient(
    layer_type: str, text: str, x: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    model = Net(net_text(layer_type, text, [x.shape, labels.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return model.apply({}, {}, {"b0": x, "b1": np.float32(labels)}, blobs=["t0"])[0]["t0"]

    result, gradient = jax.jit(jax.value_and_grad(loss))(np.float32(x))
    return float(result), np.asarray(gradient)


def compute_edges(box: Any) -> np.ndarray:
    return np.array([box[:2] - box[2:] / 2, box[:2] + box[2:] / 2])


def compute_overlap(iou_type: str, a: np.ndarray, b: np.ndarray) -> float:
    (low, high), (low_b, high_b) = compute_edges(a), compute_edges(b)
    hull = np.maximum(high, high_b) - np.minimum(low, low_b)
    union = (np.prod(a[2:]) + np.prod(b[2:])) / (1 + compute_iou(a, b))
    center_distance = np.sum((a - b)[:2] ** 2) / np.sum(hull**2)
    aspect_difference = 4 / np.pi**2 * (np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])) ** 2
    penalties = {
        "GIOU": 1 - union / np.prod(hull),
        "DIOU": center_distance**0.6,
        "CIOU": center_distance + aspect_difference**2 / (1 - compute_iou(a, b) + aspect_difference + 1e-6),
    }
    return compute_iou(a, b) - float(penalties.get(iou_type, 0))


def compute_slopes(iou_type: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the fork's derivatives by x, y, width and height, computed edge by edge."""
    (low, high), (low_b, high_b) = compute_edges(a), compute_edges(b)
    intersection_sides, hull = (
        np.minimum(high, high_b) - np.maximum(low, low_b),
        np.maximum(high, high_b) - np.minimum(low, low_b),
    )
    intersection, hull_area = np.prod(intersection_sides), np.prod(hull)
    union = np.prod(a[2:]) + np.prod(b[2:]) - intersection
    edge_slopes = np.zeros((2, 2))  # low and high, along x and y
    for axis, end in np.ndindex(2, 2):
        other_axis, sign = 1 - axis, 2 * end - 1
        is_inner = high[axis] < high_b[axis] if end else low[axis] > low_b[axis]
        d_intersection = sign * intersection_sides[other_axis] if is_inner else 0
        d_union = sign * a[2 + other_axis] - d_intersection
        d_hull_area = 0 if is_inner else sign * hull[other_axis]
        if iou_type in ("IOU", "MSE") or min(intersection_sides) > 0:
            edge_slopes[end, axis] = (union * d_intersection - intersection * d_union) / union**2
        if iou_type == "GIOU":
            edge_slopes[end, axis] += (hull_area * d_union - union * d_hull_area) / hull_area**2
    result = np.array([*edge_slopes.sum(0), *(edge_slopes[1] - edge_slopes[0])])
    if iou_type in ("DIOU", "CIOU"):
        c, s = np.sum(hull**2), np.sum((a - b)[:2] ** 2)
        extends = np.array([low < low_b, high > high_b], float)
        result[:2] += (2 * (b - a)[:2] * c - 2 * hull * (extends[1] - extends[0]) * s) / c**2
        result[2:] += 2 * hull * (extends[0] + extends[1]) / 2 * s / c**2
    if iou_type == "CIOU":
        angle_difference = np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])
        aspect_difference = 4 / np.pi**2 * angle_difference**2
        weight = aspect_difference / (1 - intersection / union + aspect_difference + 1e-6)
        result[2:] += weight * 8 / np.pi**2 * angle_difference * np.array([a[3], -a[2]])
    return result


def assign_anchors(iou_type: str, box: np.ndarray, mask: list[int], iou_threshold: float) -> list[int]:
    """Return the positions in the mask of the anchors assigned to a box; some may occur twice."""
    overlaps = [
        compute_overlap(iou_type, np.array([0, 0, *a / (32 * np.array([4, 3]))]), np.array([0, 0, *box[2:]]))
        for a in ANCHORS
    ]
    best = mask.index(k) if (k := int(np.argmax(overlaps))) in mask else None
    anchor_index = k if best is None else best  # the fork compares numbers of anchors with the place in the mask
    other_anchors = [mask.index(n) for n in range(3) if n in mask and n != anchor_index and overlaps[n] > iou_threshold]
    return other_anchors if best is None else [best, *other_anchors]


@pytest.mark.parametrize(
    ("iou_type", "mask", "fields"),
    [
        ("MSE", [0, 2], "accumulate: true"),
        ("MSE", [1, 2], "accumulate: false use_focal_loss: true"),
        ("IOU", [0, 2], "use_logic_gradient: true object_scale: 3"),
        ("GIOU", [1, 2], "use_focal_loss: true"),
        ("GIOU", [0, 1], "accumulate: false iou_normalizer: 2"),
        ("DIOU", [1, 2], "max_delta: 0.1"),
        ("CIOU", [0, 2], ""),
        ("CIOU", [1, 2], "iou_thresh: 1"),
    ],
)
def test_yolov3_loss_of_boxes_in_one_cell_equals_loops(
    x: np.ndarray, iou_type: str, mask: list[int], fields: str
) -> None:
    iou_threshold, fields = (1.0, "") if fields == "iou_thresh: 1" else (0.3, fields)
    masks = " ".join(f"mask: {m}" for m in mask)
    text = (
        YOLOV3_PARAM.replace("mask: 0 mask: 2", masks)
        % f"iou_thresh: {iou_threshold} class_scale: 2 iou_loss: {iou_type} {fields}"
    )
    loss, gradient = compute_loss_and_gradient("Yolov3", text, x, LABELS[None, None])

    d = np.zeros((2, 8, 3, 4))
    raw = x.reshape(d.shape)
    s = sigmoid(raw)
    boxes = {}
    for n, j, i in np.ndindex(2, 3, 4):
        size = np.exp(raw[n, 2:4, j, i]) * ANCHORS[mask[n]] / (32 * np.array([4, 3]))
        box = boxes[n, j, i] = np.array([(i + s[n, 0, j, i]) / 4, (j + s[n, 1, j, i]) / 3, *size])
        d[n, 4, j, i] = 0 if max(compute_overlap(iou_type, box, t[1:]) for t in LABELS[:3]) > 0.2 else s[n, 4, j, i]
    normalizer, box_losses = 2 if "normalizer" in fields else 0.25, []
    for label, *values in LABELS[:3]:
        box = np.array(values)
        i, j, c = int(box[0] * 4), int(box[1] * 3), int(label)
        for n in assign_anchors(iou_type, box, mask, iou_threshold):
            cell, cell_diff, pred = s[n, :, j, i], d[n, :, j, i], boxes[n, j, i]
            if iou_type == "MSE":
                logs = np.log(np.array(box[2:]) * 32 * [4, 3] / ANCHORS[mask[n]])
                differences = np.array([*(cell[:2] - [box[0] * 4 - i, box[1] * 3 - j]), *(raw[n, 2:4, j, i] - logs)])
                cell_diff[:4] = 2 * (2 - box[2] * box[3]) * differences
            else:
                slope = normalizer * compute_slopes(iou_type, pred, box) * [1, 1, *np.exp(raw[n, 2:4, j, i])]
                limit = 0.1 if "max_delta" in fields else 10
                cell_diff[:4] = cell_diff[:4] * ("accumulate: false" not in fields) - np.clip(slope, -limit, limit)
                box_losses.append(1 - compute_overlap("DIOU" if iou_type == "IOU" else iou_type, pred, box))
            cell_diff[4] = (cell[4] - 1) * (3 if "object_scale" in fields else 1)
            if np.any(cell_diff[5:]):
                cell_diff[5 + c] = 2 * (cell[5 + c] - 0.95)
            elif "focal" in fields:
                p = cell[5 + c]
                cell_diff[5:] = 2 * (cell[5:] - np.eye(3)[c]) * 0.5 * -(1 - p) * (2 * p * np.log(p) + p - 1)
            else:
                cell_diff[5:] = 2 * (cell[5:] - np.where(np.eye(3)[c], 0.95, 0.05))
    assert np.any(d[:, 5])
    expected = np.sum((d if iou_type == "MSE" else d[:, 4:]) ** 2) + (
        normalizer * np.mean(box_losses) if box_losses else 0
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    if "logic" in fields:  # the fork has written the raw coordinates over their sigmoids by then
        outputs = np.concatenate([raw[:, :2], s[:, 2:]], axis=1)
        d[:, [0, 1, 4, 5, 6, 7]] *= (outputs * (1 - outputs))[:, [0, 1, 4, 5, 6, 7]]
    np.testing.assert_allclose(gradient.reshape(d.shape), d, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rescore", [0, 1])
@pytest.mark.parametrize("bias_match", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_region_loss_equals_loops(rescore: int, bias_match: int, seed: int) -> None:
    """YOLOv2's differences, computed cell by cell, then label by label, with random weights and threshold."""
    rng, num_images, side, num_classes = np.random.default_rng(seed), 2, 4, 3
    names = ("object_scale", "noobject_scale", "class_scale", "coord_scale", "thresh")
    object_scale, noobject_scale, class_scale, coord_scale, thresh = factors = [
        *rng.uniform(0.5, 3, 4),
        rng.uniform(0.1, 0.6),
    ]
    anchors = rng.uniform(0.5, 4, (5, 2))
    x = rng.normal(size=(num_images, 5 * (5 + num_classes), side, side)).astype(np.float32).astype(np.float64)
    labels = np.zeros((num_images, 1, 300, 5))
    for rows in labels[:, 0]:
        rows[: rng.integers(1, 5)] = [rng.integers(num_classes), *rng.uniform(0.1, 0.9, 2), *rng.uniform(0.1, 0.8, 2)]
        rows[1:4, 1:] *= rng.uniform(0.5, 1, (3, 4))
    raw = x.reshape(num_images, 5, 5 + num_classes, side, side)
    d = np.zeros_like(raw)
    for image, rows in enumerate(np.float32(labels[:, 0]).astype(np.float64)):
        truths = rows[: np.argmin(rows[:, 3])]

        def decode_box(n: int, j: int, i: int, image: int = image) -> np.ndarray:
            t = raw[image, n, :, j, i]
            return np.array([i + sigmoid(t[0]), j + sigmoid(t[1]), *(np.exp(t[2:4]) * anchors[n])]) / side

        for n, j, i in np.ndindex(5, side, side):
            objectness = sigmoid(raw[image, n, 4, j, i])
            if max(compute_iou(decode_box(n, j, i), truth[1:]) for truth in truths) <= thresh:
                d[image, n, 4, j, i] = noobject_scale * objectness**2 * (1 - objectness)
        for truth in truths:
            i, j = (truth[1:3] * side).astype(int)
            shapes = [anchors[n] / side if bias_match else decode_box(n, j, i)[2:] for n in range(5)]
            n = int(np.argmax([compute_iou(np.array([0, 0, *s]), np.array([0, 0, *truth[3:]])) for s in shapes]))
            t, cell_diff = raw[image, n, :, j, i], d[image, n, :, j, i]
            sigmoid_xy, objectness = sigmoid(t[:2]), sigmoid(t[4])
            weight = coord_scale * (1 if rescore else 2 - truth[3] * truth[4])
            cell_diff[:2] = weight * (sigmoid_xy - (truth[1:3] * side - [i, j])) * sigmoid_xy * (1 - sigmoid_xy)
            cell_diff[2:4] = weight * (t[2:4] - np.log(truth[3:] * side / anchors[n]))
            target = compute_iou(decode_box(n, j, i), truth[1:]) if rescore else 1
            cell_diff[4] = object_scale * (objectness - target) * objectness * (1 - objectness)
            cell_diff[5:] = class_scale * (np.exp(t[5:]) / np.exp(t[5:]).sum() - np.eye(num_classes)[int(truth[0])])
    text = " ".join(f"{name}: {value}" for name, value in zip(names, factors, strict=True))
    text += f" rescore: {rescore} bias_match: {bias_match} " + " ".join(f"biases: {a}" for a in anchors.ravel())
    text = f"region_loss_param {{ num_class: {num_classes} num: 5 {text} }}"
    loss, gradient = compute_loss_and_gradient("RegionLoss", text, x, labels)
    np.testing.assert_allclose(loss, np.sum(d**2) / num_images, rtol=1e-5)
    np.testing.assert_allclose(gradient, d.reshape(x.shape) / num_images, rtol=1e-4, atol=1e-6)


def test_last_box_of_a_cell_determines_the_region_loss_gradient(x: np.ndarray) -> None:
    """If two boxes are in one cell, the gradient is that of the last one alone."""
    _, both_gradient = compute_loss_and_gradient(
        "RegionLoss", REGION_LOSS_PARAM % "thresh: 1", x, LABELS[None, None, :2]
    )
    _, last_gradient = compute_loss_and_gradient(
        "RegionLoss", REGION_LOSS_PARAM % "thresh: 1", x, LABELS[None, None, 1:2]
    )
    np.testing.assert_array_equal(both_gradient, last_gradient)
    _, first_gradient = compute_loss_and_gradient(
        "RegionLoss", REGION_LOSS_PARAM % "thresh: 1", x, LABELS[None, None, :1]
    )
    assert np.any(both_gradient != first_gradient)


@pytest.mark.parametrize(
    ("layer_type", "text"), [("Yolov3", YOLOV3_PARAM % ""), ("RegionLoss", REGION_LOSS_PARAM % "")]
)
def test_labels_after_the_end_of_a_list_are_ignored(x: np.ndarray, layer_type: str, text: str) -> None:
    for a, b in zip(
        *(compute_loss_and_gradient(layer_type, text, x, LABELS[None, None, :n]) for n in (3, 5)), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize(
    ("layer_type", "text"), [("Yolov3", YOLOV3_PARAM % ""), ("RegionLoss", REGION_LOSS_PARAM % "")]
)
def test_label_out_of_range_makes_the_yolo_loss_nan(x: np.ndarray, layer_type: str, text: str, label: int) -> None:
    invalid_labels = LABELS.copy()
    invalid_labels[1, 0] = label
    assert np.isnan(compute_loss_and_gradient(layer_type, text, x, invalid_labels[None, None])[0])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        ("Yolov3", YOLOV3_PARAM % "", [(1, 15, 3, 4), (1, 1, 5, 5)], "must have 16 channels"),
        ("Yolov3", YOLOV3_PARAM % "", [(1, 16, 3, 4), (1, 1, 5, 6)], "rows of class, x, y, width and height"),
        ("Yolov3", YOLOV3_PARAM % "mask: 1", [(1, 16, 3, 4), (1, 1, 5, 5)], "must have num = 2 distinct anchors"),
        (
            "Yolov3",
            (YOLOV3_PARAM % "").replace("mask: 2", "mask: 3"),
            [(1, 16, 3, 4), (1, 1, 5, 5)],
            "must have indices from 0 to 2",
        ),
        ("Yolov3", YOLOV3_PARAM % "biases: 3", [(1, 16, 3, 4), (1, 1, 5, 5)], "pairs of width and height, not 7"),
        ("RegionLoss", REGION_LOSS_PARAM % "coords: 5", [(1, 16, 3, 4), (1, 1, 5, 5)], "coords must be 4"),
        (
            "RegionLoss",
            REGION_LOSS_PARAM % "biases: 1 biases: 1",
            [(1, 16, 3, 4), (1, 1, 5, 5)],
            "must have num = 2 anchors",
        ),
    ],
)
def test_invalid_settings_and_shapes_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=message):
        Net(net_text(layer_type, text, shapes), "TRAIN")
