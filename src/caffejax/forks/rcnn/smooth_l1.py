"""SmoothL1Loss: squares of small differences and absolute values of large ones, in the variants of three forks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import first_top, pad_to_four_axes
from ...core.layers.loss_helpers import loss_divisor, normalization_mode, num_items
from ...core.layers.types import Indices, LayerType, Traced, Variants

Tops = jax.Array | tuple[jax.Array, jax.Array]


def smooth_l1_loss(a: jax.Array, b: jax.Array, *weights: jax.Array, ctx: Context) -> Tops:
    """Return the sum of a smooth L1 loss of the differences d = a - b, divided by N, a scalar.

    The loss is (sigma d)**2 / 2 where |d| < 1 / sigma**2, else |d| - 1 / (2 sigma**2). All bottoms have the same shape,
    (N, ...): a, b and optionally two weights. The first weight, bottom 2, multiplies d; in the variant of fast-rcnn,
    which has three bottoms, this weight does not multiply the gradient again. The second weight, bottom 3, multiplies
    the terms of the sum. The optional second top of R-FCN holds the sum of the terms over the channels, (N, 1, ...),
    and passes no gradient. The divisor is N, or `pre_fixed_normalizer` if `normalization` is PRE_FIXED.
    """
    difference, loss_weights, squared_sigma, divisor = _loss_terms(ctx, a, b, weights)
    losses = loss_weights * huber(difference, squared_sigma)
    loss = jnp.sum(losses) / divisor
    if ctx.num_tops < 2:
        return loss
    require(a.ndim > 1, f"a second top needs bottoms with a channel axis (axis 1), not shape {a.shape}")
    return loss, jax.lax.stop_gradient(jnp.sum(losses, axis=1, keepdims=True))


def smooth_l1_loss_backward(
    a: jax.Array, b: jax.Array, *weights: jax.Array, y: Any, dy: Any, ctx: Context
) -> tuple[jax.Array | None, ...]:
    difference, loss_weights, squared_sigma, divisor = _loss_terms(ctx, a, b, weights)
    difference_weights = promote(weights[0]).reshape(a.shape) if len(weights) == 2 else 1.0
    d_loss = first_top(dy)
    diff = d_loss / divisor * loss_weights * difference_weights * huber_slope(difference, squared_sigma)
    return diff.astype(a.dtype), -diff.astype(b.dtype).reshape(b.shape), *(None for _ in weights)


def huber(x: jax.Array, squared_sigma: Any = 1.0) -> jax.Array:
    """Return sigma**2 x**2 / 2 where |x| < 1 / sigma**2, else |x| - 1 / (2 sigma**2)."""
    magnitude = jnp.abs(x)
    return jnp.where(
        magnitude * squared_sigma < 1, 0.5 * squared_sigma * jnp.square(x), magnitude - 0.5 / squared_sigma
    )


def huber_slope(x: jax.Array, squared_sigma: Any = 1.0) -> jax.Array:
    """Return the derivative of `huber`."""
    return jnp.clip(squared_sigma * x, -1, 1)


def _loss_terms(
    ctx: Context, a: jax.Array, b: jax.Array, weights: tuple[jax.Array, ...]
) -> tuple[jax.Array, Any, float, Any]:
    """Return the weighted differences, the weights of the losses, sigma**2, and the divisor of the sum."""
    require(len(a.shape) > 0, "needs bottoms with a batch axis, not single numbers")
    for i, array in enumerate((b, *weights), start=1):
        has_equal_shape = array.shape == a.shape or pad_to_four_axes(array.shape) == pad_to_four_axes(a.shape)
        require(has_equal_shape, f"bottom {i} must have the shape of bottom 0, {a.shape}, not {array.shape}")
    require(ctx.param.sigma > 0, f"sigma must be positive, not {ctx.param.sigma}")
    require(ctx.param.abssum, "abssum: false is not supported; remove it")
    difference = promote(a) - promote(b).reshape(a.shape)
    constant_weights = [jax.lax.stop_gradient(promote(w)).reshape(a.shape) for w in weights]
    if constant_weights:
        difference = constant_weights[0] * difference
    divisor = num_items(ctx, a.shape[:1]) if a.shape[0] else 1
    if normalization_mode(ctx.layer.loss_param, "BATCH_SIZE") == "PRE_FIXED":
        divisor = loss_divisor(ctx, difference, "PRE_FIXED", divisor)
    return difference, constant_weights[1] if len(constant_weights) == 2 else 1.0, ctx.param.sigma**2, divisor


_LOSS_WEIGHT_RESTRICTIONS = {
    False: "The default of loss_weight is 0.",
    True: "loss_weight must be set: its default would be 0, and the SSD fork refuses the layer.",
}


def _make_variant(origin: str, **fields: Any) -> LayerType:
    return declare(
        "SmoothL1Loss",
        Traced(smooth_l1_loss),
        tops=(1, 2),
        param="smooth_l1_loss_param",
        backward=smooth_l1_loss_backward,
        indices=Indices((2, 3), ignores_gradient=True),
        accepts_integers=True,
        counts_rows=True,
        row_tops=(1,),
        origin=origin,
        **fields,
    ).type


def select_smooth_l1_variant(layer: Any) -> str:
    if len(layer.bottom) == 2 and not layer.HasField("smooth_l1_loss_param"):
        return "SSD"
    return "fast-rcnn" if len(layer.bottom) == 3 else "py-faster-rcnn"


register(
    "SmoothL1Loss",
    Variants(
        select_smooth_l1_variant,
        {
            "SSD": _make_variant("SSD", bottoms=2, loss=True),
            "py-faster-rcnn": _make_variant(
                "py-faster-rcnn", bottoms=(2, 4), restrictions=_LOSS_WEIGHT_RESTRICTIONS[False]
            ),
            "fast-rcnn": _make_variant(
                "fast-rcnn",
                bottoms=3,
                requires_loss_weight=True,
                overrides_autodiff=True,
                restrictions=_LOSS_WEIGHT_RESTRICTIONS[True],
            ),
        },
        selection_doc="With two bottoms and no smooth_l1_loss_param it is the SSD fork's, with three bottoms "
        "fast-rcnn's, otherwise py-faster-rcnn's.",
    ),
    bottoms=(2, 4),
    tops=(1, 2),
    loss=True,
    origin="SSD, py-faster-rcnn, fast-rcnn",
)
