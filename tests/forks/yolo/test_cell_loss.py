"""Tests of caffe-yolo's DetectionLoss, beside the fork's rule in plain loops."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import Net
from caffejax.base.errors import CaffejaxError
from layer_nets import net_text, run_layer
from layer_suite import fork_properties, layer_case
from yolo.cases import compute_iou

SIDE, CLASSES, BOXES = 3, 2, 2
CELLS = SIDE * SIDE
SETTINGS = "side: 3 num_class: 2 num_object: 2 object_scale: 2 noobject_scale: 0.7 class_scale: 1.5 coord_scale: 3"
SHAPES = (2, CELLS * (CLASSES + 5 * BOXES)), (2, 7 * CELLS)


def draw_cell_labels(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw labels of cells in which half of the cells have an object."""
    n = shape[0]
    difficult, is_object = random.integers(0, 2, (2, n, CELLS))
    classes = np.where(is_object, random.integers(0, CLASSES, (n, CELLS)), -1)
    row, column = np.divmod(np.arange(CELLS), SIDE)
    centers = (np.stack([column, row], 1) + random.uniform(0.1, 0.9, (n, CELLS, 2))) / SIDE
    boxes = np.concatenate([centers, random.uniform(0.1, 0.5, (n, CELLS, 2))], 2) * is_object[..., None]
    return np.concatenate([difficult, is_object, classes, boxes.reshape(n, -1)], axis=1).astype(np.float32)


def loss_by_loops(
    x: np.ndarray, labels: np.ndarray, scales: tuple[float, ...], square: bool, from_cell: bool
) -> tuple[float, np.ndarray]:
    """Return the loss, and its gradient with respect to x."""
    object_scale, noobject_scale, class_scale, coord_scale = scales
    class_loss = noobj_loss = obj_loss = box_loss = 0.0
    count, diff = 0, np.zeros(x.shape)
    for image, label, d in zip(x, labels, diff, strict=True):
        for j in range(CELLS):
            for k in range(BOXES):
                i = (CLASSES + k) * CELLS + j
                noobj_loss += noobject_scale * image[i] ** 2
                d[i] = noobject_scale * image[i]
            if not label[CELLS + j]:
                continue
            count += 1
            for c in range(CLASSES):
                target = float(c == int(label[2 * CELLS + j]))
                class_loss += class_scale * (image[c * CELLS + j] - target) ** 2
                d[c * CELLS + j] = class_scale * (image[c * CELLS + j] - target)
            true_box = label[3 * CELLS + 4 * j :][:4].astype(float)
            best, best_iou, best_rmse = 0, 0.0, 20.0
            for k in range(BOXES):
                box = np.array([image[(CLASSES + BOXES + 4 * k + o) * CELLS + j] for o in range(4)], float)
                if from_cell:
                    box[:2] = (j % SIDE + box[0]) / SIDE, (j // SIDE + box[1]) / SIDE
                if square:
                    box[2:] **= 2
                iou, rmse = compute_iou(box, true_box), math.sqrt(((box - true_box) ** 2).sum())
                if best_iou > 0 or iou > 0:
                    if iou > best_iou:
                        best, best_iou = k, iou
                elif rmse < best_rmse:
                    best, best_rmse = k, rmse
            i = (CLASSES + best) * CELLS + j
            noobj_loss -= noobject_scale * image[i] ** 2
            obj_loss += object_scale * (image[i] - 1) ** 2
            d[i] = object_scale * (image[i] - best_iou)
            if from_cell:
                true_box[:2] = true_box[0] * SIDE - j % SIDE, true_box[1] * SIDE - j // SIDE
            if square:
                true_box[2:] = np.sqrt(true_box[2:])
            for o in range(4):
                i = (CLASSES + BOXES + 4 * best + o) * CELLS + j
                box_loss += coord_scale * (image[i] - true_box[o]) ** 2
                d[i] = coord_scale * (image[i] - true_box[o])
    loss = (class_loss + obj_loss + box_loss) / max(count, 1) + noobj_loss / (len(x) * CELLS * BOXES - count)
    return loss, diff / len(x)


def run_with_gradient(settings: str, x: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    net = Net(net_text("DetectionLoss", f"detection_loss_param {{ {settings} }}", [x.shape, labels.shape]), "TRAIN")

    def loss(x: Any) -> Any:
        return net.apply({}, {}, {"b0": x, "b1": labels}, blobs=["t0"])[0]["t0"]

    value, gradient = jax.value_and_grad(loss)(x)
    return float(value), np.asarray(gradient)


@pytest.mark.parametrize("square", [True, False])
@pytest.mark.parametrize("from_cell", [True, False])
def test_loss_and_gradient_equal_loops(square: bool, from_cell: bool) -> None:
    random = np.random.default_rng(3)
    x, labels = random.uniform(0.05, 0.9, SHAPES[0]).astype(np.float32), draw_cell_labels(random, SHAPES[1])
    x[1, 3 * CELLS :] += 30  # far boxes, which overlap no object
    settings = f"{SETTINGS} sqrt: {str(square).lower()} constriant: {str(from_cell).lower()}"
    value, gradient = run_with_gradient(settings, x, labels)
    expected, expected_gradient = loss_by_loops(x, labels, (2, 0.7, 1.5, 3), square, from_cell)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_defaults_are_the_forks() -> None:
    random = np.random.default_rng(4)
    x = random.uniform(0, 1, (1, 49 * 30)).astype(np.float32)
    text = "side: 7 num_class: 20 num_object: 2 object_scale: 1 noobject_scale: 0.5 class_scale: 1 coord_scale: 5"
    labels = np.zeros((1, 49 * 7), np.float32)
    labels[0, 60], labels[0, 147 + 44 : 147 + 48] = 1, 0.3
    results = [run_with_gradient(settings, x, labels)[0] for settings in ("", f"{text} sqrt: true constriant: false")]
    assert results[0] == results[1]


def test_batch_without_objects_and_unknown_labels() -> None:
    random = np.random.default_rng(5)
    x, labels = random.uniform(0, 1, SHAPES[0]).astype(np.float32), np.zeros(SHAPES[1], np.float32)
    value, gradient = run_with_gradient(SETTINGS, x, labels)
    expected, expected_gradient = loss_by_loops(x, labels, (2, 0.7, 1.5, 3), True, False)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5)
    for label in (-1, CLASSES):
        labels[0, CELLS], labels[0, 2 * CELLS] = 1, label
        assert math.isnan(run_with_gradient(SETTINGS, x, labels)[0])


test_properties = fork_properties(
    layer_case("DetectionLoss", f"detection_loss_param {{ {SETTINGS} }}", *SHAPES, samplers={"b1": draw_cell_labels})
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num_object: 0", "num_object must be positive, not 0"),
        ("side: 4 num_class: 2", "bottom 0 must have 12 values for each of 4 x 4 cells, not shape"),
        ("cls_num: 3 side: 4", "has settings of caffe-yolo, side, and of MS-CNN, cls_num; keep those of one fork"),
    ],
)
def test_wrong_settings_raise(settings: str, message: str) -> None:
    x, labels = (np.zeros(shape, np.float32) for shape in SHAPES)
    with pytest.raises(CaffejaxError, match=message):
        run_layer("DetectionLoss", f"detection_loss_param {{ {settings} }}", x, labels)
