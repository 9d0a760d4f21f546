"""DenseBlock of Tongcheng's fork and caffe_ocr: the transitions of a DenseNet between two poolings, as one layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.batch_norm import normalize_batch
from ...core.layers.context import Context, Params, ParamSpec, Phase, Shape
from ...core.layers.cross_replica import axis_size
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.ops.convolution_op import correlate
from ...core.ops.window import Window
from ...core.schema.caffe_pb2 import DenseBlockParameter, FillerParameter

Arrays = tuple[jax.Array, ...]

_EPS = 1e-5  # CUDNN_BN_MIN_EPSILON
_NORM_BLOBS = ("scale", "bias", "mean", "variance")
_GROUPS = ("filter", *_NORM_BLOBS)
_BOTTLENECK_GROUPS = ("filter_1x1", *(f"bottleneck_{name}" for name in _NORM_BLOBS))
_MAX_TRANSITIONS = 128
_BOTTLENECK = 4  # channels of the first convolution of a transition with use_BC, as a multiple of growthRate


@register(
    "DenseBlock",
    param="denseblock_param",
    in_place=False,
    stateful=True,
    row_wise=lambda *, phase: phase == "TEST",
    spatial_map="same",
    weight_axes=4,
    blob_names=(
        *(f"{group}_{i}" for group in (*_GROUPS, *_BOTTLENECK_GROUPS) for i in range(_MAX_TRANSITIONS)),
        "weight_sum",
    ),
    origin="Tongcheng's DenseNet fork, caffe_ocr",
    restrictions="It computes what the fork computes on a GPU; on a CPU the fork drops nothing, and divides by the "
    "unbiased deviation in TRAIN, of which there is no recorded case.",
)
def dense_block(
    p: DenseBlockParameter, params: Params, x: jax.Array, *, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Append growthRate channels to (N, C, H, W) in each of numTransition transitions.

    A transition normalizes all channels so far by BatchNorm with scale and bias, applies a ReLU, and convolves 3 x 3
    with padding 1. With use_BC a convolution 1 x 1 to 4 * growthRate channels, BatchNorm and ReLU come before that
    convolution. Filters are applied upside down and mirrored, which Convolution does not do. With use_dropout TRAIN
    sets elements of the new channels to 0 with probability dropout_amount and divides the others by 1 - dropout_amount.

    Blobs, one for each transition: filters 3 x 3, scales, biases, means and variances; with use_BC then filters 1 x 1
    and the scales, biases, means and variances after them. The last blob, (1,), is the sum of weights, by which the
    fork's CPU code divides means and variances; 0, as its GPU code stores it, stands for 1. TRAIN normalizes by the
    batch and gives its statistics the weight moving_average_fraction in the stored ones.
    """
    groups = params, state
    arrays = {key: groups[_is_state(key)][_name(*key)] for key in _blob_keys(p)}
    weight_sum = arrays["weight_sum", 0]
    new_state: dict[Any, jax.Array] = {}

    def normalize(x: jax.Array, group: str, i: int) -> jax.Array:
        y, statistics = _normalize(ctx, x, [arrays[f"{group}{name}", i] for name in _NORM_BLOBS], weight_sum)
        new_state.update({(f"{group}{name}", i): a for name, a in zip(_NORM_BLOBS[2:], statistics, strict=True)})
        return jax.nn.relu(y)

    for i in range(p.numTransition):
        y = normalize(x, "", i)
        if p.use_BC:
            y = normalize(_convolve(ctx, y, arrays["filter_1x1", i], 0), "bottleneck_", i)
        y = _convolve(ctx, y, arrays["filter", i], 1)
        if p.use_dropout and ctx.training:
            keep_rate = 1 - p.dropout_amount
            y = y * (jax.random.bernoulli(jax.random.fold_in(ctx.key, i), keep_rate, y.shape) / keep_rate)
        x = jnp.concatenate([x, y.astype(x.dtype)], axis=1)
    new_state["weight_sum", 0] = jnp.zeros_like(weight_sum) if ctx.training else weight_sum
    return x, tuple(new_state[key].astype(arrays[key].dtype) for key in arrays if _is_state(key))


@dense_block.check
def check_dense_block(p: DenseBlockParameter, *, phase: Phase) -> None:
    require(
        0 < p.numTransition <= _MAX_TRANSITIONS and p.growthRate > 0,
        f"numTransition must be 1 to {_MAX_TRANSITIONS} and growthRate positive, not {p.numTransition} and "
        f"{p.growthRate}",
    )
    require(
        0 <= p.moving_average_fraction <= 1,
        f"moving_average_fraction must be from 0 to 1, not {p.moving_average_fraction:g}",
    )
    require(
        not p.use_dropout or 0 <= p.dropout_amount < 1,
        f"dropout_amount must be at least 0 and less than 1, not {p.dropout_amount:g}",
    )


@dense_block.params
def dense_block_params(p: DenseBlockParameter, x: Any) -> list[ParamSpec]:
    require(len(x.shape) == 4, f"needs a bottom with 4 axes (num, channels, height, width), not {x.shape}")
    return [replace(_blob_spec(p, k[0], x.shape[1] + k[1] * p.growthRate), name=_name(*k)) for k in _blob_keys(p)]


def _blob_spec(p: DenseBlockParameter, name: str, in_channels: int) -> ParamSpec:
    wide = _BOTTLENECK * p.growthRate
    if name == "weight_sum":
        return ParamSpec((1,), learnable=False)
    if name == "filter":
        return ParamSpec((p.growthRate, wide if p.use_BC else in_channels, 3, 3), p.Filter_Filler)
    if name == "filter_1x1":
        return ParamSpec((wide, in_channels, 1, 1), p.Filter_Filler)
    shape: Shape = (1, wide if name.startswith("bottleneck") else in_channels, 1, 1)
    if name.endswith("scale"):
        return ParamSpec(shape, p.BN_Scaler_Filler)
    if name.endswith("bias"):
        return ParamSpec(shape, p.BN_Bias_Filler)
    return ParamSpec(shape, FillerParameter(value=name.endswith("variance")), learnable=False)


def _blob_keys(p: DenseBlockParameter) -> Iterator[tuple[str, int]]:
    """Yield the kind and the transition of each blob, in the order of the fork's files."""
    groups = (*_GROUPS, *_BOTTLENECK_GROUPS) if p.use_BC else _GROUPS
    yield from ((group, i) for group in groups for i in range(p.numTransition))
    yield "weight_sum", 0


def _name(group: str, i: int) -> str:
    return group if group == "weight_sum" else f"{group}_{i}"


def _is_state(key: tuple[str, int]) -> bool:
    return key[0].endswith(("mean", "variance", "weight_sum"))


def _normalize(
    ctx: Context, x: jax.Array, blobs: Sequence[jax.Array], weight_sum: jax.Array
) -> tuple[jax.Array, Arrays]:
    """Return the normalized bottom, and the new mean and variance, in the shapes of the blobs."""
    scale, bias, mean, variance = blobs
    divisor = jnp.where(weight_sum[0] == 0, 1, weight_sum[0])
    old_mean, old_variance = (jax.lax.stop_gradient(promote(a) / divisor) for a in (mean, variance))
    if not ctx.training:
        return (promote(x) - old_mean) / jnp.sqrt(old_variance + _EPS) * scale + bias, (mean, variance)
    factors = scale.reshape(-1), bias.reshape(-1), old_mean.reshape(-1)
    y, batch_mean, batch_variance = normalize_batch(ctx, x, *factors, _EPS, relu=False)
    num_values = x.size // x.shape[1] * (axis_size(ctx) if ctx.config.sync_bn else 1)
    batch_variance = batch_variance * (num_values / (num_values - 1) if num_values > 1 else 1)
    fraction = ctx.param.moving_average_fraction
    averages = (
        jax.lax.stop_gradient((1 - fraction) * old + fraction * new.reshape(old.shape))
        for old, new in ((old_mean, batch_mean), (old_variance, batch_variance))
    )
    return y, tuple(averages)


def _convolve(ctx: Context, x: jax.Array, weight: jax.Array, pad: int) -> jax.Array:
    window = Window.symmetric(weight.shape[2:], (1, 1), (pad, pad))
    return correlate(x, weight[:, :, ::-1, ::-1].astype(x.dtype), window, fast=ctx.fast)
