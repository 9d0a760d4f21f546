"""Tests of PriorBox and PriorBoxClustered."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from caffejax import CaffejaxError, Net, layer_types
from caffejax.base.errors import GraphError
from layer_nets import draw_settings, format_param, net_text, run_layer
from layer_suite import BATCH, IMAGE, Shape, fork_properties, layer_case, recorded

FULL_IMAGE: Shape = (BATCH, 3, 40, 50)

test_recorded = recorded("PriorBox", family="detection")
test_properties = fork_properties(
    layer_case(
        "PriorBoxClustered",
        "prior_box_param { width: 9.4 width: 25.1 height: 15 height: 39.6 step: 16 variance: 0.1 }",
        (BATCH, 3, 5, 6),
        (BATCH, 3, 40, 50),
    ),
    layer_case("PriorBox", "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 }", IMAGE, FULL_IMAGE),
    layer_case(
        "PriorBox", "prior_box_param { min_size: 8 denser_prior_boxes: true }", IMAGE, FULL_IMAGE, name="textboxes"
    ),
    layer_case("PriorBox", "prior_box_param { min_size: 32 faceboxes: true }", IMAGE, FULL_IMAGE, name="faceboxes"),
)


PREDICTIONS = [(2, 8), (2, 6), (1, 2, 8)]

TRUTH, DETECTIONS = (1, 1, 3, 8), (1, 1, 3, 7)

INVALID_CASES: dict[str, list[tuple[str, list[tuple[int, ...]], str]]] = {
    "multibox_loss_param": [
        ("", [*PREDICTIONS, TRUTH], "needs num_classes"),
        ("num_classes: 4", [*PREDICTIONS, TRUTH], r"bottom 1 .* 4 values for each of 2 priors, \(2, 8\)"),
        ("num_classes: 3", [*PREDICTIONS, DETECTIONS], "rows of 8"),
        ("num_classes: 3", [*PREDICTIONS[:2], (1, 8), TRUTH], "bottom 2 must contain priors"),
        ("num_classes: 3 share_location: false", [*PREDICTIONS, TRUTH], "mining needs share_location: true"),
        ("num_classes: 3 do_neg_mining: false mining_type: MAX_NEGATIVE", [*PREDICTIONS, TRUTH], "contradicts"),
        ("num_classes: 3 ignore_difficult_gt: true", [*PREDICTIONS, TRUTH], "ignore_difficult_gt is not supported"),
    ],
    "detection_output_param": [
        ("num_classes: 1", PREDICTIONS, "besides the background"),
        ("num_classes: 3 keep_top_k: 0", PREDICTIONS, "keep_top_k is 0, but must be positive"),
        ("num_classes: 3 nms_param { eta: 2 }", PREDICTIONS, "eta must be"),
    ],
    "detection_evaluate_param": [
        ("num_classes: 3", [(1, 1, 3, 6), TRUTH], "bottom 0 must have rows of 7"),
        ("num_classes: 3 resize_param { resize_mode: FIT_SMALL_SIZE }", [DETECTIONS, TRUTH], "needs height and width"),
    ],
    "prior_box_param": [
        ("", [(1, 1, 2, 2), (1, 3, 9, 9)], "needs a min_size"),
        ("min_size: 4 max_size: 3", [(1, 1, 2, 2), (1, 3, 9, 9)], "more than its min_size"),
        ("min_size: 4 variance: 1 variance: 2", [(1, 1, 2, 2), (1, 3, 9, 9)], "once or 4 times"),
        ("min_size: 4 step: 0", [(1, 1, 2, 2), (1, 3, 9, 9)], "step, .* must be positive"),
        ("min_size: 4 aspect_ratio: 0", [(1, 1, 2, 2), (1, 3, 9, 9)], "aspect_ratio must be positive"),
        ("min_size: 4 keras: true", [(1, 1, 2, 2), (1, 3, 9, 9)], "keras of a different fork"),
        ("min_size: 4 offset_h: 0.5", [(1, 1, 2, 2), (1, 3, 9, 9)], "pairs of offset_h and offset_w, not 1 and 0"),
        (
            f"min_size: 4 {3 * 'offset_h: 0 offset_w: 0 '}",
            [(1, 1, 2, 2), (1, 3, 9, 9)],
            "pairs of offset_h and offset_w, not 3 and 3",
        ),
        ("min_size: 4 offset_h: 0 offset_w: 0 offset: 0", [(1, 1, 2, 2), (1, 3, 9, 9)], "contradict offset; remove"),
    ],
}

TYPE_BY_PARAM = {t.signature.param: name for name, t in layer_types().items() if name != "PriorBoxClustered"}


@pytest.mark.parametrize(
    ("param", "text", "shapes", "message"), [(param, *case) for param, cases in INVALID_CASES.items() for case in cases]
)
def test_invalid_settings_and_shapes_are_refused(
    param: str, text: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(CaffejaxError, match=f"layer 'layer'.*{message}"):
        Net(net_text(TYPE_BY_PARAM[param], f"{param} {{ {text} }}", shapes), "TRAIN")


def priors_by_loops(s: dict[str, Any], height: int, width: int, image: tuple[int, int]) -> np.ndarray:
    size_h, size_w = s.get("img_size", image[0]), s.get("img_size", image[1])
    step_h, step_w = s.get("step_h", s.get("step", size_h / height)), s.get("step_w", s.get("step", size_w / width))
    ratios = [1.0]
    for ratio in s.get("aspect_ratio", []):
        if not any(math.isclose(ratio, other, abs_tol=1e-6) for other in ratios):
            ratios.append(ratio)
            if s.get("flip", True):
                ratios.append(1 / ratio)
    rows: list[list[float]] = []
    for i in range(height):
        for j in range(width):
            x, y = (j + s.get("offset", 0.5)) * step_w, (i + s.get("offset", 0.5)) * step_h
            for n, min_size in enumerate(s["min_size"]):
                sides = [(min_size, min_size)]
                if "max_size" in s:
                    sides.append((math.sqrt(min_size * s["max_size"][n]),) * 2)
                sides += [(min_size * math.sqrt(r), min_size / math.sqrt(r)) for r in ratios[1:]]
                for w, h in sides:
                    rows.append(
                        [(x - w / 2) / size_w, (y - h / 2) / size_h, (x + w / 2) / size_w, (y + h / 2) / size_h]
                    )
    boxes = np.clip(rows, 0, 1) if s.get("clip", False) else np.asarray(rows)
    variances = s.get("variance", [0.1])
    return np.stack([boxes, np.tile(variances, len(boxes) * 4 // len(variances)).reshape(-1, 4)])


@pytest.mark.parametrize("seed", range(8))
def test_prior_box_equals_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    s = draw_settings(
        random,
        {
            "min_size": ([12], [7, 20]),
            "aspect_ratio": (None, [2.0], [2.0, 3.0], [1.0, 2.0, 0.5]),
            "flip": (None, True, False),
            "clip": (None, True, False),
            "variance": (None, [0.2], [0.1, 0.1, 0.2, 0.3]),
            "offset": (None, 0.25),
            "img_size": (None, 60),
        },
    )
    if random.random() < 0.5:
        s["max_size"] = [size + 9 for size in s["min_size"]]
    s |= [{}, {"step": 8.0}, {"step_h": 6.0, "step_w": 11.0}][random.integers(3)]
    x, image = np.zeros((2, 4, 3, 5)), np.zeros((2, 3, 50, 80))
    (top,) = run_layer("PriorBox", format_param("prior_box_param", s), x, image)
    np.testing.assert_allclose(top.reshape(2, -1, 4), priors_by_loops(s, 3, 5, (50, 80)), atol=2e-6)


Shape = tuple[int, ...]

SIZE_FIELDS = "width: 2 height: 3"


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
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


INPUTS = """layer { name: "in" type: "Input" top: "map" top: "data"
  input_param { shape { dim: 1 dim: 8 dim: 2 dim: 3 } shape { dim: 1 dim: 3 dim: 40 dim: 60 } } }
"""


def make_detector(boxes: int, classes: int, prior: str) -> str:
    """Return the prototxt of a detector whose Convolutions predict `boxes` boxes for each cell."""
    layers = [INPUTS]
    for name, outputs in ("loc", 4 * boxes), ("conf", classes * boxes):
        layers.append(
            f'layer {{ name: "{name}" type: "Convolution" bottom: "map" top: "{name}" convolution_param {{ num_output: '
            f'{outputs} kernel_size: 1 }} }} layer {{ name: "{name}_flat" type: "Flatten" bottom: "{name}" top: '
            f'"{name}_flat" }}'
        )
    layers.append(
        'layer { name: "prior" type: "PriorBox" bottom: "map" bottom: "data" top: "prior" '
        f"prior_box_param {{ {prior} }} }}"
        'layer { name: "out" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" top: "out" '
        f"detection_output_param {{ num_classes: {classes} }} }}"
    )
    return "\n".join(layers)


def compute_priors(boxes: int, classes: int, prior: str) -> np.ndarray:
    """Return the prior boxes in pixels, with shape (cells, boxes for each cell, 4)."""
    net = Net(make_detector(boxes, classes, prior), "TEST")
    params, state = net.init(jax.random.key(0))
    inputs = {name: np.zeros(net.graph.blobs[name].shape, np.float32) for name in net.input_names}
    prior_boxes = net.jit(lambda inputs: net.apply(params, state, inputs, blobs=("prior",))[0]["prior"])
    result = np.asarray(prior_boxes(inputs))[0, 0]
    return result.reshape(6, -1, 4) * (60, 40, 60, 40)


@pytest.mark.parametrize(
    ("boxes", "classes", "prior", "num_boxes"),
    [
        (2, 2, "min_size: 9 aspect_ratio: 4 flip: false", 2),
        (2, 8, "min_size: 9 aspect_ratio: 4 flip: false", 2),  # whose classes have as many outputs as TextBoxes' boxes
        (4, 2, "min_size: 9 aspect_ratio: 4 flip: false", 4),
        (2, 2, "min_size: 9 denser_prior_boxes: true", 2),
    ],
)
def test_the_number_of_boxes_of_a_cell(boxes: int, classes: int, prior: str, num_boxes: int) -> None:
    assert compute_priors(boxes, classes, prior).shape == (6, num_boxes, 4)


def test_boxes_of_textboxes() -> None:
    """TextBoxes repeats each box half a cell lower; cells are 20 pixels high."""
    plain_boxes, denser_boxes = (
        compute_priors(n, 2, "min_size: 9 max_size: 16 aspect_ratio: 4 flip: false") for n in (3, 6)
    )
    np.testing.assert_allclose(denser_boxes[:, ::2], plain_boxes, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        denser_boxes[:, 1::2] - plain_boxes, np.broadcast_to([0, 10, 0, 10], plain_boxes.shape), atol=1e-4
    )


def test_centers_in_a_cell_equal_opencvs() -> None:
    """The boxes that OpenCV 4.14 computes for a map of one row and two columns."""
    text = "min_size: 8 aspect_ratio: 4 flip: false offset_h: 0.5 offset_w: 0.5 offset_h: 1 offset_w: 0.25"
    (top,) = run_layer("PriorBox", f"prior_box_param {{ {text} }}", np.zeros((1, 1, 1, 2)), np.zeros((1, 3, 20, 40)))
    first_cell = [[0.15, 0.3, 0.35, 0.7], [0.025, 0.8, 0.225, 1.2], [0.05, 0.4, 0.45, 0.6], [-0.075, 0.9, 0.325, 1.1]]
    second_cell = np.add(first_cell, [0.5, 0, 0.5, 0])
    np.testing.assert_allclose(top[0, 0].reshape(8, 4), [*first_cell, *second_cell], atol=1e-6)


def test_convolutions_do_not_change_the_centers_of_the_file() -> None:
    """OpenCV's form of TextBoxes says itself what TextBoxes's own is told by the outputs of convolutions."""
    text = "min_size: 9 max_size: 16 aspect_ratio: 4 flip: false"
    centers = f"{text} offset_h: 0.5 offset_w: 0.5 offset_h: 1 offset_w: 0.5"
    np.testing.assert_allclose(compute_priors(6, 2, centers), compute_priors(6, 2, text), rtol=1e-5, atol=1e-5)
    with pytest.raises(CaffejaxError, match="for each of 36 priors"):
        Net(make_detector(12, 2, centers), "TEST")


def test_boxes_of_faceboxes() -> None:
    """Each cell has 16 squares of size 32, four of 64 and one of 128; the center of the first cell is (10, 10)."""
    (first_cell, *_) = compute_priors(21, 2, "min_size: 32 min_size: 64 min_size: 128")
    centers, sizes = (first_cell[:, :2] + first_cell[:, 2:]) / 2, first_cell[:, 2:] - first_cell[:, :2]
    np.testing.assert_allclose(sizes[:, 0], [31] * 16 + [63] * 4 + [127], rtol=1e-5)
    np.testing.assert_allclose(centers[:4], [(-6, -6), (2, -6), (10, -6), (18, -6)], atol=1e-3)
    np.testing.assert_allclose(centers[15:], [(18, 18), (-6, -6), (10, -6), (-6, 10), (10, 10), (10, 10)], atol=1e-3)
