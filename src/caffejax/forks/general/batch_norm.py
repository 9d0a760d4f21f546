"""Variants of BatchNorm: with scale and bias (NVIDIA, Intel), and with statistics of parts of the batch (Intel)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ...base.errors import require
from ...core.layers.batch_norm import (
    BatchNormSettings,
    batch_norm,
    batch_norm_backward,
    batch_norm_params,
    batch_statistics,
    broadcast_channels,
    convert_stored_batch_norm,
    count_fusible_batch_norm,
    fused_affine,
    is_batch_norm_affine,
    normalize_batch,
    project_out,
    read_batch_norm,
    reduction_axes,
    update_sums,
)
from ...core.layers.context import Context, Epilogue, Params, ParamSpec, Phase
from ...core.layers.declaration import declare
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import rsqrt, stop_gradient
from ...core.layers.registry import register_variants
from ...core.layers.types import ChannelAffine
from ...core.schema.caffe_pb2 import BatchNormParameter, FillerParameter

Arrays = tuple[jax.Array, ...]

INTEL_SETTINGS = ("filler", "use_weight_bias", "bias_term", "stats_batch_size")
_MIN_EPS = 1e-5  # CUDNN_BN_MIN_EPSILON, which NVIDIA Caffe applies


@dataclass(frozen=True)
class ForkBatchNormSettings(BatchNormSettings):
    """The settings of a BatchNormParameter, with those of forks.

    Attributes:
        stats_batch_size: the number of images from which Intel's fork computes statistics, or 0 for the whole batch.
        stores_sums: whether the blobs hold sums, as in BVLC Caffe, or moving averages, as in NVIDIA Caffe.
    """

    stats_batch_size: int
    stores_sums: bool = True

    def running_statistics(self, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
        """Return mean and variance, (channels,) each. Of moving averages, blob 2 is no factor."""
        if self.stores_sums:
            return super().running_statistics(blobs)
        mean, variance = (stop_gradient(promote(b)) for b in blobs[:2])
        return mean, variance


def read_batch_norm_of_parts(p: BatchNormParameter, *, phase: Phase) -> ForkBatchNormSettings:
    """Return the settings of a BatchNorm layer of Intel Caffe."""
    return ForkBatchNormSettings(**asdict(read_batch_norm(p, phase=phase)), stats_batch_size=p.stats_batch_size)


def read_scaled_batch_norm(p: BatchNormParameter, *, phase: Phase) -> ForkBatchNormSettings:
    """Return the settings of a BatchNorm layer with scale and bias.

    They are read as in Intel Caffe if a field of this fork is set, otherwise as in NVIDIA Caffe.
    """
    settings = read_batch_norm_of_parts(p, phase=phase)
    if any(p.HasField(field) for field in INTEL_SETTINGS):
        return settings
    uses_running_stats = settings.uses_running_stats or phase == "TEST"
    return replace(settings, eps=max(settings.eps, _MIN_EPS), uses_running_stats=uses_running_stats, stores_sums=False)


@batch_norm.variant(
    fork_settings=(*INTEL_SETTINGS, "bias_filler"),
    max_blobs=None,
    stateful=True,
    count_fusible=count_fusible_batch_norm,
    settings=read_batch_norm_of_parts,
    origin="Intel Caffe",
)
def batch_norm_of_parts(p: Any, x: jax.Array, *, state: Params, ctx: Context) -> tuple[jax.Array, Arrays]:
    """Apply BatchNorm, where statistics are computed for each part of `stats_batch_size` images.

    The parts update the blobs in order. Intel's fork has no blobs for scale and bias with `use_weight_bias: false`.
    """
    if p.uses_running_stats:
        return batch_norm(p, x, state=state, ctx=ctx)
    return batch_norm_of_parts_fused(p, x, (), state=state, ctx=ctx)


@batch_norm_of_parts.params
def batch_norm_of_parts_params(p: Any, x: Any) -> list[ParamSpec]:
    specs = batch_norm_params(x)
    size, n = p.stats_batch_size, x.shape[0]
    require(
        size == 0 or n <= size or n % size == 0 or p.uses_running_stats,
        f"the batch size {n} must be a multiple of stats_batch_size {size} (Intel Caffe)",
    )
    return specs


@batch_norm_of_parts.backward
def batch_norm_of_parts_backward(
    p: Any, x: jax.Array, *, state: Params, y: jax.Array, dy: jax.Array, ctx: Context
) -> jax.Array:
    if p.uses_running_stats:
        return batch_norm_backward(p, x, state=state, y=y, dy=dy, ctx=ctx)
    parts, y_parts, dy_parts = (split_batch(p, a) for a in (x, y, dy))
    return join_batch(batch_norm_backward(p, parts, state=state, y=y_parts, dy=dy_parts, ctx=ctx), x)


@batch_norm_of_parts.fused
def batch_norm_of_parts_fused(
    p: Any, x: jax.Array, epilogues: Sequence[Epilogue], *, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Apply `batch_norm_of_parts` by batch statistics, fused with `epilogues`; return the last top and the blobs."""
    sums = tuple(state.values())
    mean_estimate = p.running_statistics(sums)[0]
    *affine, relu = fused_affine(epilogues, mean_estimate)
    parts = split_batch(p, x)
    factor, bias, estimate = (repeat_channels(c, x, parts) for c in (*affine, mean_estimate))
    top, mean, variance = normalize_batch(ctx, parts, factor, bias, estimate, p.eps, relu=relu)
    return join_batch(top, x), _update_sums_by_parts(ctx, sums, mean, variance, parts)


def split_batch(p: ForkBatchNormSettings, x: jax.Array) -> jax.Array:
    """Split a batch into parts of `stats_batch_size` images, and stack the parts as channels.

    The shape (N, C, ...) becomes (size, N / size * C, ...), where size is `stats_batch_size`.
    """
    size = p.stats_batch_size
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


def _update_sums_by_parts(
    ctx: Context, blobs: Arrays, mean: jax.Array, variance: jax.Array, parts: jax.Array
) -> Arrays:
    """Return the sums in `blobs`, updated with the statistics of each of the `parts` in order."""
    channels = blobs[0].shape
    for statistics in zip(mean.reshape(-1, *channels), variance.reshape(-1, *channels), strict=True):
        blobs = update_sums(ctx, blobs, *statistics, parts)
    return blobs


def scaled_batch_norm_factor_and_bias(p: ForkBatchNormSettings, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    mean, variance = p.running_statistics(blobs)
    factor = promote(blobs[3]) * rsqrt(variance + p.eps)
    return factor, (promote(blobs[4]) if len(blobs) > 4 else 0) - mean * factor


@declare(
    "BatchNorm",
    param="batch_norm_param",
    fork_settings=("scale_bias", "scale_filler", "bias_filler", *INTEL_SETTINGS),
    stateful=True,
    dtype_policy="bottoms",
    spatial_map="same",
    channel_affine=ChannelAffine(is_batch_norm_affine, scaled_batch_norm_factor_and_bias),
    blob_names=("mean", "variance", "scale_factor", "weight", "bias"),
    origin="NVIDIA Caffe, Intel Caffe",
    settings=read_scaled_batch_norm,
)
def scaled_batch_norm(
    p: ForkBatchNormSettings, params: Params, x: jax.Array, *, state: Params, ctx: Context
) -> tuple[jax.Array, Arrays]:
    """Apply BatchNorm, then multiply by a factor and add a bias for each channel, blobs 3 and 4, (C,) each.

    In NVIDIA Caffe, blobs 0 and 1 are moving averages, which TEST always uses, and the variance is not multiplied by
    m/(m-1). Blob 2 is 1 after the first update, and no factor; eps is at least 1e-5. In Intel Caffe, blobs are sums,
    as in BVLC Caffe, and with `bias_term: false` there is no blob 4.
    """
    if not p.uses_running_stats:
        return scaled_batch_norm_fused(p, params, x, (), state=state, ctx=ctx)
    sums = tuple(state.values())
    factor, bias = scaled_batch_norm_factor_and_bias(p, (*sums, *params.values()))
    return (promote(x) * broadcast_channels(factor, x) + broadcast_channels(bias, x)).astype(x.dtype), sums


@scaled_batch_norm.params
def scaled_batch_norm_params(p: ForkBatchNormSettings, x: Any, *, ctx: Context) -> list[ParamSpec]:
    fields = ctx.param
    factor = next((getattr(fields, f) for f in ("scale_filler", "filler") if fields.HasField(f)), None)
    shape = (x.shape[1],) if len(x.shape) > 1 else ()
    return [
        *batch_norm_of_parts_params(p, x),
        ParamSpec(shape, factor or FillerParameter(type="constant", value=1), name="weight"),
        *([ParamSpec(shape, fields.bias_filler, name="bias")] if fields.bias_term else []),
    ]


@scaled_batch_norm.backward
def scaled_batch_norm_backward(
    p: ForkBatchNormSettings, params: Params, x: jax.Array, *, state: Params, y: Any, dy: jax.Array, ctx: Context
) -> tuple[Arrays, jax.Array]:
    sums, d_top, uses_running_stats = tuple(state.values()), promote(dy), p.uses_running_stats
    d_normalized = d_top * broadcast_channels(promote(params["weight"]), x)
    parts, d_normalized = (a if uses_running_stats else split_batch(p, a) for a in (x, d_normalized))
    mean, variance = p.running_statistics(sums) if uses_running_stats else batch_statistics(ctx, parts)
    deviation = broadcast_channels(jnp.sqrt(variance + p.eps), parts)
    normalized = (promote(parts) - broadcast_channels(mean, parts)) / deviation
    if not uses_running_stats:
        d_normalized = project_out(ctx, d_normalized, normalized)
    d_factor, d_bias = ((d_top * factor).sum(reduction_axes(x)) for factor in (join_batch(normalized, x), 1))
    return (d_factor, d_bias)[: len(params)], join_batch(d_normalized / deviation, x)


@scaled_batch_norm.count_fusible
def count_fusible_scaled_batch_norm(p: ForkBatchNormSettings, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Return 1 if a ReLU follows and the layer uses batch statistics, else 0."""
    return 0 if p.uses_running_stats else int(any(f.is_relu for f in epilogues[:1]))


@scaled_batch_norm.fused
def scaled_batch_norm_fused(
    p: ForkBatchNormSettings,
    params: Params,
    x: jax.Array,
    epilogues: Sequence[Epilogue],
    *,
    state: Params,
    ctx: Context,
) -> tuple[jax.Array, Arrays]:
    """Apply `scaled_batch_norm` by batch statistics, fused with `epilogues`; return the last top and the updated blobs.

    `count_fusible_scaled_batch_norm` returned the number of epilogues.
    """
    parts, sums = split_batch(p, x), tuple(state.values())
    mean_estimate = p.running_statistics(sums)[0]
    affine = (*map(promote, params.values()), jnp.zeros_like(mean_estimate))[:2]
    factor, bias, repeated_estimate = (repeat_channels(c, x, parts) for c in (*affine, mean_estimate))
    top, mean, variance = normalize_batch(ctx, parts, factor, bias, repeated_estimate, p.eps, relu=bool(epilogues))
    if p.stores_sums:
        return join_batch(top, x), _update_sums_by_parts(ctx, sums, mean, variance, parts)
    return top, _update_averages(p, sums, mean, variance)


def _update_averages(p: ForkBatchNormSettings, blobs: Arrays, mean: jax.Array, variance: jax.Array) -> Arrays:
    """Return the moving averages, updated with the statistics of the batch. The first update replaces them."""
    fraction = p.fraction
    means, variances, is_updated = blobs
    averages = (
        jnp.where(is_updated == 0, batch_value, fraction * promote(average) + (1 - fraction) * batch_value)
        for average, batch_value in ((means, mean), (variances, variance))
    )
    return tuple(
        jax.lax.stop_gradient(n.astype(b.dtype))
        for n, b in zip((*averages, jnp.ones_like(is_updated)), blobs, strict=True)
    )


@scaled_batch_norm.convert_stored
def convert_stored_scaled_batch_norm(
    p: ForkBatchNormSettings, blobs: Sequence[Any]
) -> tuple[Sequence[Any], str | None]:
    """Return the blobs that a file stores, in the order and the shapes of the layer's, and a warning or None.

    DIGITS' older NVIDIA Caffe (0.15) stored scale, bias, mean, variance and a reserved number, whose size of 1 tells
    this order from NVIDIA's present one.
    """
    if len(blobs) == 5 and all(b is not None for b in blobs) and blobs[4].size == 1 < blobs[0].size:
        scale, bias, mean, variance, reserved = blobs
        blobs = [mean, variance, reserved, scale, bias]
    vectors, warning = convert_stored_batch_norm(blobs)
    return vectors, warning if p.stores_sums else None


def _batch_norm_variant(layer: Any) -> str | None:
    p = layer.batch_norm_param
    fields = ("scale_filler", "bias_filler", "filler", "use_weight_bias", "bias_term")
    is_scaled = p.use_weight_bias and (p.scale_bias or any(p.HasField(field) for field in fields))
    if is_scaled or len(layer.blobs) > 3:
        return "with scale and bias"
    return "of parts" if any(p.HasField(field) for field in batch_norm_of_parts.type.signature.fork_settings) else None


register_variants(
    "BatchNorm",
    _batch_norm_variant,
    {"with scale and bias": scaled_batch_norm.type, "of parts": batch_norm_of_parts.type},
    "With `scale_bias`, `scale_filler`, `bias_filler` (NVIDIA), `filler`, `use_weight_bias` or `bias_term` (Intel), or "
    "more than three blobs, it is the variant with scale and bias. With `use_weight_bias: false`, or with "
    "`stats_batch_size` only, it is Intel's variant without them.",
)
