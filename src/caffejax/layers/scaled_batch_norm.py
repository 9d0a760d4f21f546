"""BatchNorm with a scale and a bias of its own, as forks have it: two more blobs. Here the type is registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ..kernels.normalization import batch_normalized
from ..schema.caffe_pb2 import FillerParameter
from .context import Context, ParamSpec
from .dtypes import promote
from .epilogue import Epilogue
from .namespace import rsqrt
from .normalization import (
    PLAIN_BATCH_NORM,
    Arrays,
    along,
    batch_norm_params,
    but_channels,
    less_moved,
    of_channels,
    statistics,
    stored,
    synced_over,
    updated,
    uses_stored,
)
from .registry import register
from .types import ByChannel, Fusion, Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced, Variants

_LEAST_EPS = 1e-5  # NVIDIA's, which cuDNN wants


def scaled_batch_norm(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """BatchNorm, then times a factor and plus a bias for each channel, which are blobs 3 and 4.

    NVIDIA's blobs 0 and 1 are moving averages, the variance's without the m/(m-1) correction, and TEST always uses
    them; blob 2 is 1 once there are any. Intel's are sums, as BVLC's. eps is at least 1e-5 with NVIDIA.
    """
    if not _by_stored(ctx):
        return scaled_batch_norm_fused(ctx, blobs, x, ())
    factor, bias = scaled_by_channel(ctx, blobs)
    return (promote(x) * along(factor, x) + along(bias, x)).astype(x.dtype), blobs[:3]


def scaled_batch_norm_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p = ctx.param
    factor = next((getattr(p, f) for f in ("scale_filler", "filler") if p.HasField(f)), None)
    shape = (x.shape[1],) if len(x.shape) > 1 else ()
    return [
        *batch_norm_params(ctx, x),
        ParamSpec(shape, factor or FillerParameter(type="constant", value=1)),
        ParamSpec(shape, p.bias_filler),
    ]


def scaled_batch_norm_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[tuple[Any, ...], jax.Array]:
    values, d_top, axes = promote(x), promote(dy), but_channels(x)
    mean, variance = stored(blobs[:3]) if _by_stored(ctx) else statistics(ctx, x)
    deviation = along(jnp.sqrt(variance + effective_eps(ctx)), x)
    normalised = (values - along(mean, x)) / deviation
    d_normalised = d_top * along(promote(blobs[3]), x)
    if not _by_stored(ctx):
        d_normalised = less_moved(ctx, d_normalised, normalised)
    d_factor, d_bias = (d_top * normalised).sum(axes), d_top.sum(axes)
    return (None, None, None, d_factor, d_bias), d_normalised / deviation


def scaled_by_channel(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    mean, variance = stored(blobs[:3])
    factor = promote(blobs[3]) * rsqrt(variance + effective_eps(ctx))
    return factor, promote(blobs[4]) - mean * factor


def scaled_batch_norm_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count a ReLU right after it, where the batch is normalised by itself."""
    return 0 if _by_stored(ctx) else int(any(f.is_relu for f in epilogues[:1]))


def scaled_batch_norm_fused(
    ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]
) -> tuple[jax.Array, Arrays]:
    """Normalise the batch by itself, with what `scaled_batch_norm_fusible` counts."""
    factor, bias = map(promote, blobs[3:])
    if ctx.fast:
        near = stored(blobs[:3])[0]
        guess = jnp.where(jnp.isfinite(near), near, 0)
        how: Any = {"relu": bool(epilogues), "axis_name": synced_over(ctx)}
        top, mean, variance = batch_normalized(x, factor, bias, guess, effective_eps(ctx), **how)
    else:
        mean, variance = statistics(ctx, x)
        normalised = (promote(x) - along(mean, x)) / along(jnp.sqrt(variance + effective_eps(ctx)), x)
        top = (normalised * along(factor, x) + along(bias, x)).astype(x.dtype)
    if _is_intel(ctx.layer):
        return top, updated(ctx, blobs[:3], mean, variance, x)
    return top, _moved(ctx, blobs[:3], mean, variance)


def _moved(ctx: Context, blobs: Arrays, mean: jax.Array, variance: jax.Array) -> Arrays:
    """Move the averages towards the batch's statistics; they begin as these."""
    fraction = ctx.param.moving_average_fraction
    means, variances, begun = blobs
    new = (
        jnp.where(begun == 0, now, fraction * promote(old) + (1 - fraction) * now)
        for old, now in ((means, mean), (variances, variance))
    )
    return tuple(
        jax.lax.stop_gradient(n.astype(b.dtype)) for n, b in zip((*new, jnp.ones_like(begun)), blobs, strict=True)
    )


def _by_stored(ctx: Context) -> bool:
    return uses_stored(ctx) or not (ctx.training or _is_intel(ctx.layer))


def effective_eps(ctx: Context) -> float:
    """Return what is added to the variance."""
    return float(ctx.param.eps) if _is_intel(ctx.layer) else max(float(ctx.param.eps), _LEAST_EPS)


def _is_intel(layer: Any) -> bool:
    return bool(layer.batch_norm_param.HasField("filler"))


def _variant(layer: Any) -> str:
    p = layer.batch_norm_param
    own = p.scale_bias or any(p.HasField(f) for f in ("scale_filler", "bias_filler", "filler"))
    return "with scale and bias" if own else "BVLC's"


SCALED_BATCH_NORM = LayerType(
    Signature(
        "BatchNorm",
        param="batch_norm_param",
        fork_settings=("scale_bias", "scale_filler", "bias_filler", "filler", "stats_batch_size"),
    ),
    Traced(
        scaled_batch_norm,
        params=scaled_batch_norm_params,
        stateful=True,
        fusion=Fusion(scaled_batch_norm_fusible, scaled_batch_norm_fused),
    ),
    Gradient(scaled_batch_norm_backward),
    LayerTraits(
        dtype_policy="bottoms",
        spatial_map="same",
        by_channel=ByChannel(lambda ctx, *at: _by_stored(ctx) and of_channels(ctx, *at), scaled_by_channel),
    ),
    docs=LayerDocs(origin="NVIDIA Caffe, Intel Caffe"),
)

register(
    replace(
        PLAIN_BATCH_NORM,
        implementation=Variants(
            _variant,
            {"BVLC's": PLAIN_BATCH_NORM, "with scale and bias": SCALED_BATCH_NORM},
            selection_doc="With `scale_bias`, `scale_filler`, `bias_filler` (NVIDIA) or `filler` (Intel) a fork's.",
        ),
    )
)
