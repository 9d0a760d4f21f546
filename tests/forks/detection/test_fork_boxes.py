"""PriorBoxClustered, EvalDetection and AssistedExcitation, which have no recorded cases, compared with plain NumPy."""

from typing import Any

import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer

Shape = tuple[int, ...]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("step", ["", "step: 7", "step_w: 5 step_h: 9 offset: 0.25"])
def test_prior_box_clustered_equals_loops(step: str, clip: bool) -> None:
    text = f"width: 9.4 width: 25 height: 15 height: 8 variance: 0.2 clip: {str(clip).lower()} {step}"
    (result,) = run_layer(
        "PriorBoxClustered", f"prior_box_param {{ {text} }}", np.zeros((2, 1, 3, 4)), np.zeros((2, 1, 30, 50))
    )
    step_w, step_h = {"": (50 / 4, 30 / 3), "step: 7": (7, 7)}.get(step, (5, 9))
    offset = 0.25 if "offset" in step else 0.5
    expected = []
    for row in range(3):
        for column in range(4):
            for w, h in ((9.4, 15), (25, 8)):
                x, y = (column + offset) * step_w, (row + offset) * step_h
                expected += [(x - w / 2) / 50, (y - h / 2) / 30, (x + w / 2) / 50, (y + h / 2) / 30]
    boxes = np.clip(expected, 0, 1) if clip else np.array(expected)
    assert result.shape == (1, 2, 96)
    np.testing.assert_allclose(result[0, 0], boxes, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(result[0, 1], np.float32(0.2))


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (2, 4, 5)])
def test_assisted_excitation_adds_the_mean_inside_boxes(shape: tuple[int, ...]) -> None:
    x, mean = np.zeros((2, 3, 4, 5)), np.arange(1, 41).reshape(2, 1, 4, 5)
    labels = np.zeros((2, 1, 3, 5))
    labels[0, 0, 0, 1:] = 0.5, 0.5, 0.4, 0.5  # columns 1.5 .. 3.5, rows 1 .. 3
    labels[0, 0, 2, 1:] = 0.5, 0.5, 1, 1  # after the end
    labels[1, 0, 0, 1:] = 0.99, 0.1, 0.001, 0.001  # one cell at least
    (result,) = run_layer("AssistedExcitation", "", x, labels, mean.reshape(shape))
    expected = np.zeros((2, 4, 5))
    expected[0, 1:3, 1:4] = mean[0, 0, 1:3, 1:4]
    expected[1, 0, 4] = mean[1, 0, 0, 4]
    np.testing.assert_array_equal(result, np.repeat(expected[:, None], 3, axis=1))


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


SIZE_FIELDS = "width: 2 height: 3"


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("PriorBoxClustered", "prior_box_param { }", [(1, 1, 2, 2)] * 2, "needs a width and a height"),
        (
            "PriorBoxClustered",
            "prior_box_param { width: 2 }",
            [(1, 1, 2, 2)] * 2,
            "width and height, not 1 and 0",
        ),
        ("PriorBoxClustered", "prior_box_param { width: 0 height: 1 }", [(1, 1, 2, 2)] * 2, "positive"),
        (
            "PriorBoxClustered",
            f"prior_box_param {{ {SIZE_FIELDS} min_size: 4 }}",
            [(1, 1, 2, 2)] * 2,
            "min_size is only for",
        ),
        ("PriorBoxClustered", f"prior_box_param {{ {SIZE_FIELDS} }}", [(1, 2), (1, 1, 2, 2)], "4 axes"),
        ("PriorBox", f"prior_box_param {{ min_size: 4 {SIZE_FIELDS} }}", [(1, 1, 2, 2)] * 2, "openvino"),
        ("AssistedExcitation", "", [(2, 3, 4, 5), (2, 1, 3, 5), (2, 3, 4, 5)], "one channel"),
        ("AssistedExcitation", "", [(2, 3, 4, 5), (2, 1, 3, 4), (2, 1, 4, 5)], "rows of class"),
        ("EvalDetection", "eval_detection_param { side: 0 }", [(2, 4), (2, 4)], "side must be positive"),
        ("EvalDetection", "eval_detection_param { side: 2 }", [(2, 4), (2, 4)], "bottom 0 must have 30 values"),
        ("EvalDetection", "eval_detection_param { biases: 1 biases: 2 }", [(2, 25, 7, 7), (2, 5)], "2 anchors, not 2"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
