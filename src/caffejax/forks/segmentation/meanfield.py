"""MultiStageMeanfield: mean-field iterations of a conditional random field, filtered by the permutohedral lattice.

The lattice of Adams, Baek and Davis (2010) is a Gaussian filter of points in few dimensions. It has three steps. Splat:
each point adds its values, with barycentric weights, to the d + 1 vertices of the simplex that contains it. Blur: the
values of vertices are blurred along each of the lattice's d + 1 axes. Slice: each point reads from its vertices with
the same weights. As in the paper, only vertices that some point uses exist; values blurred beyond them are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Params, ParamSpec
from ...core.layers.declaration import register
from ...core.layers.types import Indices
from ...core.ops.custom_gradient import make_differentiable
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import MultiStageMeanfieldParameter

# Vertices are compared by two linear 32-bit hashes of their coordinates, since the hash of a neighbor then differs by a
# constant. Each base defines one of the hashes.
_HASH_BASES = (1664525, 22695477)


class Lattice(NamedTuple):
    """A permutohedral lattice for points with d features. It has at most points * (d + 1) vertices.

    Attributes:
        vertices: (points, d + 1), int32, the indices of the vertices of each point's simplex.
        weights: (points, d + 1), the barycentric weights of these vertices.
        neighbors: (d + 1, 2, points * (d + 1) + 1), the two neighbors of each vertex along each axis. The last index is
            a vertex that is always zero and replaces neighbors that do not exist.
    """

    vertices: jax.Array
    weights: jax.Array
    neighbors: jax.Array


def build_lattice(features: jax.Array) -> Lattice:
    """Return the lattice for points with features (num_points, d), in units of the filter's standard deviation."""
    num_points, d = features.shape
    max_vertices = num_points * (d + 1)
    keys, weights = _find_simplices(features)
    factors = np.array([[pow(base, i, 2**32) for i in range(1, d + 1)] for base in _HASH_BASES], np.uint32).view(
        np.int32
    )
    hashes = [
        sum(keys[..., i] * factor for i, factor in enumerate(hash_factors)).reshape(max_vertices)
        for hash_factors in factors
    ]
    first_hash, second_hash, order = lax.sort((*hashes, lax.iota(jnp.int32, max_vertices)), num_keys=2)

    is_new = jnp.concatenate(
        [jnp.ones(1, bool), (first_hash[1:] != first_hash[:-1]) | (second_hash[1:] != second_hash[:-1])]
    )
    group = jnp.cumsum(is_new, dtype=jnp.int32) - 1
    representative = (
        jnp.zeros(max_vertices, jnp.int32).at[jnp.where(is_new, group, max_vertices)].set(order, mode="drop")[group]
    )
    # vertices are numbered in order of appearance, so that the vertices of neighboring pixels are close in memory
    vertex_ids = jnp.cumsum(jnp.zeros(max_vertices, jnp.int32).at[representative].set(1), dtype=jnp.int32) - 1
    vertex = vertex_ids[representative]

    def find_neighbors(shift: jax.Array) -> jax.Array:
        pair_index = _searchsorted_pairs(first_hash, second_hash, first_hash + shift[0], second_hash + shift[1])
        has_neighbor = (first_hash[pair_index] == first_hash + shift[0]) & (
            second_hash[pair_index] == second_hash + shift[1]
        )
        neighbor = jnp.where(has_neighbor, vertex[pair_index], max_vertices)
        no_neighbors = jnp.full(max_vertices + 1, max_vertices, jnp.int32)
        return jnp.stack(
            [
                no_neighbors.at[vertex].set(neighbor),
                no_neighbors.at[neighbor].set(vertex).at[max_vertices].set(max_vertices),
            ]
        )

    steps = (d + 1) * np.eye(d + 1, d, dtype=np.int64) - 1
    shifts = (steps @ factors.T.astype(np.int64)).astype(np.int32)
    vertices = jnp.zeros(max_vertices, jnp.int32).at[order].set(vertex, unique_indices=True)
    return Lattice(vertices.reshape(num_points, d + 1), weights, lax.map(find_neighbors, shifts))


def _find_simplices(features: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the vertices of the simplex that contains each point, and their barycentric weights.

    The vertices, int32 (points, d + 1, d), are coordinates in the lattice. The last coordinate is left out, because the
    sum of all coordinates is 0. The weights have shape (points, d + 1). Each point, mapped to the lattice's hyperplane,
    is rounded to a vertex whose coordinates are multiples of d + 1. The order of the rounding errors by size determines
    which simplex around this vertex contains the point.
    """
    d = features.shape[1]
    deviation = float(np.float32(np.sqrt(2 / 3) * (d + 1)))
    coordinates, suffix_sum = list[jax.Array](), jnp.zeros_like(features[:, 0])
    for j in range(d, 0, -1):  # in the fork's order, for the same rounding
        scaled_feature = features[:, j - 1] * features.dtype.type(1 / np.sqrt(j * (j + 1)) * deviation)
        coordinates.append(suffix_sum - j * scaled_feature)
        suffix_sum += scaled_feature
    elevated_points = jnp.stack([suffix_sum, *reversed(coordinates)], axis=1)
    nearest_vertex = jnp.round(elevated_points * features.dtype.type(1 / (d + 1))).astype(jnp.int32)
    difference = elevated_points - nearest_vertex * (d + 1)
    first_difference, second_difference = difference[:, :, None], difference[:, None, :]
    rank = jnp.sum(
        (first_difference < second_difference)
        | ((first_difference == second_difference) & np.tri(d + 1, k=-1, dtype=bool)),
        axis=2,
        dtype=jnp.int32,
    )
    rank += jnp.sum(nearest_vertex, axis=1, keepdims=True)  # 0 if the rounded point is in the hyperplane
    wraps = (rank < 0).astype(jnp.int32) - (rank > d)
    rank, nearest_vertex = rank + wraps * (d + 1), nearest_vertex + wraps
    sorted_fractions = jnp.sort(difference / (d + 1) - wraps, axis=1)
    weights = jnp.diff(sorted_fractions, axis=1, prepend=sorted_fractions[:, -1:] - 1)
    k = np.arange(d + 1, dtype=np.int32)[:, None]
    keys = nearest_vertex[:, None] * (d + 1) + k - (d + 1) * (rank[:, None] > d - k)
    return keys[..., :d], weights


def _searchsorted_pairs(first: jax.Array, second: jax.Array, *queries: jax.Array) -> jax.Array:
    """Return the index of the first pair that is not less than each queried pair, or of the last pair if all are less.

    `first` and `second`, (n,), contain the sorted pairs, and the two arrays `queries` contain the queried pairs.
    """

    def halve(_: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) // 2
        is_less = (first[middle] < queries[0]) | ((first[middle] == queries[0]) & (second[middle] < queries[1]))
        return jnp.where(is_less, jnp.minimum(middle + 1, high), low), jnp.where(is_less, high, middle)

    size = len(first)
    zeros = vary_as(jnp.zeros(size, jnp.int32), first)
    return lax.fori_loop(0, (size - 1).bit_length(), halve, (zeros, zeros + size - 1))[0]


def _splat_blur_slice(lattice: Lattice, x: jax.Array, *, reverse: bool = False) -> jax.Array:
    vertices, weights, neighbors = lattice
    num_axes, _, size = neighbors.shape
    values = jnp.zeros((size, x.shape[1]), x.dtype).at[vertices].add(weights[:, :, None] * x[:, None])

    def blur(values: jax.Array, neighbor_pair: jax.Array) -> tuple[jax.Array, None]:
        return values + (values[neighbor_pair[0]] + values[neighbor_pair[1]]) / 2, None

    values = lax.scan(blur, values, neighbors, reverse=reverse)[0]
    return jnp.einsum("pv,pvc->pc", weights, values[vertices]) / (1 + 2.0 ** (1 - num_axes))


def filter_by_lattice(lattice: Lattice, x: jax.Array) -> jax.Array:
    """Return a weighted sum of all points for each point, (points, channels), an approximation of a Gaussian filter.

    In the sum for a point, the row of x, (points, channels), for a point at distance d has the weight exp(-d**2 / 2),
    up to a constant factor; to remove the factor, divide by the result for ones. The gradient is the filter with its
    axes in reverse order. The features of the lattice get no gradient.
    """
    return _filter(lattice, x)


_filter = make_differentiable(
    lambda lattice, x: (_splat_blur_slice(lattice, x), lattice),
    lambda lattice, diff, _: (None, _splat_blur_slice(lattice, diff, reverse=True)),
)


Arrays = tuple[jax.Array, ...]


def _sample_image(random: np.random.Generator, unary: Any, start: Any, image: Any) -> np.ndarray:
    return random.normal(size=image.shape)


@register(
    "MultiStageMeanfield",
    bottoms=3,
    param="multi_stage_meanfield_param",
    in_place=False,
    indices=Indices((2,), ignores_gradient=True, sample=_sample_image),
    row_wise=True,
    weight_axes=4,
    blob_names=("spatial_weight", "bilateral_weight", "compatibility"),
    origin="CRF-RNN",
)
def multi_stage_meanfield(
    p: MultiStageMeanfieldParameter, params: Params, unary: jax.Array, start: jax.Array, image: jax.Array
) -> jax.Array:
    """Compute `num_iterations` mean-field iterations of a dense conditional random field.

    Bottoms: unary scores and start scores, (N, classes, H, W) each, and an image (N, channels, H, W). The top, (N,
    classes, H, W), contains the scores after the last iteration. An iteration computes unary - compatibility *
    messages. The messages are the sum of two filters of the softmax of the scores. The first filter is a Gaussian of
    the position, with deviation theta_gamma. The second is a Gaussian of position and color, with deviations
    theta_alpha and theta_beta. As in the fork, both are computed by a permutohedral lattice, divided by the sum of
    their weights, and multiplied by a matrix over the classes. Blobs: the matrices of both filters, and the
    compatibility, (1, 1, classes, classes) each. The image gets no gradient.
    """
    _check(p, unary, start, image)
    num_classes = unary.shape[1]
    spatial_weights, bilateral_weights, compatibility = (b.reshape(num_classes, num_classes) for b in params.values())
    height, width = image.shape[2:]
    rows, columns = jnp.indices((height, width), unary.dtype).reshape(2, -1)
    positions = jnp.stack([columns, rows], axis=1)
    spatial_filter = _make_filter(build_lattice(positions / p.theta_gamma))

    def infer(unary: jax.Array, start: jax.Array, image: jax.Array) -> jax.Array:
        unary, start, colors = (a.reshape(-1, height * width).T for a in (unary, start, image))
        bilateral_filter = _make_filter(
            build_lattice(jnp.concatenate([positions / p.theta_alpha, colors / p.theta_beta], 1))
        )

        def iterate(scores: jax.Array, _: None) -> tuple[jax.Array, None]:
            probabilities = jax.nn.softmax(scores, axis=1)
            messages = (
                spatial_filter(probabilities) @ spatial_weights.T
                + bilateral_filter(probabilities) @ bilateral_weights.T
            )
            return unary - messages @ compatibility.T, None

        initial_scores = vary_as(start, unary, image, *params.values())
        return jax.lax.scan(iterate, initial_scores, length=p.num_iterations)[0].T.reshape(num_classes, height, width)

    return jax.vmap(infer)(unary, start, jax.lax.stop_gradient(image))


def _make_filter(lattice: Lattice) -> Callable[[jax.Array], jax.Array]:
    """Return a function that filters values (points, channels) by the lattice, and divides by the sums of weights."""
    num_points = len(lattice.weights)
    weight_sums = filter_by_lattice(lattice, jnp.ones((num_points, 1), lattice.weights.dtype)) + 1e-20
    return lambda x: filter_by_lattice(lattice, x) / weight_sums


@multi_stage_meanfield.params
def multi_stage_meanfield_params(
    p: MultiStageMeanfieldParameter, unary: Any, start: Any, image: Any
) -> list[ParamSpec]:
    _check(p, unary, start, image)
    num_classes = unary.shape[1]
    identity = np.eye(num_classes, dtype=np.float32).reshape(1, 1, num_classes, num_classes)
    weights = {
        "spatial_weight": p.spatial_filter_weight * identity,
        "bilateral_weight": p.bilateral_filter_weight * identity,
        "compatibility": -identity,
    }
    return [ParamSpec(identity.shape, value=w, name=name) for name, w in weights.items()]


def _check(p: MultiStageMeanfieldParameter, unary: Any, start: Any, image: Any) -> None:
    require(len(unary.shape) == 4, f"needs scores with 4 axes (num, classes, height, width), not {unary.shape}")
    require(unary.shape == start.shape, f"bottoms 0 and 1 must have equal shapes, not {unary.shape} and {start.shape}")
    require(
        len(image.shape) == 4 and image.shape[0] == unary.shape[0] and image.shape[2:] == unary.shape[2:],
        f"bottom 2 must have the batch size, height and width of the scores {unary.shape}, not {image.shape}",
    )
    require(p.num_iterations > 0, f"num_iterations must be positive, not {p.num_iterations}")
    for name in ("theta_alpha", "theta_beta", "theta_gamma"):
        require(getattr(p, name) > 0, f"{name} must be positive, not {getattr(p, name):g}")
