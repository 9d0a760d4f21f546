"""MultiStageMeanfield: mean-field iterations of a dense conditional random field."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ...kernels.host_constant import table
from ...kernels.vma import vary_as
from ..context import Context, ParamSpec
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced

Arrays = tuple[jax.Array, ...]


def multi_stage_meanfield(
    ctx: Context, blobs: Arrays, unary: jax.Array, start: jax.Array, image: jax.Array
) -> jax.Array:
    """Scores after `num_iterations` mean-field iterations of a dense conditional random field, (N, classes, H, W).

    Bottoms: unary scores and start scores, (N, classes, H, W) each, and an image (N, channels, H, W). An iteration
    computes unary - compatibility * messages. The messages are the sum of two filters of the softmax of the scores. One
    filter is a Gaussian of the position, with deviation theta_gamma. The other is a Gaussian of position and colour,
    with deviations theta_alpha and theta_beta. Each filter is divided by the sum of its weights, and multiplied by a
    matrix over the classes. Blobs: the matrices of both filters, and the compatibility, (1, 1, classes, classes) each.
    """
    _check(ctx, unary, start, image)
    p, classes = ctx.param, unary.shape[1]
    by_place, by_colour, compatibility = (b.reshape(classes, classes) for b in blobs)
    features = _features(p, image)
    places = plane_filter(jnp.ones(unary.shape[2:], unary.dtype), p.theta_gamma)
    colours = jax.vmap(gaussian_filter)(jnp.ones((*features.shape[:2], 1), unary.dtype), features)

    def iterate(scores: jax.Array, _: None) -> tuple[jax.Array, None]:
        shares = jax.nn.softmax(scores, axis=1)
        near = plane_filter(shares, p.theta_gamma) / places
        pixels = shares.reshape(*shares.shape[:2], shares.shape[2] * shares.shape[3]).swapaxes(1, 2)
        alike = (jax.vmap(gaussian_filter)(pixels, features) / colours).swapaxes(1, 2).reshape(shares.shape)
        messages = _mix_classes(by_place, near) + _mix_classes(by_colour, alike)
        return unary - _mix_classes(compatibility, messages), None

    first = vary_as(start, unary, image, *blobs)
    return jax.lax.scan(iterate, first, length=p.num_iterations)[0]


def multi_stage_meanfield_params(ctx: Context, unary: Any, start: Any, image: Any) -> list[ParamSpec]:
    _check(ctx, unary, start, image)
    p, classes = ctx.param, unary.shape[1]
    identity = np.eye(classes, dtype=np.float32).reshape(1, 1, classes, classes)
    weights = (p.spatial_filter_weight * identity, p.bilateral_filter_weight * identity, -identity)
    return [ParamSpec(identity.shape, value=w) for w in weights]


register(
    LayerType(
        Signature("MultiStageMeanfield", bottoms=3, param="multi_stage_meanfield_param", in_place=False),
        Traced(multi_stage_meanfield, params=multi_stage_meanfield_params),
        Gradient(),
        LayerTraits(row_wise=True, weight_axes=4),
        docs=LayerDocs(
            origin="CRF-RNN",
            restrictions="Filters are exact, where the fork's permutohedral lattice approximates them; the time of the "
            "color filter grows with the square of the number of pixels.",
        ),
    )
)


def _check(ctx: Context, unary: Any, start: Any, image: Any) -> None:
    p = ctx.param
    require(len(unary.shape) == 4, f"needs scores with 4 axes (num, classes, height, width), not {unary.shape}")
    require(unary.shape == start.shape, f"bottoms 0 and 1 must have equal shapes, not {unary.shape} and {start.shape}")
    require(
        len(image.shape) == 4 and image.shape[0] == unary.shape[0] and image.shape[2:] == unary.shape[2:],
        f"bottom 2 must have the number and size of images of the scores {unary.shape}, not {image.shape}",
    )
    require(p.num_iterations > 0, "num_iterations must be positive")
    for name in ("theta_alpha", "theta_beta", "theta_gamma"):
        require(getattr(p, name) > 0, f"{name} must be positive, not {getattr(p, name):g}")


def _features(p: Any, image: jax.Array) -> jax.Array:
    """Return position and colour of each pixel, divided by their deviations: (num, pixels, 2 + channels)."""
    num, channels, height, width = image.shape
    place = table(lambda: _places(height, width) / p.theta_alpha, (height * width, 2), image.dtype)
    places = jnp.broadcast_to(place, (num, height * width, 2))
    colours = image.reshape(num, channels, height * width).swapaxes(1, 2) / p.theta_beta
    return jnp.concatenate([places, colours], axis=2)


def _places(height: int, width: int) -> np.ndarray:
    return np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).reshape(-1, 2)


def _mix_classes(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("ij,njhw->nihw", weights, x)


_BLOCK = 2**24  # weights in one block


def gaussian_filter(x: jax.Array, features: jax.Array) -> jax.Array:
    """Return for each point the sum of x over all points, weighted by exp(-d**2 / 2).

    Weights are computed block by block, so that they are never all in memory, and recomputed for the gradient.

    Args:
        x: (points, channels).
        features: (points, n); d is the distance of two points' features.
    """
    points, n = features.shape
    rows = max(1, min(points, _BLOCK // points))
    blocks = -(-points // rows)
    padded = jnp.pad(features, ((0, blocks * rows - points), (0, 0))).reshape(blocks, rows, n)

    @jax.checkpoint
    def block(some: jax.Array) -> jax.Array:
        square = sum(jnp.square(some[:, k, None] - features[:, k]) for k in range(n))
        return jnp.exp(-square / 2) @ x

    return jax.lax.map(block, padded).reshape(blocks * rows, -1)[:points]


def plane_filter(x: jax.Array, deviation: float) -> jax.Array:
    """Return for each pixel the sum of x over all pixels, weighted by exp(-d**2 / 2), (..., height, width).

    d is the distance of two pixels divided by `deviation`, in pixels.
    """
    for axis in (-2, -1):
        n = x.shape[axis]
        weights = table(partial(_weights, n, deviation), (n, n), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, (axis, 0)), -1, axis)
    return x


def _weights(n: int, deviation: float) -> np.ndarray:
    at = np.arange(n) / deviation
    return np.exp(-np.square(at[:, None] - at) / 2)
