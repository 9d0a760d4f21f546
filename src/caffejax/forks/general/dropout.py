"""A variant of Dropout; SpatialDropout drops channels; SeLu and SeLuDropout preserve mean 0 and variance 1."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.dropout import dropout, sample_mask
from ...core.layers.param_str import parse_param_str
from ...core.layers.registry import register_variants
from ...core.schema.caffe_pb2 import SeLUDropoutParameter, SeLUParameter, SpatialDropoutParameter


@dropout.variant(
    fork_settings=("scale_train", "sample_weights_test"), is_identity=None, origin="SegNet, synopsys-caffe"
)
def dropout_of_forks(x: jax.Array, *, ctx: Context) -> jax.Array:
    """Set elements to 0 with probability dropout_ratio in TRAIN; with `sample_weights_test: true` in TEST, too.

    The others are divided by 1 - dropout_ratio. With `scale_train: false` they are not, and if TEST drops no elements,
    it multiplies by 1 - dropout_ratio instead. The top has the shape of the bottom.
    """
    return x * _dropout_factor(ctx, x)


@dropout_of_forks.backward
def dropout_of_forks_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context) -> jax.Array:
    return dy * _dropout_factor(ctx, x)


def _dropout_factor(ctx: Context, x: jax.Array) -> Any:
    p, keep_rate = ctx.param, 1 - ctx.param.dropout_ratio
    factor = sample_mask(ctx, x) if ctx.training or p.sample_weights_test else keep_rate
    return factor / keep_rate if p.scale_train else factor


def _dropout_variant(layer: Any) -> str | None:
    p = layer.dropout_param
    return "of forks" if p.sample_weights_test or not p.scale_train else None


register_variants(
    "Dropout",
    _dropout_variant,
    {"of forks": dropout_of_forks.type},
    "`scale_train: false` and `sample_weights_test: true` select the variant of forks.",
)


@register(
    "SeLu",
    param="selu_param",
    aliases=("SELU", "SeLU"),
    elementwise=True,
    dtype_policy="bottoms",
    origin="soeaver/caffe-model",
)
def selu(p: SeLUParameter, x: jax.Array) -> jax.Array:
    """Return lambda * x where x > 0, else lambda * alpha * (exp(x) - 1). The top has the shape of the bottom."""
    negative_part = jnp.where(x > 0, 0, x)  # the gradient would be NaN if the branch that is not selected overflowed
    return getattr(p, "lambda") * jnp.where(x > 0, x, p.alpha * jnp.expm1(negative_part))


@selu.backward
def selu_backward(p: SeLUParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    scale = getattr(p, "lambda")
    return dy * jnp.where(x > 0, scale, y + scale * p.alpha)


@register(
    "SeLuDropout",
    param="selu_dropout_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="soeaver/caffe-model",
)
def selu_dropout(p: SeLUDropoutParameter, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Set elements to `alpha` with probability dropout_ratio in TRAIN, then scale and shift to keep mean and variance.

    In TEST the top equals the bottom. The top has the shape of the bottom.
    """
    if not ctx.training:
        return x
    factor, bias = _compute_factor_and_bias(p)
    return (factor * jnp.where(_sample_mask(ctx, x), x, p.alpha) + bias).astype(x.dtype)


@selu_dropout.backward
def selu_dropout_backward(
    p: SeLUDropoutParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> jax.Array:
    if not ctx.training:
        return dy
    return jnp.where(_sample_mask(ctx, x), dy * _compute_factor_and_bias(p)[0], 0)


def _compute_factor_and_bias(p: SeLUDropoutParameter) -> tuple[float, float]:
    ratio, alpha = p.dropout_ratio, p.alpha
    keep_rate = 1 - ratio
    factor = 1 / math.sqrt(keep_rate * (1 + ratio * alpha**2))
    return factor, -factor * ratio * alpha


@register(
    "SpatialDropout",
    param="spatial_dropout_param",
    row_wise=True,
    dtype_policy="bottoms",
    spatial_map="same",
    origin="Intel Caffe",
)
def spatial_dropout(p: SpatialDropoutParameter, x: jax.Array, *, ctx: Context) -> jax.Array:
    """Set whole channels to 0 with probability dropout_ratio in TRAIN, and divide the others by 1 - dropout_ratio.

    Bottom and top: (N, C, ...). In TEST the top equals the bottom.
    """
    return jnp.where(_sample_channel_mask(ctx, x), x / (1 - p.dropout_ratio), 0) if ctx.training else x


@spatial_dropout.backward
def spatial_dropout_backward(
    p: SpatialDropoutParameter, x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> jax.Array:
    return jnp.where(_sample_channel_mask(ctx, x), dy / (1 - p.dropout_ratio), 0) if ctx.training else dy


def _sample_channel_mask(ctx: Context, x: jax.Array) -> jax.Array:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    return _sample_mask(ctx, x[(..., *(slice(0, 1),) * (x.ndim - 2))])


def _sample_mask(ctx: Context, x: jax.Array) -> jax.Array:
    ratio = ctx.param.dropout_ratio
    require(0 <= ratio < 1, f"dropout_ratio must be at least 0 and less than 1, not {ratio:g}")
    return jax.random.bernoulli(ctx.key, 1 - ratio, x.shape)


@declare("Python", param="python_param", dtype_policy="bottoms", spatial_map="same", origin="ENet")
def spatial_dropout_layer(x: jax.Array, *, ctx: Context) -> jax.Array:
    """Set each channel of each item (N, C, ...) to 0 with probability `p`, and divide the others by 1 - p.

    The `phase` in the param_str applies, not the phase of the net. In TEST every channel is divided by 1 - p, as in
    ENet's layer.
    """
    return (x * _spatial_dropout_factor(ctx, x)).astype(x.dtype)


@spatial_dropout_layer.backward
def spatial_dropout_layer_backward(x: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context) -> jax.Array:
    return dy * _spatial_dropout_factor(ctx, x)


def _spatial_dropout_factor(ctx: Context, x: jax.Array) -> Any:
    options = parse_param_str(ctx.param.param_str, {"phase": "TRAIN", "p": None})
    try:
        p = float(options["p"])
    except (TypeError, ValueError):
        p = math.nan
    require(0 < p < 1, f"p in param_str must be between 0 and 1, not {options['p']!r}")
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    if options["phase"] != "TRAIN":
        return 1 / (1 - p)
    shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    return jnp.where(jax.random.bernoulli(ctx.key, 1 - p, shape), 1 / (1 - p), 0).astype(x.dtype)
