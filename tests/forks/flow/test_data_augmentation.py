"""Tests of DataAugmentation, GenerateAugmentationParameters and FlowAugmentation."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError, WeightsError
from caffejax.core.program.net import Net
from caffejax.core.schema.caffe_pb2 import AugmentationCoeff
from caffejax.forks.flow.augmentation import COEFFICIENTS, Geometry, make_matrices, unpack
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case

IMAGES = (BATCH, 3, 6, 8)
ROWS = (BATCH, 42, 1, 1)
AXES = (0.51, 0.56, 0.65, 0.79, 0.01, -0.62, 0.35, -0.83, 0.44)
EIGVEC = " ".join(f"chromatic_eigvec: {v}" for v in AXES)


def draw_rows(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw coefficients; half of them are 0, small or large."""
    return random.normal(size=shape) * random.choice([0, 5e-4, 0.1, 0.3], size=shape)


test_properties = fork_properties(
    layer_case("DataAugmentation", "augmentation_param { recompute_mean: 2 mean_per_pixel: false }", IMAGES),
    layer_case(
        "DataAugmentation",
        f"augmentation_param {{ crop_width: 5 crop_height: 4 max_multiplier: 1 {EIGVEC} }}",
        IMAGES,
        ROWS,
        name="rows",
        samplers={"b1": draw_rows},
    ),
    layer_case(
        "DataAugmentation",
        "augmentation_param { crop_width: 5 crop_height: 4 rotate { spread: 0.3 } noise { mean: 0.1 } }",
        IMAGES,
        tops=2,
        name="drawn",
        random=True,
    ),
    layer_case(
        "GenerateAugmentationParameters",
        "augmentation_param { crop_width: 5 crop_height: 4 zoom { mean: 0.2 spread: 0.1 exp: true } }",
        IMAGES,
        random=True,
    ),
    layer_case(
        "GenerateAugmentationParameters",
        "augmentation_param { crop_width: 5 crop_height: 4 bottomwidth: 8 bottomheight: 6 rotate { spread: 0.1 } }",
        ROWS,
        name="rows",
        random=True,
        samplers={"b0": draw_rows},
    ),
    layer_case(
        "FlowAugmentation",
        "augmentation_param { crop_width: 5 crop_height: 4 }",
        (BATCH, 2, 6, 8),
        ROWS,
        ROWS,
        samplers={"b1": draw_rows, "b2": draw_rows},
    ),
)


def read_row(row: np.ndarray, drops_small: bool) -> dict[str, float]:
    """Return the coefficients of a row, in the order of the fork's message."""
    result = {}
    for name, value in zip(COEFFICIENTS, row, strict=True):
        default = getattr(AugmentationCoeff(), name)
        value = math.exp(value) if default else float(value)
        result[name] = default if drops_small and abs(value - default) < 1e-3 else value
    return result


def move(c: dict[str, float], x: float, y: float, crop: tuple[int, int], size: tuple[int, int]) -> tuple[float, float]:
    """Return the position in an image of a position in the part that is cut out."""
    x, y = (-x + 0.5 * crop[1] if c["mirror"] else x - 0.5 * crop[1]), y - 0.5 * crop[0]
    cos, sin = math.cos(c["angle"]), math.sin(c["angle"])
    x, y = cos * x - sin * y, sin * x + cos * y
    x, y = x + c["dx"] * crop[1], y + c["dy"] * crop[0]
    return x / c["zoom_x"] + 0.5 * size[1], y / c["zoom_y"] + 0.5 * size[0]


def sample(image: np.ndarray, c: dict[str, float], crop: tuple[int, int]) -> np.ndarray:
    height, width = image.shape[1:]
    top = np.zeros((len(image), *crop))
    for i, j in np.ndindex(*crop):
        x, y = move(c, j, i, crop, (height, width))
        x, y = min(max(x, 0), width - 1.05), min(max(y, 0), height - 1.05)
        k, m = int(y), int(x)
        dy, dx = y - k, x - m
        top[:, i, j] = (1 - dx) * (1 - dy) * image[:, k, m] + dx * dy * image[:, k + 1, m + 1]
        top[:, i, j] += (1 - dx) * dy * image[:, k + 1, m] + dx * (1 - dy) * image[:, k, m + 1]
    return top


def change_pixel(rgb: np.ndarray, c: dict[str, float], limit: float) -> np.ndarray:
    changed = rgb * [c["color1"], c["color2"], c["color3"]]
    changed = np.clip(changed * rgb.sum() / (changed.sum() + 0.01), 0, 1) ** c["gamma"] + c["brightness"]
    return np.clip(0.5 + (changed - 0.5) * c["contrast"], 0, limit)


def signed_power(x: float, exponent: float) -> float:
    return math.copysign(abs(x) ** exponent, x)


def change_pixel_along_axes(
    rgb: np.ndarray, c: dict[str, float], limit: float, mean_rgb: np.ndarray, extent: np.ndarray
) -> np.ndarray:
    axes = np.reshape(AXES, (3, 3))
    mean = np.where(extent > 1e-2, axes @ mean_rgb / extent, axes @ mean_rgb)
    eig = axes @ (rgb - mean_rgb)
    for k in range(3):
        if extent[k] > 1e-2:
            value = signed_power(eig[k] / extent[k], c[f"pow_nomean{k}"])
            eig[k] = (value + c[f"add_nomean{k}"]) * c[f"mult_nomean{k}"]
    eig = eig + mean
    if extent[0] > 1e-2:
        eig[0] = (signed_power(eig[0], c["pow_withmean0"]) + c["add_withmean0"]) * c["mult_withmean0"]
    s = s1 = math.hypot(eig[1], eig[2])
    if s > 1e-2:
        s1 = max(s1 ** c["pow_withmean1"] + c["add_withmean1"], 0) * c["mult_withmean1"]
    cos, sin = math.cos(c["col_angle"]), math.sin(c["col_angle"])
    eig[1], eig[2] = cos * eig[1] - sin * eig[2], sin * eig[1] + cos * eig[2]
    eig = np.where(extent > 1e-2, eig * extent, eig)
    largest = math.sqrt((extent**2).sum())
    length = math.sqrt((eig**2).sum()) / largest
    if s > 1e-2:
        eig[1:] *= s1 / s
    old_length = math.sqrt((eig**2).sum())
    new_length = max(length ** c["lmult_pow"] + c["lmult_add"], 0) * c["lmult_mult"] * largest
    if old_length > 1e-2:
        eig = np.minimum(eig / old_length * new_length, extent)
    return np.clip(axes.T @ eig, 0, limit)


def augment(images: np.ndarray, rows: np.ndarray, crop: tuple[int, int], limit: float) -> np.ndarray:
    """Augment a batch as the fork does, except for the noise."""
    coefficients = [read_row(row, drops_small=True) for row in rows]
    tops = np.stack([sample(image, c, crop) for image, c in zip(images, coefficients, strict=True)])
    defaults = {name: getattr(AugmentationCoeff(), name) for name in COEFFICIENTS}
    changed = {name for c in coefficients for name in c if c[name] != defaults[name]}
    pixels = images.transpose(0, 2, 3, 1).reshape(-1, 3)
    extent = np.abs(pixels @ np.reshape(AXES, (3, 3)).T).max(0)
    for top, c in zip(tops, coefficients, strict=True):
        for i, j in np.ndindex(*crop):
            rgb = top[:, i, j]
            if changed & {n for n in COEFFICIENTS if "mean" in n or n.startswith("lmult") or n == "col_angle"}:
                rgb = change_pixel_along_axes(rgb, c, limit, pixels.mean(0), extent)
            if changed & {"gamma", "brightness", "contrast", "color1", "color2", "color3"}:
                rgb = change_pixel(rgb, c, limit)
            if any(
                c[name] > 0 for c in coefficients for name in ("motion_blur_size", "shadow_strength", "noise")
            ) or any(c["fog_amount"] and c["fog_size"] for c in coefficients):
                nx, ny = math.cos(c["shadow_angle"]), math.sin(c["shadow_angle"])
                if (j - crop[1] // 2) * nx + (i - crop[0] // 2) * ny - c["shadow_distance"] > 0:
                    rgb = rgb - c["shadow_strength"]
                rgb = np.clip(rgb, 0, limit)
            top[:, i, j] = rgb
    return tops


SPATIAL, CHROMATIC, EIGEN, EFFECT = slice(6), slice(6, 12), slice(12, 34), slice(34, 41)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("groups", [[SPATIAL], [CHROMATIC], [EIGEN], [EFFECT], [SPATIAL, CHROMATIC, EIGEN, EFFECT], []])
def test_images_are_changed_as_by_loops(groups: list[slice], seed: int) -> None:
    random = np.random.default_rng(seed)
    images, rows = random.uniform(0, 1, (3, 3, 7, 9)), np.zeros((3, 42))
    for group in groups:
        rows[:2, group] = draw_rows(random, rows[:2, group].shape)  # the third is changed only where the batch is
    rows[0, 0] = bool(groups)  # mirrored
    text = f"augmentation_param {{ crop_width: 5 crop_height: 6 max_multiplier: 0.9 {EIGVEC} }}"
    (result,) = run_layer("DataAugmentation", text, images, rows[:, :, None, None])
    np.testing.assert_allclose(result, augment(images, rows, (6, 5), 0.9), atol=2e-5)


def test_gray_images_are_cut_out_at_the_center() -> None:
    images = np.arange(2 * 6 * 8.0).reshape(2, 1, 6, 8)
    (result,) = run_layer("DataAugmentation", "augmentation_param { crop_width: 4 crop_height: 2 }", images)
    np.testing.assert_allclose(result, images[:, :, 2:4, 2:6], rtol=1e-6)


@pytest.mark.parametrize("per_pixel", [False, True])
def test_the_mean_of_the_first_passes_is_subtracted(per_pixel: bool) -> None:
    shape = (2, 3, 4, 5)
    text = f"augmentation_param {{ recompute_mean: 2 mean_per_pixel: {str(per_pixel).lower()} }}"
    net = Net(net_text("DataAugmentation", text, [shape]), "TEST")
    params, state = net.init(jax.random.key(0))
    random, sums = np.random.default_rng(0), np.zeros(shape[1:])
    for n in range(1, 4):
        x = random.normal(size=shape).astype(np.float32)
        if n <= 2:
            sums = sums + x.mean(0)
        mean = sums / min(n, 2) if per_pixel else (sums / min(n, 2)).mean((1, 2), keepdims=True)
        tops, state = net.apply(params, state, {"b0": x})
        np.testing.assert_allclose(tops["t0"], x - mean, atol=1e-6)
        assert float(np.squeeze(state["layer"]["iterations"])) == n


@pytest.mark.parametrize("per_pixel", [False, True])
def test_means_are_loaded_from_files_of_another_size(tmp_path: Path, per_pixel: bool) -> None:
    text = f"augmentation_param {{ recompute_mean: 1 mean_per_pixel: {str(per_pixel).lower()} }}"
    small, large = (Net(net_text("DataAugmentation", text, [(1, 3, n, n)]), "TEST") for n in (2, 4))
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 2)).astype(np.float32)
    params, state = small.init(jax.random.key(0))
    state = small.apply(params, state, {"b0": x})[1]
    small.save(params, state, tmp_path / "small.caffemodel")
    tops, _ = large.apply(*large.load(tmp_path / "small.caffemodel"), {"b0": np.zeros((1, 3, 4, 4), np.float32)})
    expected = np.broadcast_to(-x.mean((2, 3), keepdims=True), (1, 3, 4, 4))
    np.testing.assert_allclose(tops["t0"], expected, atol=1e-6)
    gray = Net(net_text("DataAugmentation", text, [(1, 1, 4, 4)]), "TEST")
    with pytest.raises(WeightsError, match="blob 1 is 1 x 3 x 2 x 2 in the file, 1 x 1 x 4 x 4 in the net"):
        gray.load(tmp_path / "small.caffemodel")


def test_a_mean_of_the_settings_is_subtracted() -> None:
    x = np.ones((1, 3, 2, 2))
    text = "augmentation_param {{ mean: 1 mean: 2 mean: 3 mean_per_pixel: {} }}"
    (result,) = run_layer("DataAugmentation", text.format("false"), x)
    np.testing.assert_array_equal(result[0, :, 0, 0], [0, -1, -2])
    np.testing.assert_array_equal(run_layer("DataAugmentation", text.format("true"), x)[0], x)


def generate(settings: str, *bottoms: np.ndarray, phase: Any = "TRAIN", schedule: str = "", passes: int = 1) -> Any:
    shapes = [b.shape for b in bottoms]
    text = net_text("GenerateAugmentationParameters", f"augmentation_param {{ {settings} }} {schedule}", shapes)
    net = Net(text, phase)
    params, state = net.init(jax.random.key(0))
    for n in range(passes):
        inputs = {f"b{i}": np.asarray(b, np.float32) for i, b in enumerate(bottoms)}
        tops, state = net.apply(params, state, inputs, jax.random.key(n))
    return np.asarray(tops["t0"])[:, :, 0, 0]


SIZES = "crop_width: 16 crop_height: 8"
MANY = np.zeros((4000, 1, 12, 24))


def column(rows: np.ndarray, name: str) -> np.ndarray:
    return rows[:, COEFFICIENTS.index(name)]


def test_coefficients_have_the_distributions_of_the_settings() -> None:
    rows = generate(
        f"""{SIZES} gamma {{ rand_type: "gaussian" exp: true mean: 0.5 spread: 0.2 }}
        brightness {{ rand_type: "uniform" mean: 1 spread: 0.5 multiplier: 2 }}
        contrast {{ rand_type: "uniform_bernoulli" exp: true mean: 1 spread: 0.5 prob: 0.25 }}
        color {{ rand_type: "gaussian_bernoulli" exp: true spread: 0.1 apply_schedule: false }}
        sat_pow {{ exp: true spread: 0.1 }} shadow_angle {{ spread: 2 discretize: true }}
        mirror {{ rand_type: "bernoulli" prob: 0.75 }}""",
        MANY,
        schedule="coeff_schedule_param { half_life: 1 initial_coeff: 0 final_coeff: 1 }",
    )
    factor = 2 / (1 + math.exp(-1.0986)) - 1
    gamma, brightness, contrast = (column(rows, n) for n in ("gamma", "brightness", "contrast"))
    np.testing.assert_allclose([gamma.mean(), gamma.std()], [0.5, 0.2 * factor], atol=0.01)
    np.testing.assert_allclose([brightness.min(), brightness.max()], [2 - factor, 2 + factor], atol=0.01)
    np.testing.assert_allclose((contrast != 0).mean(), 0.25, atol=0.03)
    np.testing.assert_allclose(contrast[contrast != 0].mean(), 1, atol=0.03)
    colors = np.stack([column(rows, f"color{k}") for k in (1, 2, 3)])
    np.testing.assert_allclose(colors.std(1), 0.1, atol=0.01)
    assert abs(np.corrcoef(colors) - np.eye(3)).max() < 0.1
    np.testing.assert_array_equal(column(rows, "pow_withmean1"), column(rows, "pow_withmean2"))
    assert set(column(rows, "shadow_angle")) == {-1, 0, 1}
    assert not column(rows, "shadow_strength").any()
    np.testing.assert_allclose(column(rows, "mirror").mean(), 0.75, atol=0.03)


def test_drawn_positions_stay_inside_the_image() -> None:
    settings = f"""{SIZES} translate {{ spread: 0.3 }} rotate {{ spread: 0.5 }} zoom {{ exp: true spread: 0.4 }}
        squeeze {{ exp: true spread: 0.3 }}"""
    rows = generate(settings, MANY[:500])
    assert column(rows, "dx").std() > 0.05
    assert not np.array_equal(column(rows, "dx"), column(rows, "dy"))
    corners = np.array([[0, 15, 0, 15], [0, 0, 7, 7], [1] * 4])
    positions = np.floor(np.asarray(make_matrices(unpack(rows), Geometry((12, 24), (8, 16)))) @ corners)
    assert (positions.min((0, 2)) >= 0).all()
    assert (positions.max((0, 2)) <= [22, 10]).all()
    far = generate(f"{SIZES} translate_x {{ mean: 5 }}", MANY[:3])
    assert not far.any()  # no try fits


def test_given_coefficients_are_kept_added_to_or_replaced() -> None:
    given = np.zeros((4, 42, 1, 1))
    given[:, COEFFICIENTS.index("gamma")], given[:, COEFFICIENTS.index("dx")] = 0.5, 0.125
    given[:, COEFFICIENTS.index("noise")] = 0.25
    images, crops = np.zeros((4, 3, 12, 24)), np.zeros((4, 3, 8, 16))
    settings = "gamma { exp: true mean: 1 } translate_x { mean: -0.0625 }"
    added = generate(settings, given, images, crops)
    np.testing.assert_allclose(added[:, [COEFFICIENTS.index(n) for n in ("gamma", "dx", "noise")]],
                               [[1.5, 0.0625, 0.25]] * 4, rtol=1e-6)  # fmt: skip
    replaced = generate(f'mode: "replace" {settings}', given, images, crops)
    np.testing.assert_allclose(column(replaced, "gamma"), 1, rtol=1e-6)
    np.testing.assert_allclose(column(replaced, "noise"), 0.25)
    np.testing.assert_array_equal(generate(settings, given, images, crops, phase="TEST"), given[:, :, 0, 0])


@pytest.mark.parametrize("seed", range(3))
def test_flow_is_changed_as_by_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    flow, rows = random.normal(size=(2, 2, 9, 11)) * 2, np.zeros((2, 2, 42))
    rows[:, :, :6] = random.normal(size=(2, 2, 6)) * 0.1
    rows[:, :, 0] = [[0, 0], [1, 1]]
    flow[0, :, 4, 5] = np.nan
    expected = np.zeros((2, 2, 4, 5))
    for n, i, j in np.ndindex(2, 4, 5):
        first, second = (read_row(r[n], drops_small=False) for r in rows)
        x, y = move(first, j, i, (4, 5), (9, 11))
        k, m = int(y + 0.5), int(x + 0.5)
        x, y = x + flow[n, 0, k, m], y + flow[n, 1, k, m]
        corner = np.array(move(second, 0, 0, (4, 5), (9, 11)))
        matrix = np.stack([np.array(move(second, a, b, (4, 5), (9, 11))) - corner for a, b in ((1, 0), (0, 1))], axis=1)
        expected[n, :, i, j] = np.linalg.solve(matrix, np.array([x, y]) - corner) - [j, i]
    text = "augmentation_param { crop_width: 5 crop_height: 4 }"
    (result,) = run_layer("FlowAugmentation", text, flow, *rows[:, :, :, None, None])
    np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        (
            "DataAugmentation",
            "crop_width: 9 crop_height: 4",
            [(1, 3, 4, 8)],
            "crop_width 9 must be at least 2 and at most",
        ),
        ("DataAugmentation", "chromatic_eigvec: 1", [(1, 3, 4, 8)], "chromatic_eigvec must have 9 values"),
        ("DataAugmentation", 'zoom { rand_type: "cauchy" }', [(1, 3, 4, 8)], "zoom.rand_type must be one of"),
        ("DataAugmentation", "", [(1, 3)], "needs images with 4 axes"),
        (
            "DataAugmentation",
            "crop_width: 4 crop_height: 4",
            [(1, 3, 4, 8), (1, 6)],
            "needs 42 augmentation coefficients",
        ),
        ("GenerateAugmentationParameters", "", [(1, 3, 4, 8)], "crop_width and crop_height must be set"),
        ("GenerateAugmentationParameters", "", [(1, 42, 1, 1), (1, 3, 4, 8)], "needs 1 bottom, or 3"),
        ("GenerateAugmentationParameters", SIZES, [(1, 42, 1, 1)], "need bottomwidth and bottomheight"),
        ("GenerateAugmentationParameters", f'{SIZES} mode: "no"', [(1, 3, 4, 8)], "mode must be 'add', 'replace'"),
        ("FlowAugmentation", SIZES, [(1, 3, 12, 24), (1, 42, 1, 1), (1, 42, 1, 1)], "needs a flow"),
        (
            "FlowAugmentation",
            f"{SIZES} zoom {{ }} mode: 'no'",
            [(1, 2, 12, 24), *[(1, 42, 1, 1)] * 2],
            "augmentation_param: mode, zoom would have no effect",
        ),
        ("FlowAugmentation", "", [(1, 2, 12, 24), (1, 42, 1, 1), (1, 42, 1, 1)], "crop_width and crop_height must be"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, f"augmentation_param {{ {text} }}", shapes), "TRAIN")
