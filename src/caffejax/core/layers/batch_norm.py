"""BatchNorm, with the variants of NVIDIA and Intel, and MVN, which normalize by mean and standard deviation.

Caffe's rules: batch_norm_layer.cpp and mvn_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.errors import require
from ..ops.normalization_op import normalize_channels
from ..schema.caffe_pb2 import FillerParameter
from . import cross_replica
from .context import Context, Epilogue, ParamSpec, Shape
from .dtype_policy import promote
from .helpers import array_namespace, as_nchw, global_window, rsqrt, stop_gradient
from .registry import define_layer, register
from .types import ChannelAffine, Fusion, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants

Arrays = tuple[jax.Array, ...]


_MIN_EPS = 1e-5  # CUDNN_BN_MIN_EPSILON, which NVIDIA Caffe applies


@dataclass(frozen=True)
class BatchNormSettings:
    """The settings of a BatchNormParameter.

    Attributes:
        eps: the number added to the variance.
        fraction: moving_average_fraction, by which the running statistics are multiplied at each update.
        uses_running_stats: whether the layer normalizes by its running statistics instead of the batch statistics.
        stats_batch_size: the number of images from which Intel's fork computes statistics, or 0 for the whole batch.
        stores_sums: whether the blobs hold sums, as in BVLC Caffe, or moving averages, as in NVIDIA Caffe.
    """

    eps: float
    fraction: float
    uses_running_stats: bool
    stats_batch_size: int
    stores_sums: bool


def read_batch_norm(ctx: Context) -> BatchNormSettings:
    """Return the settings of the layer's BatchNormParameter.

    `use_global_stats` is true in TEST and false in TRAIN by default.
    """
    p = ctx.param
    uses_running_stats = bool(p.use_global_stats) if p.HasField("use_global_stats") else not ctx.training
    return BatchNormSettings(p.eps, p.moving_average_fraction, uses_running_stats, p.stats_batch_size, stores_sums=True)


def read_scaled_batch_norm(ctx: Context) -> BatchNormSettings:
    """Return the settings of a BatchNorm layer with scale and bias.

    They are read as in Intel Caffe if a field of this fork is set, otherwise as in NVIDIA Caffe.
    """
    settings = read_batch_norm(ctx)
    if any(ctx.param.HasField(field) for field in _INTEL_SETTINGS):
        return settings
    uses_running_stats = settings.uses_running_stats or not ctx.training
    return replace(settings, eps=max(settings.eps, _MIN_EPS), uses_running_stats=uses_running_stats, stores_sums=False)


def batch_norm(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """Return (x - mean) / sqrt(variance + eps) for each channel, without learnable scale and bias.

    Bottom and top: (N, C, ...). Blobs: sums of means (C,), of variances (C,) and of weights (1,), which get no
    gradient. With `use_global_stats`, the default in TEST, mean and variance are the stored sums divided by the sum of
    weights. Otherwise they are the statistics of the batch. Then every forward pass, also in TEST, multiplies the blobs
    by `moving_average_fraction` and adds the mean, the variance times m / (m - 1) for m values per channel, and 1. With
    Intel's `stats_batch_size`, statistics are computed for each part of that many images, and the parts update the
    blobs in order. Caffe's rule: batch_norm_layer.cpp.
    """
    if ctx.settings.uses_running_stats:
        mean, variance = running_statistics(ctx, blobs)
        return ((promote(x) - broadcast_channels(mean, x)) / _broadcast_deviation(ctx, variance, x)).astype(
            x.dtype
        ), blobs
    if ctx.fast:
        return batch_norm_fused(ctx, blobs, x, ())
    parts = split_batch(ctx, x)
    mean, variance = batch_statistics(ctx, parts)
    top = (promote(parts) - broadcast_channels(mean, parts)) / _broadcast_deviation(ctx, variance, parts)
    return join_batch(top.astype(x.dtype), x), update_sums(ctx, blobs, mean, variance, parts)


def batch_norm_params(ctx: Context, x: jax.Array) -> list[ParamSpec]:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    size, n = ctx.settings.stats_batch_size, x.shape[0]
    require(
        size == 0 or n <= size or n % size == 0 or ctx.settings.uses_running_stats,
        f"the batch size {n} must be a multiple of stats_batch_size {size} (Intel Caffe)",
    )
    return [ParamSpec(shape, learnable=False) for shape in ((x.shape[1],), (x.shape[1],), (1,))]


def batch_norm_top_shapes(ctx: Context, x: Any) -> list[Shape] | None:
    return [x.shape] if len(x.shape) > 1 and 0 not in x.shape else None


def batch_norm_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[tuple[None, None, None], jax.Array]:
    no_diffs = (None, None, None)
    if ctx.settings.uses_running_stats:
        return no_diffs, promote(dy) / _broadcast_deviation(ctx, running_statistics(ctx, blobs)[1], x)
    # y has mean 0 and variance 1 (apart from eps), so the gradient has no component along 1 or along y
    parts = split_batch(ctx, x)
    _, variance = batch_statistics(ctx, parts)
    d_parts = project_out(ctx, promote(split_batch(ctx, dy)), promote(split_batch(ctx, y)))
    return no_diffs, join_batch(d_parts / _broadcast_deviation(ctx, variance, parts), x)


def is_batch_norm_affine(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return ctx.settings.uses_running_stats and axis == 1 and shapes[0] == (channels,)


def batch_norm_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    mean, variance = running_statistics(ctx, blobs)
    factor = rsqrt(variance + ctx.settings.eps)
    return factor, -mean * factor


def count_fusible_batch_norm(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return how many epilogues can be fused: a Scale, then a ReLU, if the layer uses batch statistics."""
    if ctx.settings.uses_running_stats:
        return 0
    n_scales = int(epilogues[0].is_channel_affine(1, x.shape[1]))
    return n_scales + any(f.is_relu for f in epilogues[n_scales : n_scales + 1])


def batch_norm_fused(
    ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]
) -> tuple[jax.Array, Arrays]:
    """Apply BatchNorm by batch statistics, fused with `epilogues`; return the last top and the updated blobs.

    `count_fusible_batch_norm` returned the number of epilogues.
    """
    relu = bool(epilogues) and epilogues[-1].is_relu
    scales = epilogues[:-1] if relu else epilogues
    mean_estimate = running_statistics(ctx, blobs)[0]
    ones, zeros = jnp.ones_like(mean_estimate), jnp.zeros_like(mean_estimate)
    affine = map(promote, scales[0].factor_and_bias()) if scales else (ones, zeros)
    parts = split_batch(ctx, x)
    factor, bias, repeated_estimate = (repeat_channels(c, x, parts) for c in (*affine, mean_estimate))
    top, mean, variance = normalize_batch(ctx, parts, factor, bias, repeated_estimate, ctx.settings.eps, relu=relu)
    return join_batch(top, x), update_sums(ctx, blobs, mean, variance, parts)


def convert_stored_batch_norm(ctx: Context, blobs: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """Return the blobs that a file stores, in the order and the shapes of the layer's, and a warning or None.

    DIGITS' older NVIDIA Caffe (0.15) stored scale, bias, mean, variance and a reserved number, whose size of 1 tells
    this order from NVIDIA's present one. Blobs may have the shape 1 x channels x 1 x 1, as NVIDIA Caffe accepts.
    """
    vectors = [b if b is None or b.ndim < 2 or max(b.shape) != b.size else np.asarray(b).reshape(-1) for b in blobs]
    if len(vectors) == 5 and _is_digits_order(vectors):
        scale, bias, mean, variance, reserved = vectors
        vectors = [mean, variance, reserved, scale, bias]
    has_lost_statistics = (
        ctx.settings.stores_sums
        and len(vectors) >= 3
        and all(b is not None and b.size for b in vectors[:3])
        and not vectors[2].any()
        and (vectors[0].any() or vectors[1].any())
    )
    return vectors, _LOST_STATISTICS if has_lost_statistics else None


_LOST_STATISTICS = (
    "the sum of weights (blob 2) is 0, so the mean and the variance that the file stores count as 0, as in Caffe. "
    "NVIDIA Caffe before 0.16.5 wrote such files, in which both are averages: then set blob 2 to 1 and save the weights"
)


def _is_digits_order(blobs: Sequence[Any]) -> bool:
    return all(b is not None for b in blobs) and blobs[4].size == 1 < blobs[0].size


BVLC_BATCH_NORM = LayerType(  # registered below, with its variant
    Signature(
        "BatchNorm",
        param="batch_norm_param",
        fork_settings=("stats_batch_size", "use_weight_bias", "bias_term", "filler", "bias_filler"),
    ),
    Traced(
        batch_norm,
        params=batch_norm_params,
        stateful=True,
        fusion=Fusion(count_fusible_batch_norm, batch_norm_fused),
        top_shapes=batch_norm_top_shapes,
    ),
    Gradient(batch_norm_backward),
    LayerTraits(
        dtype_policy="bottoms",
        spatial_map="same",
        channel_affine=ChannelAffine(is_batch_norm_affine, batch_norm_factor_and_bias),
        convert_stored=convert_stored_batch_norm,
    ),
    settings=read_batch_norm,
)


def running_statistics(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance, (channels,) each, from the first three blobs. Both are 0 before the first update.

    Sums are divided by the sum of weights, blob 2. Of the moving averages of NVIDIA Caffe, blob 2 is no factor.
    """
    means, variances, weight = (stop_gradient(promote(b)) for b in blobs[:3])
    if not ctx.settings.stores_sums:
        return means, variances
    xp = array_namespace(weight)
    inverse = xp.where(weight == 0, 0, 1 / xp.where(weight == 0, 1, weight))
    return means * inverse, variances * inverse


def split_batch(ctx: Context, x: jax.Array) -> jax.Array:
    """Split a batch into parts of `stats_batch_size` images, and stack the parts as channels.

    The shape (N, C, ...) becomes (size, N / size * C, ...), where size is `stats_batch_size`.
    """
    size = ctx.settings.stats_batch_size
    if not 0 < size < x.shape[0]:
        return x
    return x.reshape(-1, size, *x.shape[1:]).swapaxes(0, 1).reshape(size, -1, *x.shape[2:])


def join_batch(parts: jax.Array, x: jax.Array) -> jax.Array:
    """Return the batch, in the shape of `x`, from the parts that `split_batch` returned."""
    if parts.shape == x.shape:
        return parts
    return parts.reshape(parts.shape[0], -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def repeat_channels(channel_values: jax.Array, x: jax.Array, parts: jax.Array) -> jax.Array:
    """Repeat `channel_values`, (C,), for each part of the batch `x`.

    `parts` is `x` after `split_batch`.
    """
    return channel_values if parts.shape == x.shape else jnp.tile(channel_values, parts.shape[1] // x.shape[1])


def update_sums(ctx: Context, blobs: Arrays, mean: jax.Array, variance: jax.Array, x: jax.Array) -> Arrays:
    """Return the sums in `blobs`, updated with the statistics of the batch `x`, or of each of its parts in order."""
    fraction = ctx.settings.fraction
    num_values = x.size // x.shape[1] * (cross_replica.axis_size(ctx) if ctx.compute_config.sync_bn else 1)
    unbiased_variance = variance * (num_values / (num_values - 1) if num_values > 1 else 1.0)
    sums = tuple(map(promote, blobs))
    for statistics in zip(*(s.reshape(-1, *blobs[0].shape) for s in (mean, unbiased_variance)), strict=True):
        sums = tuple(s * fraction + value for s, value in zip(sums, (*statistics, 1.0), strict=True))
    return tuple(jax.lax.stop_gradient(s).astype(b.dtype) for s, b in zip(sums, blobs, strict=True))


def sync_axis(ctx: Context) -> str | None:
    """Return the mesh axis over which `sync_bn` computes statistics, or None without `sync_bn`."""
    return ctx.axis_name if ctx.compute_config.sync_bn else None


def channel_means(ctx: Context, *arrays: jax.Array) -> list[jax.Array]:
    """Return the mean of each channel, (channels,), for each array.

    With `sync_bn` the means are taken over the batches of all devices.
    """
    means = [jnp.mean(a, axis=reduction_axes(a)) for a in arrays]
    return list(cross_replica.pmean(ctx, jnp.stack(means))) if ctx.compute_config.sync_bn else means


def batch_statistics(ctx: Context, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the batch's mean and variance in each channel, (channels,) each, by the plain lowering."""
    values = promote(x)
    (mean,) = channel_means(ctx, values)
    (variance,) = channel_means(ctx, jnp.square(values - broadcast_channels(mean, x)))
    return mean, variance


def normalize_batch(
    ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array, mean_estimate: jax.Array, eps: float, *, relu: bool
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
        estimate = jnp.where(jnp.isfinite(estimate), estimate, 0)
        options: Any = {"relu": relu, "axis_name": sync_axis(ctx)}
        results: Arrays = normalize_channels(x, promote(factor), promote(bias), estimate, eps, **options)
        return results
    mean, variance = batch_statistics(ctx, x)
    y = (promote(x) - broadcast_channels(mean, x)) / broadcast_channels(jnp.sqrt(variance + eps), x)
    y = y * broadcast_channels(factor, x) + broadcast_channels(bias, x)
    return y.astype(x.dtype), jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def project_out(ctx: Context, dy: jax.Array, y: jax.Array) -> jax.Array:
    """Subtract from `dy` the mean of `dy` and its projection on `y`, in each channel of the batch."""
    mean, projection = channel_means(ctx, dy, dy * y)
    return dy - broadcast_channels(mean, y) - y * broadcast_channels(projection, y)


def _broadcast_deviation(ctx: Context, variance: jax.Array, x: jax.Array) -> jax.Array:
    return broadcast_channels(jnp.sqrt(variance + ctx.settings.eps), x)


def reduction_axes(x: jax.Array) -> tuple[int, ...]:
    """Return all axes of `x` other than the channel axis 1."""
    return (0, *range(2, x.ndim))


def broadcast_channels(statistic: jax.Array, x: jax.Array) -> jax.Array:
    """Reshape (channels,) to broadcast along axis 1 of `x`."""
    return statistic.reshape(-1, *(1,) * (x.ndim - 2))


def scaled_batch_norm(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """Apply BatchNorm, then multiply by a factor and add a bias for each channel, blobs 3 and 4, (C,) each.

    In NVIDIA Caffe, blobs 0 and 1 are moving averages, which TEST always uses, and the variance is not multiplied by
    m/(m-1). Blob 2 is 1 after the first update, and no factor; eps is at least 1e-5. In Intel Caffe, blobs are sums,
    as in BVLC Caffe, and with `bias_term: false` there is no blob 4.
    """
    if not ctx.settings.uses_running_stats:
        return scaled_batch_norm_fused(ctx, blobs, x, ())
    factor, bias = scaled_batch_norm_factor_and_bias(ctx, blobs)
    return (promote(x) * broadcast_channels(factor, x) + broadcast_channels(bias, x)).astype(x.dtype), blobs[:3]


def scaled_batch_norm_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p = ctx.param
    factor = next((getattr(p, f) for f in ("scale_filler", "filler") if p.HasField(f)), None)
    shape = (x.shape[1],) if len(x.shape) > 1 else ()
    return [
        *batch_norm_params(ctx, x),
        ParamSpec(shape, factor or FillerParameter(type="constant", value=1)),
        *([ParamSpec(shape, p.bias_filler)] if p.bias_term else []),
    ]


def scaled_batch_norm_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[tuple[Any, ...], jax.Array]:
    d_top, uses_running_stats = promote(dy), ctx.settings.uses_running_stats
    parts, d_normalized = (
        a if uses_running_stats else split_batch(ctx, a) for a in (x, d_top * broadcast_channels(promote(blobs[3]), x))
    )
    mean, variance = running_statistics(ctx, blobs) if uses_running_stats else batch_statistics(ctx, parts)
    deviation = broadcast_channels(jnp.sqrt(variance + ctx.settings.eps), parts)
    normalized = (promote(parts) - broadcast_channels(mean, parts)) / deviation
    if not uses_running_stats:
        d_normalized = project_out(ctx, d_normalized, normalized)
    d_factor, d_bias = ((d_top * factor).sum(reduction_axes(x)) for factor in (join_batch(normalized, x), 1))
    return (None, None, None, d_factor, d_bias)[: len(blobs)], join_batch(d_normalized / deviation, x)


def scaled_batch_norm_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    mean, variance = running_statistics(ctx, blobs)
    factor = promote(blobs[3]) * rsqrt(variance + ctx.settings.eps)
    return factor, (promote(blobs[4]) if len(blobs) > 4 else 0) - mean * factor


def count_fusible_scaled_batch_norm(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return 1 if a ReLU follows and the layer uses batch statistics, else 0."""
    return 0 if ctx.settings.uses_running_stats else int(any(f.is_relu for f in epilogues[:1]))


def scaled_batch_norm_fused(
    ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]
) -> tuple[jax.Array, Arrays]:
    """Apply `scaled_batch_norm` by batch statistics, fused with `epilogues`; return the last top and the updated blobs.

    `count_fusible_scaled_batch_norm` returned the number of epilogues.
    """
    parts = split_batch(ctx, x)
    mean_estimate = running_statistics(ctx, blobs)[0]
    affine = (*map(promote, blobs[3:]), jnp.zeros_like(mean_estimate))[:2]
    factor, bias, repeated_estimate = (repeat_channels(c, x, parts) for c in (*affine, mean_estimate))
    top, mean, variance = normalize_batch(
        ctx, parts, factor, bias, repeated_estimate, ctx.settings.eps, relu=bool(epilogues)
    )
    if ctx.settings.stores_sums:
        return join_batch(top, x), update_sums(ctx, blobs[:3], mean, variance, parts)
    return top, _update_averages(ctx, blobs[:3], mean, variance)


def _update_averages(ctx: Context, blobs: Arrays, mean: jax.Array, variance: jax.Array) -> Arrays:
    """Return the moving averages, updated with the statistics of the batch. The first update replaces them."""
    fraction = ctx.settings.fraction
    means, variances, is_updated = blobs
    averages = (
        jnp.where(is_updated == 0, batch_value, fraction * promote(average) + (1 - fraction) * batch_value)
        for average, batch_value in ((means, mean), (variances, variance))
    )
    return tuple(
        jax.lax.stop_gradient(n.astype(b.dtype))
        for n, b in zip((*averages, jnp.ones_like(is_updated)), blobs, strict=True)
    )


_INTEL_SETTINGS = ("filler", "use_weight_bias", "bias_term", "stats_batch_size")


def _batch_norm_variant(layer: Any) -> str:
    p = layer.batch_norm_param
    fields = ("scale_filler", "bias_filler", "filler", "use_weight_bias", "bias_term")
    is_scaled = p.use_weight_bias and (p.scale_bias or any(p.HasField(field) for field in fields))
    return "with scale and bias" if is_scaled or len(layer.blobs) > 3 else "BVLC's"


SCALED_BATCH_NORM = LayerType(
    Signature(
        "BatchNorm",
        param="batch_norm_param",
        fork_settings=("scale_bias", "scale_filler", "bias_filler", *_INTEL_SETTINGS),
    ),
    Traced(
        scaled_batch_norm,
        params=scaled_batch_norm_params,
        stateful=True,
        fusion=Fusion(count_fusible_scaled_batch_norm, scaled_batch_norm_fused),
    ),
    Gradient(scaled_batch_norm_backward),
    LayerTraits(
        dtype_policy="bottoms",
        spatial_map="same",
        channel_affine=ChannelAffine(is_batch_norm_affine, scaled_batch_norm_factor_and_bias),
        convert_stored=convert_stored_batch_norm,
    ),
    docs=LayerDocs(origin="NVIDIA Caffe, Intel Caffe"),
    settings=read_scaled_batch_norm,
)

register(
    replace(
        BVLC_BATCH_NORM,
        implementation=Variants(
            _batch_norm_variant,
            {"BVLC's": BVLC_BATCH_NORM, "with scale and bias": SCALED_BATCH_NORM},
            selection_doc="With `scale_bias`, `scale_filler`, `bias_filler` (NVIDIA), `filler`, `use_weight_bias` or "
            "`bias_term` (Intel), or more than three blobs, it is the variant with scale and bias; with "
            "`use_weight_bias: false` it is BVLC's.",
        ),
    )
)


def mvn(ctx: Context, x: jax.Array) -> jax.Array:
    """Subtract the mean and divide by the standard deviation plus eps, for each channel of each image (N, C, H, W).

    With `across_channels` the statistics are computed over each image. With `normalize_variance: false` only the mean
    is subtracted. The top always has four axes. As in Caffe, the gradient ignores that eps is added to the standard
    deviation. Caffe's rule: mvn_layer.cpp.
    """
    images = promote(x).reshape(as_nchw(x.shape))
    centered = images - jnp.mean(images, axis=_mvn_axes(ctx), keepdims=True)
    return (centered / _mvn_divisor(ctx, x)).astype(x.dtype)


def mvn_backward(ctx: Context, x: jax.Array, *, y: jax.Array, dy: jax.Array) -> jax.Array:
    axes, d_top = _mvn_axes(ctx), promote(dy)
    if ctx.param.normalize_variance:
        projection = jnp.mean(d_top * y, axis=axes, keepdims=True)
        dx = (d_top - jnp.mean(d_top, axis=axes, keepdims=True) - y * projection) / _mvn_divisor(ctx, x)
    else:
        dx = d_top - jnp.mean(d_top, axis=axes, keepdims=True)
    return dx.reshape(x.shape)


define_layer(
    Signature("MVN", param="mvn_param"),
    Traced(mvn),
    Gradient(mvn_backward, overrides_autodiff=True),
    LayerTraits(dtype_policy="bottoms", spatial_map="same", receptive_window=global_window),
)


def _mvn_axes(ctx: Context) -> tuple[int, ...]:
    return (1, 2, 3) if ctx.param.across_channels else (2, 3)


def _mvn_divisor(ctx: Context, x: jax.Array) -> jax.Array | float:
    if not ctx.param.normalize_variance:
        return 1.0
    images = promote(x).reshape(as_nchw(x.shape))
    variance = jnp.var(images, axis=_mvn_axes(ctx), keepdims=True)
    # the derivative of the root is infinite at 0, where the centered numbers that it multiplies are 0
    is_zero = variance == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, variance))) + ctx.param.eps
