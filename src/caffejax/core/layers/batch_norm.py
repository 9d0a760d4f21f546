"""BatchNorm and MVN, which normalize by mean and standard deviation.

Caffe's rules: batch_norm_layer.cpp and mvn_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...base.errors import require
from ..ops.channels import CHANNELS_FIRST
from ..ops.normalization_op import normalize_channels
from ..schema.caffe_pb2 import BatchNormParameter, MVNParameter
from . import cross_replica
from .context import Arrays, Context, Epilogue, Params, ParamSpec, Phase, Shape
from .declaration import register
from .dtype_policy import promote
from .helpers import array_namespace, as_nchw, global_window, rsqrt, stop_gradient
from .types import ChannelAffine

broadcast_channels = CHANNELS_FIRST.broadcast


@dataclass(frozen=True)
class BatchNormSettings:
    """The settings of a BatchNormParameter.

    Attributes:
        eps: the number added to the variance.
        fraction: moving_average_fraction, by which the running statistics are multiplied at each update.
        uses_running_stats: whether the layer normalizes by its running statistics instead of the batch statistics.
    """

    eps: float
    fraction: float
    uses_running_stats: bool

    def running_statistics(self, blobs: Arrays) -> tuple[Array, Array]:
        """Return mean and variance, (channels,) each: the stored sums, divided by the sum of weights or 0."""
        means, variances, weight = (stop_gradient(promote(b)) for b in blobs[:3])
        xp = array_namespace(weight)
        # the inner `where` keeps NumPy from warning of a division by 0
        inverse = xp.where(weight == 0, 0, 1 / xp.where(weight == 0, 1, weight))
        return means * inverse, variances * inverse


def read_batch_norm(p: BatchNormParameter, *, phase: Phase) -> BatchNormSettings:
    """Return the settings of the layer's BatchNormParameter.

    `use_global_stats` is true in TEST and false in TRAIN by default.
    """
    uses_running_stats = bool(p.use_global_stats) if p.HasField("use_global_stats") else phase == "TEST"
    return BatchNormSettings(p.eps, p.moving_average_fraction, uses_running_stats)


def is_batch_norm_affine(p: Any, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return p.uses_running_stats and axis == 1 and shapes[0] == (channels,)


def batch_norm_factor_and_bias(p: BatchNormSettings, blobs: Arrays) -> tuple[Array, Array]:
    mean, variance = p.running_statistics(blobs)
    factor = rsqrt(variance + p.eps)
    return factor, -mean * factor


@register(
    "BatchNorm",
    param="batch_norm_param",
    max_blobs=3,
    stateful=True,
    row_wise=lambda p: p.uses_running_stats,
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(is_batch_norm_affine, batch_norm_factor_and_bias),
    blob_names=("mean", "variance", "scale_factor"),
    settings=read_batch_norm,
)
def batch_norm(p: BatchNormSettings, x: Array, *, state: Params, ctx: Context) -> tuple[Array, Arrays]:
    """Return (x - mean) / sqrt(variance + eps) for each channel, without learnable scale and bias.

    Bottom and top: (N, C, ...). Blobs: sums of means (C,), of variances (C,) and of weights (1,), which get no
    gradient. With `use_global_stats`, the default in TEST, mean and variance are the stored sums divided by the sum of
    weights. Otherwise they are the statistics of the batch. Then every forward pass, also in TEST, multiplies the blobs
    by `moving_average_fraction` and adds the mean, the variance times m / (m - 1) for m values per channel, and 1.
    Caffe's rule: batch_norm_layer.cpp.
    """
    sums = tuple(state.values())
    if ctx.fast and not p.uses_running_stats:
        return batch_norm_fused(p, x, (), state=state, ctx=ctx)
    mean, variance = p.running_statistics(sums) if p.uses_running_stats else batch_statistics(ctx, x)
    top = (promote(x) - broadcast_channels(mean, x)) / _broadcast_deviation(p, variance, x)
    return top.astype(x.dtype), sums if p.uses_running_stats else update_sums(ctx, sums, mean, variance, x)


@batch_norm.params
def batch_norm_params(x: Array) -> list[ParamSpec]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    channels = (x.shape[1],)
    shapes = {"mean": channels, "variance": channels, "scale_factor": (1,)}
    return [ParamSpec(shape, learnable=False, name=name) for name, shape in shapes.items()]


@batch_norm.top_shapes
def batch_norm_top_shapes(x: Any) -> list[Shape] | None:
    return [x.shape] if len(x.shape) > 1 and 0 not in x.shape else None


@batch_norm.backward
def batch_norm_backward(p: BatchNormSettings, x: Array, *, state: Params, y: Array, dy: Array, ctx: Context) -> Array:
    if p.uses_running_stats:
        return promote(dy) / _broadcast_deviation(p, p.running_statistics(tuple(state.values()))[1], x)
    # y has mean 0 and variance 1 (apart from eps), so the gradient has no component along 1 or along y
    _, variance = batch_statistics(ctx, x)
    return project_out(ctx, promote(dy), promote(y)) / _broadcast_deviation(p, variance, x)


@batch_norm.count_fusible
def count_fusible_batch_norm(p: BatchNormSettings, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return how many epilogues can be fused: a Scale, then a ReLU, if the layer uses batch statistics."""
    if p.uses_running_stats:
        return 0
    n_scales = int(epilogues[0].is_channel_affine(1, x.shape[1]))
    return n_scales + any(f.is_relu for f in epilogues[n_scales : n_scales + 1])


@batch_norm.fused
def batch_norm_fused(
    p: BatchNormSettings, x: Array, epilogues: Sequence[Epilogue], *, state: Params, ctx: Context
) -> tuple[Array, Arrays]:
    """Apply BatchNorm by batch statistics, fused with `epilogues`; return the last top and the updated blobs.

    `count_fusible_batch_norm` returned the number of epilogues.
    """
    sums = tuple(state.values())
    mean_estimate = p.running_statistics(sums)[0]
    factor, bias, relu = fused_affine(epilogues, mean_estimate)
    top, mean, variance = normalize_batch(ctx, x, factor, bias, mean_estimate, p.eps, relu=relu)
    return top, update_sums(ctx, sums, mean, variance, x)


def fused_affine(epilogues: Sequence[Epilogue], mean: Array) -> tuple[Array, Array, bool]:
    """Return the factor and bias, (channels,) each, of the Scale among the epilogues, and whether they end with a ReLU.

    Without a Scale they are 1 and 0, in the shape of `mean`.
    """
    relu = bool(epilogues) and epilogues[-1].is_relu
    scales = epilogues[:-1] if relu else epilogues
    if not scales:
        return jnp.ones_like(mean), jnp.zeros_like(mean), relu
    factor, bias = map(promote, scales[0].factor_and_bias())
    return factor, bias, relu


@batch_norm.convert_stored
def convert_stored_batch_norm(blobs: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """Return the blobs that a file stores, in the shapes of the layer's, and a warning or None.

    Blobs may have the shape 1 x channels x 1 x 1, as NVIDIA Caffe accepts.
    """
    vectors = [b if b is None or b.ndim < 2 or max(b.shape) != b.size else np.asarray(b).reshape(-1) for b in blobs]
    has_lost_statistics = (
        len(vectors) >= 3
        and all(b is not None and b.size for b in vectors[:3])
        and not vectors[2].any()
        and (vectors[0].any() or vectors[1].any())
    )
    return vectors, _LOST_STATISTICS if has_lost_statistics else None


_LOST_STATISTICS = (
    "the sum of weights (blob 2) is 0, so the mean and the variance that the file stores count as 0, as in Caffe. "
    "NVIDIA Caffe before 0.16.5 wrote such files, in which both are averages: then set blob 2 to 1 and save the weights"
)


def update_sums(ctx: Context, blobs: Arrays, mean: Array, variance: Array, x: Array) -> Arrays:
    """Return the sums in `blobs`, updated with the mean and the variance of the batch `x`, (channels,) each."""
    fraction = ctx.settings.fraction
    num_values = x.size // x.shape[1] * (cross_replica.axis_size(ctx) if ctx.config.sync_bn else 1)
    unbiased_variance = variance * (num_values / (num_values - 1) if num_values > 1 else 1.0)
    sums = (promote(b) * fraction + value for b, value in zip(blobs, (mean, unbiased_variance, 1.0), strict=True))
    return tuple(jax.lax.stop_gradient(s).astype(b.dtype) for s, b in zip(sums, blobs, strict=True))


def channel_means(ctx: Context, *arrays: Array) -> list[Array]:
    """Return the mean of each channel, (channels,), for each array.

    With `sync_bn` the means are taken over the batches of all devices.
    """
    means = [jnp.mean(a, axis=reduction_axes(a)) for a in arrays]
    return list(cross_replica.pmean(ctx, jnp.stack(means))) if ctx.config.sync_bn else means


def batch_statistics(ctx: Context, x: Array) -> tuple[Array, Array]:
    """Return the batch's mean and variance in each channel, (channels,) each, by the plain lowering."""
    values = promote(x)
    (mean,) = channel_means(ctx, values)
    (variance,) = channel_means(ctx, jnp.square(values - broadcast_channels(mean, x)))
    return mean, variance


def normalize_batch(
    ctx: Context, x: Array, factor: Array, bias: Array, mean_estimate: Array, eps: float, *, relu: bool
) -> Arrays:
    """Return the batch-normalized bottom, and the mean and variance of the batch, (channels,) each.

    Args:
        ctx: the context of the layer.
        x: the bottom (N, channels, ...).
        factor, bias: (channels,) each. The normalized bottom is multiplied by the factor, then the bias is added.
        mean_estimate: (channels,), an estimate of the mean.
        eps: added to the variance.
        relu: whether to apply a ReLU to the top. It must be False without `ctx.fast`.
    """
    if ctx.fast:
        estimate = jax.lax.stop_gradient(promote(mean_estimate))
        # the running statistics only help to sum: a NaN in them must not reach a top of the batch's statistics
        estimate = jnp.where(jnp.isfinite(estimate), estimate, 0)
        options: Any = {"relu": relu, "axis_name": ctx.axis_name if ctx.config.sync_bn else None}
        results: Arrays = normalize_channels(x, promote(factor), promote(bias), estimate, eps, **options)
        return results
    mean, variance = batch_statistics(ctx, x)
    y = (promote(x) - broadcast_channels(mean, x)) / broadcast_channels(jnp.sqrt(variance + eps), x)
    y = y * broadcast_channels(factor, x) + broadcast_channels(bias, x)
    return y.astype(x.dtype), jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def project_out(ctx: Context, dy: Array, y: Array) -> Array:
    """Subtract from `dy` the mean of `dy` and its projection on `y`, in each channel of the batch."""
    mean, projection = channel_means(ctx, dy, dy * y)
    return dy - broadcast_channels(mean, y) - y * broadcast_channels(projection, y)


def _broadcast_deviation(p: BatchNormSettings, variance: Array, x: Array) -> Array:
    return broadcast_channels(jnp.sqrt(variance + p.eps), x)


def reduction_axes(x: Array) -> tuple[int, ...]:
    """Return all axes of `x` other than the channel axis 1."""
    return (0, *range(2, x.ndim))


@register(
    "MVN",
    param="mvn_param",
    overrides_autodiff=True,
    dtype_policy="bottoms",
    spatial_map="same",
    receptive_window=global_window,
)
def mvn(p: MVNParameter, x: Array) -> Array:
    """Subtract the mean and divide by the standard deviation plus eps, for each channel of each image (N, C, H, W).

    With `across_channels` the statistics are computed over each image. With `normalize_variance: false` only the mean
    is subtracted. The top always has four axes. As in Caffe, the gradient ignores that eps is added to the standard
    deviation. Caffe's rule: mvn_layer.cpp.
    """
    images = promote(x).reshape(as_nchw(x.shape))
    centered = images - jnp.mean(images, axis=_mvn_axes(p), keepdims=True)
    return (centered / _mvn_divisor(p, x)).astype(x.dtype)


@mvn.backward
def mvn_backward(p: MVNParameter, x: Array, *, y: Array, dy: Array) -> Array:
    axes, d_top = _mvn_axes(p), promote(dy)
    if p.normalize_variance:
        projection = jnp.mean(d_top * y, axis=axes, keepdims=True)
        dx = (d_top - jnp.mean(d_top, axis=axes, keepdims=True) - y * projection) / _mvn_divisor(p, x)
    else:
        dx = d_top - jnp.mean(d_top, axis=axes, keepdims=True)
    return dx.reshape(x.shape)


def _mvn_axes(p: MVNParameter) -> tuple[int, ...]:
    return (1, 2, 3) if p.across_channels else (2, 3)


def _mvn_divisor(p: MVNParameter, x: Array) -> Array | float:
    if not p.normalize_variance:
        return 1.0
    images = promote(x).reshape(as_nchw(x.shape))
    variance = jnp.var(images, axis=_mvn_axes(p), keepdims=True)
    # the derivative of the root is infinite at 0, where the centered numbers that it multiplies are 0
    is_zero = variance == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, variance))) + p.eps
