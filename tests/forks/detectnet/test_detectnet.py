"""DetectNet: its label grid compared with loops, its image augmentation, and its lists of boxes and scores."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

import caffejax

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]
Rows = list[tuple[float, ...]]

HEIGHT, WIDTH, STRIDE = 32, 48, 8
LABELS = [  # x, y, width, height, class
    (3.0, 2.0, 20.0, 18.0, 1),
    (10.5, 6.25, 30.0, 12.0, 3),
    (-6.0, 20.0, 14.0, 20.0, 1),
    (5.0, 5.0, 9.0, 9.0, 2),  # of no class that counts
    (60.0, 5.0, 9.0, 9.0, 1),  # outside
    (33.0, 22.0, 3.0, 4.0, 3),
]
CLASS_MAP = {1: 0, 3: 1}


def format_input_layer(name: str, shape: Shape) -> str:
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def make_net(param: str, *, phase: str = "TEST", size: Shape = (HEIGHT, WIDTH), label: Shape = (1, 1, 8, 16)) -> Any:
    class_fields = " ".join(f"object_class {{ src: {k} dst: {v} }}" for k, v in CLASS_MAP.items())
    return caffejax.Net(
        format_input_layer("x", (1, 3, *size))
        + format_input_layer("l", label)
        + f"""layer {{ name: "t" type: "DetectNetTransformation" bottom: "x" bottom: "l" top: "y" top: "g"
        detectnet_groundtruth_param {{
          {"" if "stride" in param else f"stride: {STRIDE}"}
          image_size_x: {WIDTH} image_size_y: {HEIGHT} {class_fields} {param} }} }}
        """,
        phase=phase,
    )


def make_label_bottom(rows: Rows) -> np.ndarray:
    result = np.zeros((1, 1, 8, 16), np.float32)
    result[0, 0, 0, :2] = len(rows), 16
    for row, (x, y, w, h, label_class) in zip(result[0, 0, 1:], rows, strict=False):
        row[:4], row[5] = (x, y, w, h), label_class
    result[0, 0, len(rows) + 1 :][:, [2, 3, 5]] = 9, 9, 1  # beyond the count
    return result


@functools.cache
def jit_apply(net: Any) -> Any:
    return net.jit(lambda inputs, key: net.apply({}, {}, inputs, key=key)[0])


def run(net: Any, image: np.ndarray, rows: np.ndarray, key: int = 0) -> Arrays:
    tops = jit_apply(net)({"x": image, "l": rows}, jax.random.key(key))
    return {name: np.asarray(top) for name, top in tops.items()}


def make_image(random: np.random.Generator, size: Shape = (HEIGHT, WIDTH)) -> np.ndarray:
    return random.uniform(0, 255, (1, 3, *size)).astype(np.float32)


def compute_label_grid(rows: Rows, *, crop: bool, uses_max: bool, scale: float, length: int, norm: bool) -> np.ndarray:
    """Return the grid of labels, computed cell by cell and object by object."""
    result = np.zeros((10, HEIGHT // STRIDE, WIDTH // STRIDE))
    for x, y, w, h, label_class in rows:
        left, top, right, bottom = x, y, x + w, y + h
        if crop:
            left, top, right, bottom = max(left, 0), max(top, 0), min(right, WIDTH), min(bottom, HEIGHT)
        w, h = right - left, bottom - top
        if label_class not in CLASS_MAP or w <= 0 or h <= 0:
            continue
        sides = [min(length, n * scale) if uses_max else min(n, max(length, n * scale)) for n in (w, h)]
        center = (left + right) / 2, (top + bottom) / 2
        for j in range(result.shape[1]):
            for i in range(result.shape[2]):
                overlap_x = min(center[0] + sides[0] / 2, i * 8 + 8) - max(center[0] - sides[0] / 2, i * 8)
                overlap_y = min(center[1] + sides[1] / 2, j * 8 + 8) - max(center[1] - sides[1] / 2, j * 8)
                if overlap_x > 0 and overlap_y > 0:
                    box = left - i * 8, top - j * 8, right - i * 8, bottom - j * 8
                    object_norm = max(0 if norm else 1, STRIDE**2 / (sides[0] * sides[1]))
                    result[:, j, i] = 1, *box, 1 / w, 1 / h, object_norm, *(CLASS_MAP[label_class] == np.arange(2))
    return result


@pytest.mark.parametrize(
    ("crop", "uses_max", "norm"), [(True, True, False), (True, False, True), (False, False, False), (False, True, True)]
)
def test_label_grid_equals_loops(crop: bool, uses_max: bool, norm: bool) -> None:
    gridbox_type, length_field = ("GRIDBOX_MAX", "max_cvg_len") if uses_max else ("GRIDBOX_MIN", "min_cvg_len")
    flags = f"crop_bboxes: {crop} obj_norm: {norm}".lower()
    net = make_net(f"scale_cvg: 0.75 gridbox_type: {gridbox_type} {length_field}: 10 {flags}")
    actual = run(net, np.zeros((1, 3, HEIGHT, WIDTH), np.float32), make_label_bottom(LABELS))["g"]
    expected = compute_label_grid(LABELS, crop=crop, uses_max=uses_max, scale=0.75, length=10, norm=norm)
    assert np.count_nonzero(expected[0]) > 5
    np.testing.assert_allclose(actual[0], expected, rtol=1e-5, atol=1e-5)


def test_test_phase_resizes_image_and_boxes() -> None:
    cv2 = pytest.importorskip("cv2")
    image = make_image(np.random.default_rng(0), (16, 24))
    net = make_net("} transform_param { mean_value: 100 mean_value: 110 mean_value: 120", size=(16, 24))
    actual = run(net, image, make_label_bottom([(4, 3, 10, 6, 3)]))
    means = np.array([100, 110, 120], np.float32)
    pixels = np.ascontiguousarray(image[0].transpose(1, 2, 0)) - means
    expected = cv2.resize(pixels, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    np.testing.assert_allclose(actual["y"][0], expected.transpose(2, 0, 1), atol=1e-3)
    expected = compute_label_grid([(8, 6, 20, 12, 3)], crop=True, uses_max=True, scale=0.5, length=50, norm=False)
    np.testing.assert_allclose(actual["g"][0], expected, rtol=1e-5)


def make_augmented_net(param: str) -> Any:
    """Return a TRAIN net with only the given augmentations."""
    probability_names = ("crop", "scale", "flip", "rotation", "hue_rotation", "desaturation")
    disabled_fields = " ".join(f"{name}_prob: 0" for name in probability_names if f" {name}_prob" not in f" {param}")
    return make_net(f"}} detectnet_augmentation_param {{ {disabled_fields} {param}", phase="TRAIN")


def test_flip_mirrors_image_and_boxes() -> None:
    image = make_image(np.random.default_rng(0))
    actual = run(make_augmented_net("flip_prob: 1"), image, make_label_bottom(LABELS))
    np.testing.assert_array_equal(actual["y"], image[..., ::-1])
    flipped_labels = [(WIDTH - x - w - 1, y, w, h, kind) for x, y, w, h, kind in LABELS]
    expected = compute_label_grid(flipped_labels, crop=True, uses_max=True, scale=0.5, length=50, norm=False)
    np.testing.assert_allclose(actual["g"][0], expected, rtol=1e-5, atol=1e-5)


def test_crop_shifts_image_and_boxes_equally() -> None:
    image, corners = make_image(np.random.default_rng(0)), set()
    net = make_augmented_net("crop_prob: 1 shift_x: 8 shift_y: 6")
    padded = np.pad(image, ((0, 0), (0, 0), (8, 8), (8, 8)))
    for key in range(12):
        actual = run(net, image, make_label_bottom(LABELS), key)
        offsets = [(y, x) for y in range(-3, 4) for x in range(-4, 5)]
        crops = {o: padded[..., 8 + o[0] :, 8 + o[1] :][..., :HEIGHT, :WIDTH] for o in offsets}
        ((y, x),) = [o for o, crop in crops.items() if np.array_equal(crop, actual["y"])]
        moved_labels = [(left - x, top - y, *rest) for left, top, *rest in LABELS]
        expected = compute_label_grid(moved_labels, crop=True, uses_max=True, scale=0.5, length=50, norm=False)
        np.testing.assert_allclose(actual["g"][0], expected, rtol=1e-5, atol=1e-5)
        corners.add((y, x))
    assert len(corners) > 6


@pytest.mark.parametrize(
    "param", ["scale_prob: 1 scale_min: 0.8 scale_max: 1.4", "rotation_prob: 1 max_rotate_degree: 9"]
)
def test_scaling_and_rotation_move_objects_with_their_boxes(param: str) -> None:
    image = np.zeros((1, 3, HEIGHT, WIDTH), np.float32)
    image[..., 11:20, 12:25] = 200
    net = make_augmented_net(f"{param} crop_prob: 1 shift_x: 4 shift_y: 4")
    boxes = set()
    for key in range(8):
        actual = run(net, image, make_label_bottom([(12, 11, 13, 9, 1)]), key)
        weights = actual["y"][0, 0].clip(0)
        center = [np.sum(weights * coordinates) / weights.sum() for coordinates in np.mgrid[:HEIGHT, :WIDTH] + 0.5]
        _, j, i = np.argwhere(actual["g"][0, :1])[0]
        box = actual["g"][0, 1:5, j, i] + 8 * np.asarray([i, j, i, j])
        np.testing.assert_allclose([(box[1] + box[3]) / 2, (box[0] + box[2]) / 2], center, atol=0.2)
        boxes.add(tuple(box))
    assert len(boxes) > 4


def test_hue_rotation_and_desaturation_keep_gray() -> None:
    red, gray = np.array([0, 0, 200], np.float32), np.array([90, 90, 90], np.float32)
    image = np.concatenate([np.tile(c[:, None, None], (1, HEIGHT, WIDTH // 2)) for c in (red, gray)], axis=2)[None]
    for key in range(4):
        top = run(make_augmented_net("hue_rotation_prob: 1 hue_rotation: 180"), image, make_label_bottom([]), key)["y"]
        np.testing.assert_allclose(top[0, :, :, WIDTH // 2 :], 90)
        color = top[0, :, 0, 0]
        np.testing.assert_allclose([color.min(), color.max()], [0, 200], atol=1e-3)
        assert not np.allclose(color, red)
    desaturated_top = run(
        make_augmented_net("desaturation_prob: 1 desaturation_max: 0.9"), image, make_label_bottom([])
    )["y"]
    np.testing.assert_allclose(desaturated_top[0, :, :, WIDTH // 2 :], 90)
    assert desaturated_top[0, 2, 0, 0] == pytest.approx(200)
    assert 20 < desaturated_top[0, 0, 0, 0] == pytest.approx(desaturated_top[0, 1, 0, 0])


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("stride: 0", "stride 0, image_size_x 48 and image_size_y 32 must be above 0"),
        ("stride: 99", "give a grid without cells"),
        ("scale_cvg: 0", "scale_cvg must be above 0"),
        ('} transform_param { mean_file: "m"', "mean_file is not supported; set mean_value"),
        ("} transform_param { mean_value: 1 mean_value: 2", "needs 1 or 3 mean_value, not 2"),
        ("} detectnet_augmentation_param { scale_min: 0", "scale_min 0 and scale_max 1 must be above 0"),
        ("} detectnet_augmentation_param { noise_param { }", "noise_param is not supported; remove it"),
    ],
)
def test_invalid_settings_are_refused(param: str, message: str) -> None:
    with pytest.raises(caffejax.CaffejaxError, match=message):
        make_net(param)


def test_labels_of_wrong_shape_are_refused() -> None:
    with pytest.raises(caffejax.GraphError, match=r"\(1, 1, 1 \+ objects, 16\), not shape \(1,\)"):
        make_net("", label=(1,))


def make_python_net(name: str, param: str, shapes: list[Shape], tops: int = 1) -> Any:
    module = "mean_ap" if name in ("ScoreDetections", "mAP") else "clustering"
    inputs = "".join(format_input_layer(f"b{i}", shape) for i, shape in enumerate(shapes))
    blob_fields = " ".join([*(f'bottom: "b{i}"' for i in range(len(shapes))), *(f'top: "t{i}"' for i in range(tops))])
    param_text = f'python_param {{ module: "caffe.layers.detectnet.{module}" layer: "{name}" param_str: "{param}" }}'
    return caffejax.Net(f'{inputs} layer {{ name: "p" type: "Python" {blob_fields} {param_text} }}', phase="TEST")


def run_python(net: Any, *bottoms: np.ndarray) -> list[np.ndarray]:
    tops = jit_apply(net)({f"b{i}": np.asarray(x, np.float32) for i, x in enumerate(bottoms)}, jax.random.key(0))
    return [np.asarray(tops[name]) for name in sorted(tops) if name.startswith("t")]


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


GRID_SHAPES = [(1, 1, 4, 6), (1, 4, 4, 6)]


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
