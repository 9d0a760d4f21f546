"""Tests of MultiStageMeanfield."""

import itertools
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from caffejax.base.errors import CaffejaxError
from caffejax.core.program.net import Net
from caffejax.forks.segmentation.meanfield import build_lattice, filter_by_lattice
from layer_nets import draw_normal, first_top, net_text
from layer_suite import BATCH, Shape, fork_properties, layer_case

MAPS: Shape = (BATCH, 4, 5, 6)
MEANFIELD_PARAM = "multi_stage_meanfield_param { num_iterations: 2 theta_alpha: 3 theta_beta: 2 theta_gamma: 3 }"

test_properties = fork_properties(
    layer_case("MultiStageMeanfield", MEANFIELD_PARAM, MAPS, MAPS, (BATCH, 3, 5, 6)),
)


IMAGE_SHAPE = (2, 4, 5, 6)

RANDOM = np.random.default_rng(0)

STAGE_PARAM = """multi_stage_meanfield_param { num_iterations: 3 theta_alpha: 2.2 theta_beta: 0.7 theta_gamma: 1.5
               spatial_filter_weight: 3 bilateral_filter_weight: 5 }"""

PIXEL_POSITIONS = np.stack(np.meshgrid(np.arange(4), np.arange(3)), -1).reshape(12, 2)  # of an image of 3 x 4 pixels


def compute_lattice_matrix(features: np.ndarray) -> np.ndarray:
    """Return the weights of the lattice's filter by its definition, (points, points), with dictionaries of vertices.

    The vertex of each remainder in a point's simplex is the nearest with this remainder; weights solve for the point.
    """
    points, d = features.shape
    scale = np.sqrt(2 / 3) * (d + 1) / np.sqrt(np.arange(1, d + 1) * np.arange(2, d + 2))
    embedding = np.array([[s] * (j + 1) + [-s * (j + 1)] + [0] * (d - 1 - j) for j, s in enumerate(scale)])
    values: dict[tuple[int, ...], np.ndarray] = {}
    simplices = []
    for point_index, point in enumerate(features.astype(float) @ embedding):
        simplex = []
        for remainder in range(d + 1):
            low = np.floor((point - remainder) / (d + 1)).astype(int)
            vertices = (low + np.array(list(itertools.product([0, 1], repeat=d + 1)))) * (d + 1) + remainder
            vertices = vertices[vertices.sum(1) == 0]
            shifted_point = point + 1e-6 * np.arange(d, -1, -1)  # on faces of simplices, as in the fork
            simplex.append(tuple(vertices[np.square(vertices - shifted_point).sum(1).argmin()]))
        weights = np.linalg.lstsq(np.c_[np.array(simplex), np.ones(d + 1)].T, np.r_[point, 1], rcond=None)[0]
        simplices.append((simplex, weights))
        for vertex, weight in zip(simplex, weights, strict=True):
            values.setdefault(vertex, np.zeros(points))[point_index] += weight
    for step in (d + 1) * np.eye(d + 1, dtype=int) - 1:
        neighbors = {v: [values.get(tuple(v + s * step), 0) for s in (1, -1)] for v in values}
        values = {v: value + sum(neighbors[v]) / 2 for v, value in values.items()}
    rows = [sum(w * values[v] for v, w in zip(*simplex, strict=True)) for simplex in simplices]
    return np.array(rows) / (1 + 2.0**-d)


def test_meanfield_equals_matrix_products() -> None:
    unary, initial_scores, image = draw_normal(1, 2, 3, 4), draw_normal(1, 2, 3, 4), draw_normal(1, 3, 3, 4)
    spatial_weights = compute_lattice_matrix(PIXEL_POSITIONS / 1.5)
    bilateral_weights = compute_lattice_matrix(np.concatenate([PIXEL_POSITIONS / 2.2, image.reshape(3, 12).T / 0.7], 1))
    spatial_weights, bilateral_weights = (
        weights / weights.sum(1, keepdims=True) for weights in (spatial_weights, bilateral_weights)
    )
    q = initial_scores.reshape(2, 12)
    for _ in range(3):
        p = np.exp(q) / np.exp(q).sum(0)
        q = unary.reshape(2, 12) + 3 * (spatial_weights @ p.T).T + 5 * (bilateral_weights @ p.T).T
    top = first_top("MultiStageMeanfield", STAGE_PARAM, unary, initial_scores, image)
    np.testing.assert_allclose(top.reshape(2, 12), q, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_lattice_filter_and_its_gradient_equal_the_matrix_of_the_paper(d: int) -> None:
    features, identity = draw_normal(9, d) * 2, np.eye(9, dtype=np.float32)

    @jax.jit
    def filter_with_transpose(features: Any) -> tuple[Any, Any]:
        filtered, transpose = jax.vjp(partial(filter_by_lattice, build_lattice(features)), identity)
        return filtered, transpose(identity)[0]

    filtered, transposed = filter_with_transpose(features)
    expected = compute_lattice_matrix(features)
    np.testing.assert_allclose(filtered, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(transposed, expected.T, rtol=1e-4, atol=1e-4)


def test_lattice_filter_approximates_a_gaussian_filter() -> None:
    rows, columns = np.mgrid[:16, :16]
    image = np.stack([rows * 0.3, np.hypot(rows, columns) * 0.3, np.sin(columns / 3)], -1).reshape(-1, 3)
    features = np.concatenate([np.stack([columns, rows], -1).reshape(-1, 2) / 3, image], 1).astype(np.float32)
    x = np.stack([rows > 7, columns > rows, image[:, 2].reshape(16, 16)], -1).reshape(-1, 3).astype(np.float32)
    gaussian_weights = np.exp(-np.square(features[:, None] - features).sum(-1) / 2)
    apply_filter = jax.jit(lambda features, x: filter_by_lattice(build_lattice(features), x))
    sums = apply_filter(features, np.concatenate([x, np.ones((256, 1), np.float32)], 1))
    result = sums[:, :3] / sums[:, 3:]
    expected = (gaussian_weights @ x) / gaussian_weights.sum(1, keepdims=True)
    assert np.abs(result - expected).mean() < 0.05 * np.ptp(expected)
    assert np.abs(result - expected).max() < 0.2 * np.ptp(expected)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "message"),
    [
        (
            "MultiStageMeanfield",
            "",
            [IMAGE_SHAPE, IMAGE_SHAPE, (2, 3, 5, 5)],
            "batch size, height and width of the scores",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(CaffejaxError, match=rf"layer 'layer' \({layer_type}\): .*{message}"):
        Net(net_text(layer_type, text, shapes, tops=layer_type != "MatWrite"), "TRAIN")
