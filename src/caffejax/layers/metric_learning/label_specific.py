"""LabelSpecificRescale and LabelSpecificAdd: the score of an example's own class made harder to be the best."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context, ParamSpec
from ..dtypes import promote
from ..loss import class_numbers, classes_of_rows, own_classes
from ..registry import register
from ..tops import first
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .annealing import annealed, next_pass, passes

Arrays = tuple[jax.Array, ...]


def label_specific_rescale(ctx: Context, blobs: Arrays, x: jax.Array, labels: jax.Array) -> tuple[Any, Arrays]:
    """Own scores times positive_weight, all others times negative_weight; as they are in TEST, unless rescale_test.

    With positive_weight_base the weight is, in TRAIN, base (1 + gamma t)^-power after t passes, held between
    positive_weight_min and _max. for_ip leaves own scores that are not positive; bias_fix adds 1 - weight. A second top
    holds the weight.
    """
    weight, count = _weight(ctx, blobs)
    own, factor = _factors(ctx, weight, x, labels)
    rows = promote(x).reshape(own.shape)
    more = jnp.where(own & (factor != 1), 1 - weight, 0) if ctx.param.bias_fix else 0.0
    top = (rows * factor + more if _changes(ctx) else rows).reshape(x.shape).astype(x.dtype)
    return (top, weight.reshape(1).astype(x.dtype)) if ctx.n_tops == 2 else top, count


def label_specific_rescale_params(ctx: Context, x: Any, labels: Any) -> list[ParamSpec]:
    _check(x, labels)
    require(not ctx.param.power_on_positive, "power_on_positive: true is not supported")
    return [passes(ctx.param.iteration)] if _anneals(ctx) else []


def label_specific_rescale_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[Any, ...]:
    d_top = first(dy)
    weight, _ = _weight(ctx, blobs)
    own, factor = _factors(ctx, weight, x, labels)
    diff = (d_top.reshape(own.shape) * factor).reshape(x.shape) if _changes(ctx) else d_top
    return tuple(None for _ in blobs), diff, None


def label_specific_add(ctx: Context, x: jax.Array, labels: jax.Array) -> Any:
    """Scores, with `bias` added to own ones above -bias; as they are in TEST. A second top holds the bias."""
    _check(x, labels)
    p = ctx.param
    require(not p.HasField("bias_base"), "bias_base, a bias that changes with the passes, is not supported")
    bias = jnp.full((1,), p.bias, x.dtype)
    rows = promote(x).reshape(x.shape[0], -1)
    own = own_classes(class_numbers(labels, rows.shape[1]), rows.shape)
    added = jnp.where(own & (rows > -p.bias), rows + p.bias, rows) if ctx.training else rows
    top = added.reshape(x.shape).astype(x.dtype)
    return (top, bias) if ctx.n_tops == 2 else top


def label_specific_add_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *, y: Any, dy: Any
) -> tuple[jax.Array, None]:
    return first(dy), None


_INDICES = Indices((1,), classes_of_rows)

register(
    LayerType(
        Signature("LabelSpecificRescale", bottoms=2, tops=(1, 2), param="label_specific_rescale_param"),
        Traced(label_specific_rescale, params=label_specific_rescale_params, stateful=True),
        Gradient(label_specific_rescale_backward, indices=_INDICES, exempt_from_force_backward=(1,)),
        docs=LayerDocs(origin="NormFace", restrictions="power_on_positive is refused."),
    )
)
register(
    LayerType(
        Signature("LabelSpecificAdd", bottoms=2, tops=(1, 2), param="label_specific_add_param"),
        Traced(label_specific_add),
        Gradient(label_specific_add_backward, indices=_INDICES, exempt_from_force_backward=(1,)),
        docs=LayerDocs(origin="caffe-windows", restrictions="A constant bias only."),
    )
)


def _check(x: Any, labels: Any) -> None:
    require(
        len(x.shape) > 1 and labels.shape[:1] == x.shape[:1] and math.prod(labels.shape[1:]) == 1,
        f"needs scores of several classes and one label per item: scores {x.shape}, labels {labels.shape}",
    )


def _anneals(ctx: Context) -> bool:
    return ctx.training and bool(ctx.param.HasField("positive_weight_base"))


def _changes(ctx: Context) -> bool:
    return ctx.training or bool(ctx.param.rescale_test)


def _weight(ctx: Context, blobs: Arrays) -> tuple[jax.Array, Arrays]:
    """Return the weight of own scores, and the count of passes if there is one."""
    p = ctx.param
    if not _anneals(ctx):
        return jnp.float32(p.positive_weight), ()
    count = next_pass(blobs[0])
    weight = annealed(p.positive_weight_base, p.gamma, p.power, count)[0]
    weight = jnp.maximum(weight, p.positive_weight_min) if p.HasField("positive_weight_min") else weight
    return jnp.minimum(weight, p.positive_weight_max) if p.HasField("positive_weight_max") else weight, (count,)


def _factors(ctx: Context, weight: jax.Array, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return where own scores are, and what scores are multiplied by, (items, classes)."""
    p = ctx.param
    rows = x.reshape(x.shape[0], -1)
    own = own_classes(class_numbers(labels, rows.shape[1]), rows.shape)
    scaled = rows > 0 if p.for_ip else True
    return own, jnp.where(own, jnp.where(scaled, weight, 1), p.negative_weight)
