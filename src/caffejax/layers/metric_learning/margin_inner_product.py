"""MarginInnerProduct: SphereFace's product, of which that with an example's own class has its angle multiplied."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..axes import canonical_axis
from ..context import Context, ParamSpec
from ..dtypes import promote
from ..loss import class_numbers, own_classes
from ..registry import register
from ..tops import first
from ..types import Gradient, Indices, LayerDocs, LayerTraits, LayerType, Signature, Traced
from ..weights import normalize_rows
from .annealing import annealed, next_pass, passes

Arrays = tuple[jax.Array, ...]


def margin_inner_product(ctx: Context, blobs: Arrays, x: jax.Array, labels: jax.Array) -> tuple[Any, Arrays]:
    """x times the weight's rows at length 1, with |x| psi(angle) for the own class, mixed with the product by lambda.

    psi makes m = 1 .. 4 (SINGLE .. QUADRUPLE) of the angle: a falling (-1)^k cos(m angle) - 2k. The own class has
    (|x| psi + lambda x'w) / (1 + lambda), lambda = max(lambda_min, base (1 + gamma t)^-power) after t passes; a second
    top holds it. Gradients follow the fork: the weight's ignores the margin, the bottom's has unit coefficients.
    """
    weight, count = blobs
    count = next_pass(count)
    mixed = _lambda(ctx, count)
    product, cosine, norm = _products(ctx, weight, x)
    own, value, _ = _margin(ctx, labels, cosine)
    top = jnp.where(own, (norm * value + mixed * product) / (1 + mixed), product)
    top = jnp.where(jnp.any(own, axis=1, keepdims=True), top, jnp.nan).astype(x.dtype)
    tops = (top, mixed.astype(x.dtype)) if ctx.n_tops == 2 else top
    return tops, (count,)


def margin_inner_product_params(ctx: Context, x: Any, labels: Any) -> list[ParamSpec]:
    p = ctx.param
    axis = canonical_axis(p.axis, x.shape)
    require(axis == 1, f"has a label for each item along axis 0; axis must be 1, not {p.axis}")
    require(p.num_output > 0, "num_output must be positive")
    require(
        math.prod(labels.shape[1:]) == 1 and labels.shape[:1] == x.shape[:1],
        f"needs one label per item: data {x.shape}, labels {labels.shape}",
    )
    inputs = math.prod(x.shape[1:])
    return [ParamSpec((p.num_output, inputs), p.weight_filler, rewritten=normalize_rows), passes(p.iteration)]


def margin_inner_product_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[Any, ...]:
    weight, count = blobs
    d_top = promote(first(dy))
    mixed = _lambda(ctx, next_pass(count))
    _, cosine, norm = _products(ctx, weight, x)
    own, value, slope = _margin(ctx, labels, cosine)
    rows, unit = _rows(x), promote(normalize_rows(weight))
    if _times(ctx) == 1:
        along_w, along_x = jnp.ones_like(cosine), jnp.zeros_like(cosine)
    else:  # the derivative of |x| psi by x, with its two coefficients brought to length 1 together
        along_w, along_x = slope, (value - slope * cosine) / norm
        length = jnp.sqrt(jnp.square(along_w) + jnp.square(along_x))
        along_w, along_x = along_w / length, along_x / length
    share = jnp.where(own, d_top / (1 + mixed), 0)
    into_product = jnp.where(own, share * (along_w + mixed), d_top)
    dx = into_product @ unit + jnp.sum(share * along_x, axis=1, keepdims=True) * rows
    return (d_top.T @ rows, None), dx.reshape(x.shape), None


def _classes(ctx: Context, x: Any, labels: Any) -> int:
    return int(ctx.param.num_output)


register(
    LayerType(
        Signature("MarginInnerProduct", bottoms=2, tops=(1, 2), param="margin_inner_product_param", in_place=False),
        Traced(margin_inner_product, params=margin_inner_product_params, stateful=True),
        Gradient(
            margin_inner_product_backward,
            overrides_autodiff=True,
            indices=Indices((1,), _classes),
            exempt_from_force_backward=(1,),
            not_derivative="The weight's gradient is that of the plain product; the bottom's is normalised.",
        ),
        LayerTraits(weight_axes=2),
        docs=LayerDocs(origin="SphereFace"),
    )
)


def _times(ctx: Context) -> int:
    return int(ctx.param.type) + 1


def _lambda(ctx: Context, count: jax.Array) -> jax.Array:
    p = ctx.param
    return jnp.maximum(annealed(p.base, p.gamma, p.power, count), p.lambda_min)


def _rows(x: jax.Array) -> jax.Array:
    return promote(x).reshape(x.shape[0], -1)


def _products(ctx: Context, weight: jax.Array, x: jax.Array) -> Arrays:
    """Return x'w, the angles' cosines and the lengths of x."""
    rows = _rows(x)
    product = rows @ promote(normalize_rows(weight)).T
    norm = jnp.sqrt(jnp.sum(jnp.square(rows), axis=1, keepdims=True))
    return product, product / norm, norm


def _margin(ctx: Context, labels: jax.Array, cosine: jax.Array) -> Arrays:
    """Return where the own classes are, psi, and its derivative by the cosine."""
    times, c = _times(ctx), cosine
    chebyshev, slope = _CHEBYSHEV[times](c)
    # the angle lies between k and k + 1 of m parts of pi: k bounds are passed, at cos(pi j / m)
    k = sum(jnp.asarray(c < math.cos(math.pi * j / times), c.dtype) for j in range(1, times)) + jnp.zeros_like(c)
    sign = 1 - 2 * (k % 2)
    own = own_classes(class_numbers(labels, c.shape[1]), c.shape)
    return own, sign * chebyshev - 2 * k, sign * slope


_CHEBYSHEV: dict[int, Any] = {  # cos(m angle) and its derivative, by the cosine
    1: lambda c: (c, jnp.ones_like(c)),
    2: lambda c: (2 * c**2 - 1, 4 * c),
    3: lambda c: (4 * c**3 - 3 * c, 12 * c**2 - 3),
    4: lambda c: (8 * c**4 - 8 * c**2 + 1, 32 * c**3 - 16 * c),
}
