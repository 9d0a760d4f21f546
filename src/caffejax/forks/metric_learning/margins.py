"""Scores with a margin for each item's class: MarginInnerProduct, CosinAddm, LabelSpecificRescale, LabelSpecificAdd."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ...core.layers.context import Context, Params, ParamSpec, Phase
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import canonical_axis, first_top
from ...core.layers.loss_helpers import label_indices, num_classes_of_rows, one_hot_mask
from ...core.layers.types import Indices
from ...core.layers.weight_and_bias import normalize_rows
from ...core.schema.caffe_pb2 import (
    CosinAddmParameter,
    LabelSpecificAddParameter,
    LabelSpecificRescaleParameter,
    MarginInnerProductParameter,
)


def make_pass_count_spec(start: int) -> ParamSpec:
    """Return the spec of a state array (1,) that counts forward passes, starting from `start`."""
    value = np.array([start], np.float32)
    return ParamSpec((1,), learnable=False, persistent=False, value=value, name="count")


def increment_pass_count(count: jax.Array) -> jax.Array:
    """Return the number of passes plus 1. No gradient passes through it."""
    return jax.lax.stop_gradient(count) + 1


def anneal(base: float, gamma: float, power: float, count: jax.Array) -> jax.Array:
    """Return base * (1 + gamma * count) ^ -power, where `count`, (1,), is the number of passes."""
    return base * jnp.power(1 + gamma * count, -power)


Arrays = tuple[jax.Array, ...]


def _class_count(p: MarginInnerProductParameter, x: Any, labels: Any) -> int:
    return int(p.num_output)


@register(
    "MarginInnerProduct",
    bottoms=2,
    tops=(1, 2),
    param="margin_inner_product_param",
    in_place=False,
    stateful=True,
    overrides_autodiff=True,
    indices=Indices((1,), _class_count),
    deviation="The gradient of the weight ignores the margin; the gradient of the bottom is normalized.",
    weight_axes=2,
    blob_names=("weight", "count"),
    origin="SphereFace",
)
def margin_inner_product(
    p: MarginInnerProductParameter, params: Params, x: jax.Array, labels: jax.Array, *, state: Params, num_tops: int
) -> tuple[Any, Arrays]:
    """Multiply x by the normalized rows of a weight, with an angular margin for the item's class.

    Bottoms: features x (N, ...) and labels (N,). The top is (N, num_output). The layer scales the rows w of the weight
    (num_output, features) to length 1, also in the stored weight. The score of other classes is x'w = |x| cos(angle).
    The score of the item's class is (|x| psi(angle) + lambda x'w) / (1 + lambda), where psi(angle) = (-1)^k cos(m
    angle) - 2k for k pi / m <= angle <= (k + 1) pi / m. The `type` SINGLE .. QUADRUPLE sets m = 1 .. 4. lambda is
    max(lambda_min, base (1 + gamma t)^-power) after t passes; a second top (1,) contains it. As in the fork, the
    gradient of the weight ignores the margin, and the gradient of the bottom is scaled: the vector of the coefficients
    of w and x in the derivative of |x| psi is normalized to length 1.
    """
    count = increment_pass_count(state["count"])
    lambda_ = _compute_lambda(p, count)
    product, cosine, norm = _compute_products(params["weight"], x)
    is_label, psi, _ = _compute_margin(p, labels, cosine)
    top = jnp.where(is_label, (norm * psi + lambda_ * product) / (1 + lambda_), product)
    top = jnp.where(jnp.any(is_label, axis=1, keepdims=True), top, jnp.nan).astype(x.dtype)
    tops = (top, lambda_.astype(x.dtype)) if num_tops == 2 else top
    return tops, (count,)


@margin_inner_product.params
def margin_inner_product_params(p: MarginInnerProductParameter, x: Any, labels: Any) -> list[ParamSpec]:
    axis = canonical_axis(p.axis, x.shape)
    require(axis == 1, f"has a label for each item along axis 0; axis must be 1, not {p.axis}")
    require(p.num_output > 0, f"num_output must be positive, not {p.num_output}")
    require(
        math.prod(labels.shape[1:]) == 1 and labels.shape[:1] == x.shape[:1],
        f"needs one label per item: data {x.shape}, labels {labels.shape}",
    )
    num_features = math.prod(x.shape[1:])
    return [
        ParamSpec((p.num_output, num_features), p.weight_filler, rewrite=normalize_rows, name="weight"),
        make_pass_count_spec(p.iteration),
    ]


@margin_inner_product.backward
def margin_inner_product_backward(
    p: MarginInnerProductParameter, params: Params, x: jax.Array, labels: jax.Array, *, state: Params, y: Any, dy: Any
) -> tuple[Any, ...]:
    weight, d_top = params["weight"], promote(first_top(dy))
    lambda_ = _compute_lambda(p, increment_pass_count(state["count"]))
    _, cosine, norm = _compute_products(weight, x)
    is_label, psi, slope = _compute_margin(p, labels, cosine)
    rows, unit_weight = _flatten_rows(x), promote(normalize_rows(weight))
    if _angle_factor(p) == 1:
        w_coefficient, x_coefficient = jnp.ones_like(cosine), jnp.zeros_like(cosine)
    else:  # coefficients of w and x in the derivative of |x| psi with respect to x, normalized together as in the fork
        w_coefficient, x_coefficient = slope, (psi - slope * cosine) / norm
        length = jnp.sqrt(jnp.square(w_coefficient) + jnp.square(x_coefficient))
        w_coefficient, x_coefficient = w_coefficient / length, x_coefficient / length
    d_label = jnp.where(is_label, d_top / (1 + lambda_), 0)
    d_product = jnp.where(is_label, d_label * (w_coefficient + lambda_), d_top)
    dx = d_product @ unit_weight + jnp.sum(d_label * x_coefficient, axis=1, keepdims=True) * rows
    return (d_top.T @ rows,), dx.reshape(x.shape), None


def _angle_factor(p: MarginInnerProductParameter) -> int:
    return int(p.type) + 1


def _compute_lambda(p: MarginInnerProductParameter, count: jax.Array) -> jax.Array:
    return jnp.maximum(anneal(p.base, p.gamma, p.power, count), p.lambda_min)


def _flatten_rows(x: jax.Array) -> jax.Array:
    return promote(x).reshape(x.shape[0], -1)


def _compute_products(weight: jax.Array, x: jax.Array) -> Arrays:
    """Return the products x'w, the cosines of the angles between x and w, and the lengths of x.

    The products and cosines have shape (N, num_output), and the lengths have shape (N, 1).
    """
    rows = _flatten_rows(x)
    product = rows @ promote(normalize_rows(weight)).T
    norm = jnp.sqrt(jnp.sum(jnp.square(rows), axis=1, keepdims=True))
    return product, product / norm, norm


def _compute_margin(p: MarginInnerProductParameter, labels: jax.Array, cosine: jax.Array) -> Arrays:
    """Return a mask that is True at the class of each item, psi, and the derivative of psi with respect to the cosine.

    All have shape (N, num_output), like `cosine`. See `margin_inner_product` for psi.
    """
    m, c = _angle_factor(p), cosine
    chebyshev, slope = _CHEBYSHEV[m](c)
    # k is the number of bounds cos(pi j / m) above the cosine, so the angle is from k pi / m to (k + 1) pi / m
    k = sum(jnp.asarray(c < math.cos(math.pi * j / m), c.dtype) for j in range(1, m)) + jnp.zeros_like(c)
    sign = 1 - 2 * (k % 2)
    is_label = one_hot_mask(label_indices(labels, c.shape[1]), c.shape)
    return is_label, sign * chebyshev - 2 * k, sign * slope


_CHEBYSHEV: dict[int, Any] = {  # cos(m angle) and its derivative with respect to the cosine, as functions of the cosine
    1: lambda c: (c, jnp.ones_like(c)),
    2: lambda c: (2 * c**2 - 1, 4 * c),
    3: lambda c: (4 * c**3 - 3 * c, 12 * c**2 - 3),
    4: lambda c: (8 * c**4 - 8 * c**2 + 1, 32 * c**3 - 16 * c),
}


@register(
    "CosinAddm",
    bottoms=2,
    param="cosin_add_m_param",
    in_place=False,
    overrides_autodiff=True,
    indices=Indices((1,), num_classes_of_rows),
    exempt_from_force_backward=(),
    deviation="Where the cosine is 1 or more, the gradient of the top passes unchanged.",
    row_wise=True,
    origin="arcface-caffe",
    restrictions="`transform_test` is ignored, as in the fork. No recorded case.",
)
def cosin_addm(p: CosinAddmParameter, x: jax.Array, labels: jax.Array) -> jax.Array:
    """Change the cosine of the angle to the item's class to cos(angle + m), in TRAIN and TEST.

    Bottoms: cosines (N, classes) and labels (N,). The top has the shape of the cosines. A cosine x of the item's class
    that is at most cos(pi - m) becomes x - m sin(m) instead. A cosine above 1 counts as 1. Where the cosine is 1 or
    more, the gradient passes unchanged.
    """
    is_label, cosines, has_margin = _read_cosines(p, x, labels)
    m = p.m
    clipped_cosines = jnp.minimum(cosines, 1)
    sine = _compute_sine(clipped_cosines)
    label_cosine = jnp.where(has_margin, clipped_cosines * math.cos(m) - sine * math.sin(m), cosines - m * math.sin(m))
    return jnp.where(is_label, label_cosine, cosines).reshape(x.shape).astype(x.dtype)


@cosin_addm.backward
def cosin_addm_backward(
    p: CosinAddmParameter, x: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    is_label, cosines, has_margin = _read_cosines(p, x, labels)
    m, sine = p.m, _compute_sine(jnp.minimum(cosines, 1))
    slope = math.cos(m) + math.sin(m) * cosines / jnp.where(sine > 0, sine, 1)
    factor = jnp.where(is_label & has_margin & (sine > 0), slope, 1)
    return (factor * promote(dy).reshape(cosines.shape)).reshape(x.shape).astype(x.dtype), None


def _read_cosines(p: CosinAddmParameter, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return a mask that is True at the class of each item, the cosines, and the mask of angle + m < pi.

    All have shape (N, classes).
    """
    require(len(x.shape) > 1, f"needs a bottom of cosines (examples, classes), not shape {x.shape}")
    require(
        labels.shape[:1] == x.shape[:1] and labels.size == x.shape[0],
        f"bottom 1 must have a label for each of the {x.shape[0]} examples, not shape {labels.shape}",
    )
    require(0 <= p.m <= math.pi, f"m must be an angle from 0 to pi, not {p.m:g}")
    cosines = promote(x).reshape(x.shape[0], math.prod(x.shape[1:]))
    is_label = one_hot_mask(label_indices(labels, cosines.shape[1]), cosines.shape)
    return is_label, cosines, cosines > math.cos(math.pi - p.m)


def _compute_sine(cosine: jax.Array) -> jax.Array:
    """Return the sine of an angle from its cosine. Where the sine is 0, the derivative is 0 instead of infinite."""
    squared_sine = 1 - jnp.square(cosine)
    return jnp.where(squared_sine > 0, jnp.sqrt(jnp.where(squared_sine > 0, squared_sine, 1)), 0)


_INDICES = Indices((1,), num_classes_of_rows)


@register(
    "LabelSpecificRescale",
    bottoms=2,
    tops=(1, 2),
    param="label_specific_rescale_param",
    stateful=True,
    indices=_INDICES,
    origin="NormFace",
    restrictions="positive_lower_bound and negative_upper_bound are ignored, as in the fork.",
)
def label_specific_rescale(
    p: LabelSpecificRescaleParameter, x: jax.Array, labels: jax.Array, *, state: Params, ctx: Context
) -> tuple[Any, Arrays]:
    """Multiply scores (N, classes) by positive_weight for the item's class, and by negative_weight for other classes.

    Bottoms: scores (N, classes) and labels (N,). In TEST, scores do not change unless rescale_test is true. With
    positive_weight_base, the weight of the item's class in TRAIN is base (1 + gamma t)^-power after t passes, clamped
    to [positive_weight_min, positive_weight_max]. With for_ip, the score of the item's class does not change if it is 0
    or negative. With bias_fix, 1 - weight is added to each score that is multiplied by the weight. With
    power_on_positive, the magnitude of the score of the item's class is instead raised to the power of the weight. A
    second top (1,) contains the weight of the item's class.
    """
    weight, new_state = _anneal_positive_weight(ctx, state)
    is_label, factor = _read_factors(p, weight, x, labels)
    rows = promote(x).reshape(is_label.shape)
    has_power = is_label & p.power_on_positive
    shift = jnp.where(is_label & ~has_power & (factor != 1), 1 - weight, 0) if p.bias_fix else 0.0
    rescaled_scores = jnp.where(has_power, jnp.sign(rows) * _power(jnp.abs(rows), factor), rows * factor + shift)
    top = (rescaled_scores if _needs_rescaling(ctx) else rows).reshape(x.shape).astype(x.dtype)
    return (top, weight.reshape(1).astype(x.dtype)) if ctx.num_tops == 2 else top, new_state


@label_specific_rescale.params
def label_specific_rescale_params(
    p: LabelSpecificRescaleParameter, x: Any, labels: Any, *, ctx: Context
) -> list[ParamSpec]:
    _check_shapes(x, labels)
    return [make_pass_count_spec(p.iteration)] if _needs_annealing(ctx) else []


@label_specific_rescale.backward
def label_specific_rescale_backward(
    p: LabelSpecificRescaleParameter, x: jax.Array, labels: jax.Array, *, state: Params, y: Any, dy: Any, ctx: Context
) -> tuple[Any, ...]:
    d_top = first_top(dy)
    weight, _ = _anneal_positive_weight(ctx, state)
    is_label, factor = _read_factors(p, weight, x, labels)
    if p.power_on_positive:
        slope = factor * _power(jnp.abs(promote(x).reshape(is_label.shape)), factor - 1)
        factor = jnp.where(is_label & (factor != 1), slope, factor)
    diff = (d_top.reshape(is_label.shape) * factor).reshape(x.shape) if _needs_rescaling(ctx) else d_top
    return diff, None


def _power(x: jax.Array, exponent: jax.Array) -> jax.Array:
    """Return x ** exponent for x >= 0. Where x is 0, the derivative is 0."""
    return jnp.where(x > 0, jnp.power(jnp.where(x > 0, x, 1), exponent), jnp.where(exponent == 0, 1, 0))


@register(
    "LabelSpecificAdd",
    bottoms=2,
    tops=(1, 2),
    param="label_specific_add_param",
    stateful=True,
    indices=_INDICES,
    origin="caffe-windows",
    restrictions="transform_test is ignored, as in the fork.",
)
def label_specific_add(
    p: LabelSpecificAddParameter, x: jax.Array, labels: jax.Array, *, state: Params, num_tops: int, phase: Phase
) -> tuple[Any, Params]:
    """Add `bias` to the score of each item's class, if the score is above -bias.

    Bottoms: scores (N, classes) and labels (N,). In TEST, scores do not change. With bias_base, the bias in TRAIN is
    bias_base + (1 + bias_gamma t)^bias_power - 1 in pass t, where t starts at `iteration`. It is clamped to [bias_min,
    bias_max], which are 0 by default. A second top (1,) contains the bias.
    """
    bias = jnp.full((1,), p.bias, jnp.float32)
    if state:
        count = state["count"]
        annealed_bias = p.bias_base + jnp.power(1 + p.bias_gamma * jax.lax.stop_gradient(count), p.bias_power) - 1
        bias = jnp.minimum(jnp.maximum(annealed_bias, p.bias_min), p.bias_max)
        state = {"count": increment_pass_count(count)}
    rows = promote(x).reshape(x.shape[0], -1)
    is_label = one_hot_mask(label_indices(labels, rows.shape[1]), rows.shape)
    shifted_scores = jnp.where(is_label & (rows > -bias), rows + bias, rows) if phase == "TRAIN" else rows
    top = shifted_scores.reshape(x.shape).astype(x.dtype)
    return ((top, bias.astype(x.dtype)) if num_tops == 2 else top), state


@label_specific_add.params
def label_specific_add_params(p: LabelSpecificAddParameter, x: Any, labels: Any, *, phase: Phase) -> list[ParamSpec]:
    _check_shapes(x, labels)
    return [make_pass_count_spec(p.iteration)] if phase == "TRAIN" and p.HasField("bias_base") else []


@label_specific_add.backward
def label_specific_add_backward(x: jax.Array, labels: jax.Array, *, y: Any, dy: Any) -> tuple[Any, ...]:
    return first_top(dy), None


def _check_shapes(x: Any, labels: Any) -> None:
    require(
        len(x.shape) > 1 and labels.shape[:1] == x.shape[:1] and math.prod(labels.shape[1:]) == 1,
        f"needs scores of several classes and one label per item: scores {x.shape}, labels {labels.shape}",
    )


def _needs_annealing(ctx: Context) -> bool:
    return ctx.training and bool(ctx.param.HasField("positive_weight_base"))


def _needs_rescaling(ctx: Context) -> bool:
    return ctx.training or bool(ctx.param.rescale_test)


def _anneal_positive_weight(ctx: Context, state: Params) -> tuple[jax.Array, Arrays]:
    """Return the weight of the items' classes, and the new values of the layer's state.

    The state is the number of passes, or empty if the weight is not annealed.
    """
    p = ctx.param
    if not _needs_annealing(ctx):
        return jnp.float32(p.positive_weight), ()
    count = increment_pass_count(state["count"])
    weight = anneal(p.positive_weight_base, p.gamma, p.power, count)[0]
    weight = jnp.maximum(weight, p.positive_weight_min) if p.HasField("positive_weight_min") else weight
    return jnp.minimum(weight, p.positive_weight_max) if p.HasField("positive_weight_max") else weight, (count,)


def _read_factors(
    p: LabelSpecificRescaleParameter, weight: jax.Array, x: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return a mask that is True at the class of each item, and the factor of each score, (items, classes) each."""
    rows = x.reshape(x.shape[0], -1)
    is_label = one_hot_mask(label_indices(labels, rows.shape[1]), rows.shape)
    is_scaled = rows > 0 if p.for_ip else True
    return is_label, jnp.where(is_label, jnp.where(is_scaled, weight, 1), p.negative_weight)
