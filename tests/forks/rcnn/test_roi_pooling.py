"""Tests of PSROIPooling and ROIPooling."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from layer_nets import run_layer
from layer_suite import fork_properties, layer_case, recorded
from rcnn.cases import (
    MAP_SHAPE,
    MAPS,
    POOL,
    ROI_SHAPE,
    ROIS,
    draw_overhanging_rois,
    draw_rois,
    make_net,
    run_net,
)

test_recorded = recorded("PSROIPooling", "ROIPooling", family="rcnn")
test_properties = fork_properties(
    layer_case("ROIPooling", f"roi_pooling_param {{ {POOL} }}", MAPS, ROIS, samplers={"b1": draw_rois}),
    layer_case(
        "PSROIPooling",
        "psroi_pooling_param { output_dim: 2 group_size: 3 spatial_scale: 0.5 }",
        (2, 18, 6, 7),
        ROIS,
        samplers={"b1": draw_rois},
    ),
)


def round_away(x: Any) -> Any:
    return np.sign(x) * np.floor(abs(x) + 0.5)


def psroi_by_loops(x: np.ndarray, rois: np.ndarray, outputs: int, groups: int, scale: float) -> np.ndarray:
    height, width = x.shape[2:]
    top = np.zeros((len(rois), outputs, groups, groups))
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = round_away(np.asarray(corners))
        x1, y1, x2, y2 = (Fraction(c * scale) for c in (x1, y1, x2 + 1, y2 + 1))  # exact, so that borders are
        h, w = (max(side, Fraction(0.1)) / groups for side in (y2 - y1, x2 - x1))
        for c, i, j in np.ndindex(outputs, groups, groups):
            rows = [a for a in range(height) if math.floor(y1 + i * h) <= a < math.ceil(y1 + (i + 1) * h)]
            columns = [a for a in range(width) if math.floor(x1 + j * w) <= a < math.ceil(x1 + (j + 1) * w)]
            cells = [x[int(image), (c * groups + i) * groups + j, a, b] for a in rows for b in columns]
            top[r, c, i, j] = np.mean(cells) if cells else 0
    return top


def sample(maps: np.ndarray, y: float, x: float) -> np.ndarray:
    """Return the bilinear sample of maps (C, H, W) at (y, x); 0 if it is more than half a cell outside."""
    height, width = maps.shape[1:]
    if not (-0.5 <= y <= height - 0.5 and -0.5 <= x <= width - 0.5):
        return np.zeros(len(maps))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    i, j = min(int(y), height - 1), min(int(x), width - 1)
    i1, j1 = min(i + 1, height - 1), min(j + 1, width - 1)
    upper = maps[:, i, j] * (1 - (x - j)) + maps[:, i, j1] * (x - j)
    lower = maps[:, i1, j] * (1 - (x - j)) + maps[:, i1, j1] * (x - j)
    return upper * (1 - (y - i)) + lower * (y - i)


def align_by_loops(x: np.ndarray, rois: np.ndarray, h: int, w: int, scale: float, pad: float) -> np.ndarray:
    top = np.zeros((len(rois), x.shape[1], h + 1, w + 1))
    for r, (image, x1, y1, x2, y2) in enumerate(rois):
        pad_w, pad_h = pad * (x2 - x1 + 1), pad * (y2 - y1 + 1)
        left, low, right, high = ((x1 - pad_w), (y1 - pad_h), (x2 + pad_w), (y2 + pad_h))
        if right > left and high > low:
            for i, j in np.ndindex(h + 1, w + 1):
                sample_positions = (
                    low * scale + i * (high - low) * scale / h - 0.5,
                    left * scale + j * (right - left) * scale / w - 0.5,
                )
                top[r, :, i, j] = sample(x[int(image)], *sample_positions)
    return top


def warp_by_loops(x: np.ndarray, rois: np.ndarray, h: int, w: int, scale: float) -> np.ndarray:
    top = np.zeros((len(rois), x.shape[1], h, w))
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = round_away(np.asarray(corners) * scale)
        for i, j in np.ndindex(h, w):
            top[r, :, i, j] = sample(x[int(image)], y1 + i * max(y2 - y1, 0) / h, x1 + j * max(x2 - x1, 0) / w)
    return top


@pytest.mark.parametrize("seed", range(4))
def test_roi_pooling_layers_equal_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    scale, pad = (0.25, 0.375, 0.5, 1)[seed], (0, 0.1, 0.25, 0.5)[seed]
    h, w, groups = random.integers(1, 5, 3)
    x = random.normal(size=(2, 3 * groups**2, 6, 7))
    corners = random.uniform(-2, 8 / scale, (9, 2, 2))
    rois = np.concatenate([random.integers(0, 2, (9, 1)), corners.min(1), corners.max(1)], axis=1)
    pooled_size = f"pooled_h: {h} pooled_w: {w} spatial_scale: {scale}"
    (top,) = run_layer(
        "PSROIPooling", f"psroi_pooling_param {{ output_dim: 3 group_size: {groups} spatial_scale: {scale} }}", x, rois
    )
    np.testing.assert_allclose(top, psroi_by_loops(x, rois, 3, groups, scale), atol=1e-5)
    (top,) = run_layer("ROIAlign", f"roi_pooling_param {{ {pooled_size} pad_ratio: {pad} }}", x, rois)
    np.testing.assert_allclose(top, align_by_loops(x, rois, h, w, scale, pad), atol=1e-4)
    (top,) = run_layer("ROIWarping", f"roi_warping_param {{ {pooled_size} }}", x, rois)
    np.testing.assert_allclose(top, warp_by_loops(x, rois, h, w, scale), atol=1e-4)


def pool_by_loops(x: np.ndarray, rois: np.ndarray, n: int, scale: float) -> np.ndarray:
    height, width = x.shape[2:]
    top = np.zeros((len(rois), x.shape[1], n, n), np.float32)
    for r, (image, *box) in enumerate(rois.astype(np.float32)):
        x1, y1, x2, y2 = (int(np.sign(v) * np.floor(abs(v) + 0.5)) for v in np.float32(box) * np.float32(scale))
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(n):
            for j in range(n):
                rows = slice(*np.clip([y1 + i * h // n, y1 - (-(i + 1) * h // n)], 0, height))
                columns = slice(*np.clip([x1 + j * w // n, x1 - (-(j + 1) * w // n)], 0, width))
                cells = x[int(image), :, rows, columns]
                if cells.size:
                    top[r, :, i, j] = cells.max(axis=(1, 2))
    return top


@pytest.mark.parametrize(("channels", "height", "width", "n"), [(3, 9, 14, 4), (2, 1, 33, 7), (700, 20, 31, 3)])
def test_roi_pooling_equals_loops(channels: int, height: int, width: int, n: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, channels, height, width)).astype(np.float32)
    rois = draw_overhanging_rois(random, 12, 2, 16 * max(height, width))
    pooling_net = make_net(
        "ROIPooling",
        f"roi_pooling_param {{ pooled_h: {n} pooled_w: {n} spatial_scale: 0.0625 }}",
        [x.shape, rois.shape],
    )
    np.testing.assert_array_equal(run_net(pooling_net, x, rois)[0], pool_by_loops(x, rois, n, 0.0625))


def test_roi_pooling_gives_the_first_of_equal_maxima_the_gradient() -> None:
    pooling_net = make_net("ROIPooling", "roi_pooling_param { pooled_h: 1 pooled_w: 1 }", [(1, 1, 5, 6), (2, 5)])
    rois = np.asarray([[0, 1, 1, 4, 4], [0, 2, 2, 3, 3]], np.float32)
    grad = jax.grad(lambda x: pooling_net.apply({}, {}, {"b0": x, "b1": rois})[0]["t0"].sum())(jnp.ones((1, 1, 5, 6)))
    assert np.argwhere(grad[0, 0]).tolist() == [[1, 1], [2, 2]]


def test_padding_rois_are_finite_and_missing_images_give_nan() -> None:
    x = np.ones((2, 2, 6, 6), np.float32)
    rois = np.asarray([[1, 0, 0, 3, 3], [-1, 0, 0, 0, 0], [2, 0, 0, 3, 3]], np.float32)
    for layer_type, text in {
        "ROIPooling": "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
        "ROIAlign": "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
        "PSROIPooling": "psroi_pooling_param { output_dim: 2 group_size: 1 spatial_scale: 1 }",
    }.items():
        (top,) = run_net(make_net(layer_type, text, [x.shape, rois.shape]), x, rois)
        assert np.isfinite(top[:2]).all(), layer_type
        assert np.isnan(top[2]).all(), layer_type


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "words"),
    [
        (
            "ROIPooling",
            "roi_pooling_param { pooled_h: 2 }",
            [MAP_SHAPE, ROI_SHAPE],
            "pooled_h and pooled_w must be > 0",
        ),
        ("ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }", [MAP_SHAPE, (4, 4)], "five values in each row"),
        (
            "PSROIPooling",
            "psroi_pooling_param { output_dim: 3 group_size: 3 spatial_scale: 1 }",
            [MAP_SHAPE, ROI_SHAPE],
            "27 channels, but bottom 0 has 18",
        ),
    ],
)
def test_invalid_settings_and_bottoms_are_rejected(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], words: str
) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{words}"):
        make_net(layer_type, text, shapes, 2 if layer_type == "BoxAnnotatorOHEM" else 1)
