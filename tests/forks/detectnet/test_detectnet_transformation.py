"""Tests of DetectNetTransformation."""

from typing import Any

import numpy as np
import pytest

import caffejax
from detectnet.cases import CLASS_MAP, Random, Shape, make_label_bottom, make_net, run
from layer_suite import BATCH, fork_properties, layer_case

GROUND_TRUTH_PARAM = (
    "detectnet_groundtruth_param { stride: 8 scale_cvg: 0.6 gridbox_type: %s min_cvg_len: 6 max_cvg_len: 9 "
    "image_size_x: 40 image_size_y: 24 object_class { src: 1 dst: 0 } object_class { src: 3 dst: 1 } }"
)
AUGMENTATION_PARAM = "detectnet_augmentation_param { shift_x: 4 shift_y: 4 rotation_prob: %s max_rotate_degree: 10 }"
TRANSFORM_PARAM = "transform_param { mean_value: 100 }"


def draw_labels(random: Random, shape: Shape) -> np.ndarray:
    """Draw labels: a row [count, 16], then rows [x, y, width, height, angle, class]."""
    rows = np.zeros(shape)
    rows[:, 0, 0, :2] = 2, 16
    rows[:, 0, 1:, :2] = random.uniform(0, 15, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 2:4] = random.uniform(8, 20, (*rows[:, 0, 1:].shape[:2], 2))
    rows[:, 0, 1:, 5] = random.choice([1, 2, 3], rows[:, 0, 1:].shape[:2])
    return rows


def transformation_case(name: str, param: str, **options: Any) -> Any:
    bottoms = (BATCH, 3, 24, 36), (BATCH, 1, 4, 16)
    samplers = {"b1": draw_labels}
    return layer_case(
        "DetectNetTransformation",
        f"{param} {TRANSFORM_PARAM}",
        *bottoms,
        tops=2,
        name=name,
        samplers=samplers,
        **options,
    )


test_properties = fork_properties(
    transformation_case("test", GROUND_TRUTH_PARAM % "GRIDBOX_MIN", phase="TEST"),
    transformation_case("train", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "0", random=True),
    transformation_case("turned", GROUND_TRUTH_PARAM % "GRIDBOX_MAX" + AUGMENTATION_PARAM % "1", random=True),
)


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


def make_augmented_net(param: str) -> Any:
    """Return a TRAIN net with only the given augmentations."""
    probability_names = ("crop", "scale", "flip", "rotation", "hue_rotation", "desaturation")
    disabled_fields = " ".join(f"{name}_prob: 0" for name in probability_names if f" {name}_prob" not in f" {param}")
    return make_net(f"}} detectnet_augmentation_param {{ {disabled_fields} {param}", phase="TRAIN")


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
