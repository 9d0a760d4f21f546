"""Tests of DetectionEvaluate."""

from pathlib import Path

import numpy as np
import pytest

from caffejax import Net
from detection.cases import NUM_CLASSES, draw_boxes, draw_truth
from layer_nets import net_text, run_layer
from layer_suite import fork_properties, layer_case, recorded


def draw_detections(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    n = shape[2]
    columns = [np.arange(n) // 4, random.integers(1, NUM_CLASSES, n), random.uniform(0, 1, n), *draw_boxes(random, n).T]
    return np.stack(columns, axis=1)[None, None]


test_recorded = recorded("DetectionEvaluate", family="detection")
test_properties = fork_properties(
    layer_case(
        "DetectionEvaluate",
        f"detection_evaluate_param {{ num_classes: {NUM_CLASSES} }}",
        (1, 1, 12, 7),
        (1, 1, 9, 8),
        phase="TEST",
        samplers={"b0": draw_detections, "b1": draw_truth},
    ),
)


RECORDED = Path(__file__).parent / "recorded"

RESIZE = "resize_param {{ resize_mode: {} height: 100 width: 100 {} }}"


def test_padding_rows_do_not_affect_the_evaluation() -> None:
    text = net_text("DetectionEvaluate", "detection_evaluate_param { num_classes: 4 }", [(1, 1, 11, 7), (1, 1, 5, 8)])
    recorded = np.load(RECORDED / "DetectionEvaluate" / "basic.npz")
    padding = np.full((1, 1, 9, 7), -1, np.float32)
    result = np.concatenate([recorded["bottom/detection"], padding], axis=2)
    tops, _ = Net(text, "TEST").apply({}, {}, {"b0": result, "b1": recorded["bottom/label"]})
    np.testing.assert_allclose(tops["t0"], recorded["top/top"])


@pytest.mark.parametrize("mode", ["", "WARP", "FIT_SMALL_SIZE", "units", "FIT_LARGE_SIZE_AND_PAD"])
@pytest.mark.parametrize("size", [(40, 80), (90, 30)])
def test_evaluation_maps_boxes_to_the_original_images(tmp_path: Path, mode: str, size: tuple[int, int]) -> None:
    """DetectionEvaluate measures boxes in pixels of the images before resizing, by SSD's rules."""
    (tmp_path / "sizes.txt").write_text(f"image {size[0]} {size[1]}\n")
    resize = RESIZE.format(mode, "") if mode else ""
    if mode == "units":
        resize = RESIZE.format("FIT_SMALL_SIZE", "height_scale: 30 width_scale: 70")
    random = np.random.default_rng(0)
    boxes = random.uniform(-0.1, 1.1, (60, 2, 2)).astype(np.float32)
    boxes = np.concatenate([boxes.min(1), boxes.max(1)], axis=1)
    truth, result = boxes[:20], boxes[20:]

    def to_pixels(box: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the box in pixels, and its area."""
        sides, aspect = np.array([size[1], size[0]]), size[1] / size[0]
        if mode == "units":
            box = np.clip(box * [70, 30, 70, 30], 0, [*sides, *sides])
            return box, float(np.prod(box[2:] - box[:2]))
        if mode == "FIT_LARGE_SIZE_AND_PAD":
            margin = np.array([0, (1 - 1 / aspect) / 2] if aspect > 1 else [(1 - aspect) / 2, 0])
            if np.all(box[:2] < 1 - margin) and np.all(box[2:] > margin):
                box = (box - [*margin, *margin]) / np.tile(1 - 2 * margin, 2)
        box = np.clip(box, 0, 1) * [*sides, *sides]
        return box, float(np.prod(box[2:] - box[:2] + 1))

    def overlap(a: np.ndarray, b: np.ndarray) -> float:
        (a, a_area), (b, b_area) = to_pixels(a), to_pixels(b)
        intersection_sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        intersection = np.prod(intersection_sides + 1) if np.all(intersection_sides >= 0) else 1
        return float(intersection / (a_area + b_area - intersection))

    rows = np.concatenate([np.tile([0, 1, 0], (20, 1)), truth, np.zeros((20, 1))], axis=1)
    scores = np.linspace(1, 0.5, len(result))
    detections = np.concatenate([np.tile([0, 1], (40, 1)), scores[:, None], result], axis=1)
    text = f'num_classes: 2 overlap_threshold: 0.3 name_size_file: "{tmp_path}/sizes.txt" {resize}'
    (top,) = run_layer(
        "DetectionEvaluate", f"detection_evaluate_param {{ {text} }}", detections[None, None], rows[None, None]
    )
    matched_truths: set[int] = set()
    for row, box in zip(top[0, 0, 1:], result, strict=True):
        overlaps = [overlap(box, t) for t in truth]
        best = int(np.argmax(overlaps))
        is_correct = overlaps[best] >= 0.3 and best not in matched_truths
        matched_truths |= {best} if is_correct else set()
        assert tuple(row[3:]) == (is_correct, not is_correct)
    assert len(matched_truths) > 2
