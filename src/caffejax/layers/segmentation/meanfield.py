"""MultiStageMeanfield: mean-field iterations of a dense conditional random field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import require
from ...kernels.vma import vary_as
from ..context import Context, ParamSpec
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .permutohedral import Lattice, build_lattice, filter_by_lattice

Arrays = tuple[jax.Array, ...]


def multi_stage_meanfield(
    ctx: Context, blobs: Arrays, unary: jax.Array, start: jax.Array, image: jax.Array
) -> jax.Array:
    """Scores after `num_iterations` mean-field iterations of a dense conditional random field, (N, classes, H, W).

    Bottoms: unary scores and start scores, (N, classes, H, W) each, and an image (N, channels, H, W). An iteration
    computes unary - compatibility * messages. The messages are the sum of two filters of the softmax of the scores. One
    filter is a Gaussian of the position, with deviation theta_gamma. The other is a Gaussian of position and colour,
    with deviations theta_alpha and theta_beta. Both are computed by a permutohedral lattice, as in the fork, divided by
    the sum of their weights, and multiplied by a matrix over the classes. Blobs: the matrices of both filters, and the
    compatibility, (1, 1, classes, classes) each. The image gets no gradient.
    """
    _check(ctx, unary, start, image)
    p, classes = ctx.param, unary.shape[1]
    by_place, by_color, compatibility = (b.reshape(classes, classes) for b in blobs)
    height, width = image.shape[2:]
    rows, columns = jnp.indices((height, width), unary.dtype).reshape(2, -1)
    places = jnp.stack([columns, rows], axis=1)
    near = _make_filter(build_lattice(places / p.theta_gamma))

    def infer(unary: jax.Array, start: jax.Array, image: jax.Array) -> jax.Array:
        unary, start, colors = (a.reshape(-1, height * width).T for a in (unary, start, image))
        alike = _make_filter(build_lattice(jnp.concatenate([places / p.theta_alpha, colors / p.theta_beta], 1)))

        def iterate(scores: jax.Array, _: None) -> tuple[jax.Array, None]:
            shares = jax.nn.softmax(scores, axis=1)
            messages = near(shares) @ by_place.T + alike(shares) @ by_color.T
            return unary - messages @ compatibility.T, None

        first = vary_as(start, unary, image, *blobs)
        return jax.lax.scan(iterate, first, length=p.num_iterations)[0].T.reshape(classes, height, width)

    return jax.vmap(infer)(unary, start, jax.lax.stop_gradient(image))


def _make_filter(lattice: Lattice) -> Callable[[jax.Array], jax.Array]:
    """Return a function that filters by the lattice and divides by the sums of its weights."""
    points = len(lattice.weights)
    sums = filter_by_lattice(lattice, jnp.ones((points, 1), lattice.weights.dtype)) + 1e-20
    return lambda x: filter_by_lattice(lattice, x) / sums


def multi_stage_meanfield_params(ctx: Context, unary: Any, start: Any, image: Any) -> list[ParamSpec]:
    _check(ctx, unary, start, image)
    p, classes = ctx.param, unary.shape[1]
    identity = np.eye(classes, dtype=np.float32).reshape(1, 1, classes, classes)
    weights = (p.spatial_filter_weight * identity, p.bilateral_filter_weight * identity, -identity)
    return [ParamSpec(identity.shape, value=w) for w in weights]


def _draw_image(ctx: Context, random: np.random.Generator, unary: Any, start: Any, image: Any) -> np.ndarray:
    return random.normal(size=image.shape)


register(
    LayerType(
        Signature("MultiStageMeanfield", bottoms=3, param="multi_stage_meanfield_param", in_place=False),
        Traced(multi_stage_meanfield, params=multi_stage_meanfield_params),
        Gradient(indices=Indices((2,), ignores_gradient=True, sample=_draw_image)),
        LayerTraits(row_wise=True, weight_axes=4),
        docs=LayerDocs(origin="CRF-RNN"),
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
