"""Tests of Python."""

from typing import Any

import jax
import numpy as np
import pytest

import caffejax
from detectnet.cases import Random, Shape, format_input_layer, jit_apply, make_label_bottom, make_net, run
from layer_suite import BATCH, fork_properties, layer_case


def draw_boxes(random: Random, shape: Shape) -> np.ndarray:
    """Draw lists of boxes [x1, y1, x2, y2, confidence] that end with zeros."""
    corner = random.integers(0, 3, (*shape[:2], 2)) * 10
    rows = np.concatenate([corner, corner + 20, np.ones((*shape[:2], 1))], axis=2)
    rows[:, -1] = 0
    return rows


def draw_scored_boxes(random: Random, shape: Shape) -> np.ndarray:
    rows = draw_boxes(random, shape)
    rows[:, :, 4] = random.integers(0, 4, shape[:2]) + 0.25  # none of them a small step away from another
    return np.floor(rows)


def python_case(module: str, name: str, param: str, *bottoms: Any, **options: Any) -> Any:
    python_param = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return layer_case("Python", python_param, *bottoms, name=name, phase="TEST", **options)


test_properties = fork_properties(
    python_case(
        "clustering",
        "ClusterDetections",
        "40, 24, 8, 0.3, 0, 0.2, -99, 2, 9",
        (BATCH, 2, 3, 5),
        (BATCH, 4, 3, 5),
        tops=2,
    ),
    python_case("clustering", "ClusterGroundtruth", "40, 24, 8, 1, 16", (BATCH, 1, 3, 5), (BATCH, 4, 3, 5)),
    python_case(
        "mean_ap", "ScoreDetections", "0.3", (BATCH, 3, 5), (BATCH, 4, 5), samplers={"b0": draw_boxes, "b1": draw_boxes}
    ),
    python_case("mean_ap", "mAP", "", (BATCH, 7, 5), tops=3, samplers={"b0": draw_scored_boxes}),
)


Arrays = dict[str, np.ndarray]

Shape = tuple[int, ...]

Rows = list[tuple[float, ...]]

HEIGHT, WIDTH, STRIDE = 32, 48, 8


def make_python_net(name: str, param: str, shapes: list[Shape], tops: int = 1) -> Any:
    module = "mean_ap" if name in ("ScoreDetections", "mAP") else "clustering"
    inputs = "".join(format_input_layer(f"b{i}", shape) for i, shape in enumerate(shapes))
    blob_fields = " ".join([*(f'bottom: "b{i}"' for i in range(len(shapes))), *(f'top: "t{i}"' for i in range(tops))])
    param_text = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return caffejax.Net(f'{inputs} layer {{ name: "p" type: "Python" {blob_fields} {param_text} }}', phase="TEST")


def run_python(net: Any, *bottoms: np.ndarray) -> list[np.ndarray]:
    tops = jit_apply(net)({f"b{i}": np.asarray(x, np.float32) for i, x in enumerate(bottoms)}, jax.random.key(0))
    return [np.asarray(tops[name]) for name in sorted(tops) if name.startswith("t")]


LARGE_BOX = (0, 0, 200, 200)

# {rectangle: number}, threshold, eps; the results of OpenCV 4.10's groupRectangles: rectangles, counts
GROUPING_CASES = [
    (
        {(10, 20, 60, 90): 1, (11, 22, 61, 88): 1, (9, 19, 60, 91): 1, (100, 40, 140, 90): 1, (101, 41, 142, 93): 1},
        *(1, 0.05, [(10, 20, 60, 90), (100, 40, 141, 92)], [3, 2]),
    ),
    ({(10 + n, 20 + n, 60, 90): 1 for n in (0, 4, 8, 12)}, 2, 0.1, [(16, 26, 60, 90)], [4]),  # a chain
    ({LARGE_BOX: 5, (60, 60, 90, 80): 2, (210, 90, 60, 50): 3}, 1, 0.2, [LARGE_BOX, (210, 90, 60, 50)], [5, 3]),
    ({LARGE_BOX: 4, (50, 60, 90, 80): 3}, 1, 0.2, [LARGE_BOX], [4]),
    ({(5, 5, 50, 60): 2, (300, 5, 50, 60): 1}, 0, 0.2, [(5, 5, 50, 60)] * 2 + [(300, 5, 50, 60)], [1, 1, 1]),
]

GRID_SHAPES = [(1, 1, 4, 6), (1, 4, 4, 6)]


def test_cluster_groundtruth_recovers_the_boxes_of_a_grid() -> None:
    """The recovered objects are those from which the grid was made."""
    objects = [(3, 2, 20, 18, 1), (26, 10, 18, 16, 3), (30.25, 1.5, 14, 7, 1)]
    net = make_net("scale_cvg: 0.5 gridbox_type: GRIDBOX_MIN min_cvg_len: 20")
    labels = run(net, np.zeros((1, 3, HEIGHT, WIDTH), np.float32), make_label_bottom(objects))["g"]
    cluster_net = make_python_net("ClusterGroundtruth", "48, 32, 8, 2, 6", [(1, 2, 4, 6), (1, 4, 4, 6)], tops=2)
    tops = run_python(cluster_net, labels[:, 8:], labels[:, 1:5])
    for kind, top in zip((1, 3), tops, strict=True):
        expected = sorted((x, y, x + w, y + h, 0) for x, y, w, h, label_kind in objects if label_kind == kind)
        assert sorted(map(tuple, top[0][top[0].any(axis=1)])) == expected
        assert top.shape == (1, 6, 5)


@pytest.mark.parametrize(("rows", "threshold", "eps", "means", "counts"), GROUPING_CASES)
def test_cluster_detections_groups_boxes_like_opencv(
    rows: Any, threshold: int, eps: float, means: Any, counts: Any
) -> None:
    rows = [row for row, count in rows.items() for _ in range(count)]
    n = len(rows)
    param = f"{8 * n}, 8, 8, 0.6, {threshold}, {eps}, -999, 1, {n}"
    coverage = np.full((1, 1, 1, n), 0.6, np.float32)
    boxes = np.array(rows).T.reshape(1, 4, 1, n) - 8 * np.arange(n) * np.array([1, 0, 1, 0])[:, None, None]
    (top,) = run_python(make_python_net("ClusterDetections", param, [(1, 1, 1, n), (1, 4, 1, n)]), coverage, boxes)
    result = top[0][: len(means)]
    np.testing.assert_array_equal(result[:, :4], means)
    np.testing.assert_allclose(result[:, 4], np.log(counts), rtol=1e-3)  # float16
    assert not top[0][len(means) :].any()


def test_cluster_detections_drops_boxes_with_low_coverage_or_few_neighbors() -> None:
    rows = [(10, 10, 40, 40)] * 4 + [(100, 10, 140, 25)] * 4 + [(200, 10, 240, 60)] * 3
    coverage = np.array([0.9] * 3 + [0.5] + [0.9] * 7).reshape(1, 1, 1, 11)
    boxes = np.array(rows).T.reshape(1, 4, 1, 11) - 8 * np.arange(11) * np.array([1, 0, 1, 0])[:, None, None]
    net = make_python_net("ClusterDetections", "88, 8, 8, 0.6, 2, 0.1, 22", [(1, 1, 1, 11), (1, 4, 1, 11)])
    (top,) = run_python(net, coverage, boxes)
    assert top.shape == (1, 50, 5)
    assert sorted(map(tuple, top[0, :, :4][top[0].any(axis=1)])) == [(10, 10, 40, 40), (200, 10, 240, 60)]


def test_score_detections_and_mean_ap() -> None:
    truth = np.zeros((2, 4, 5))
    truth[0, :3, :4] = (0, 0, 10, 10), (20, 20, 40, 40), (60, 60, 70, 70)
    result = np.zeros((2, 3, 5))
    result[0, :, :4] = (21, 20, 40, 40), (90, 90, 99, 99), (0, 0, 10, 9)
    result[1, 1, :4] = 5, 5, 9, 9
    result[:, :, 4] = 1.5
    (scored_boxes,) = run_python(make_python_net("ScoreDetections", "", [truth.shape, result.shape]), truth, result)
    assert scored_boxes.shape == (2, 7, 5)
    expected = [(21, 20, 40, 40, 1), (0, 0, 10, 9, 1), (90, 90, 99, 99, 2), (60, 60, 70, 70, 3)]
    assert list(map(tuple, scored_boxes[0, :5])) == [*expected, (0,) * 5]
    assert list(map(tuple, scored_boxes[1, :2])) == [(5, 5, 9, 9, 2), (0,) * 5]
    average, precision, recall = run_python(
        make_python_net("mAP", "48, 32, 8", [scored_boxes.shape], tops=3), scored_boxes
    )
    np.testing.assert_allclose([*average, *precision, *recall], [100 / 3, 50, 200 / 3], rtol=1e-6)
    assert run_python(make_python_net("mAP", "", [scored_boxes.shape], tops=3), np.zeros(scored_boxes.shape)) == [
        [0],
        [0],
        [0],
    ]


@pytest.mark.parametrize(
    ("name", "param", "shapes", "message"),
    [
        ("ClusterDetections", "48, 32, 8", GRID_SHAPES, "param_str must be 7 to 9 numbers separated by commas"),
        ("ClusterGroundtruth", "48, 32, x", GRID_SHAPES, "param_str must be 3 to 5 numbers separated by commas"),
        ("ClusterGroundtruth", "48, 32, 0", GRID_SHAPES, "image 48 x 32 and stride 0 give a grid without cells"),
        (
            "ClusterGroundtruth",
            "48, 32, 8, 2",
            GRID_SHAPES,
            "coverage has 1 classes, param_str has 2, and there are 1 tops",
        ),
        (
            "ClusterGroundtruth",
            "48, 32, 8",
            [GRID_SHAPES[0], (1, 4, 4, 5)],
            "needs coverage N x classes x H x W and boxes",
        ),
        ("ScoreDetections", "high", [(1, 4, 5), (1, 4, 5)], "the minimum overlap, such as 0.7, not 'high'"),
        ("ScoreDetections", "", [(1, 4, 5), (2, 4, 5)], "equal numbers of images, not 1 and 2"),
        ("mAP", "", [(1, 4, 4)], "N x boxes x 5, not"),
    ],
)
def test_invalid_python_layers_are_refused(name: str, param: str, shapes: list[Shape], message: str) -> None:
    with pytest.raises(caffejax.CaffejaxError, match=message):
        make_python_net(name, param, shapes, 3 if name == "mAP" else 1)
