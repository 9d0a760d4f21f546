"""BN: batch normalisation with a factor and a bias for each channel, in one layer; of SegNet, and of PSPNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import require
from ..kernels.affine import by_channel
from ..kernels.normalization import batch_normalized
from ..kernels.sums import FIRST
from .context import Context, ParamSpec, Shape
from .dtypes import promote
from .epilogue import Epilogue
from .registry import register
from .types import ByChannel, Facts, Fusion, Gradient, LayerType, Signature, Traced, Variants

Arrays = tuple[jax.Array, ...]

_SEGNET_EPS = 1e-9


def moving_bn(ctx: Context, blobs: Arrays, x: jax.Array) -> tuple[jax.Array, Arrays]:
    """slope * (x - mean) / sqrt(variance + eps) + bias, channel by channel; blobs of (1, channels, 1, 1).

    In TRAIN mean and variance are the batch's, and the blobs mean and variance become momentum * blob + (1 - momentum)
    * batch's; in TEST, or if `frozen`, they are the blobs. If `frozen`, slope and bias get no gradient.
    """
    if not _by_batch(ctx):
        return _affine(ctx, x, *moving_factor_and_bias(ctx, blobs)), blobs[2:]
    return moving_bn_fused(ctx, blobs, x, ())


def moving_bn_params(ctx: Context, x: Any) -> list[ParamSpec]:
    p, shape = ctx.param, _shape(x)
    require(not p.icnet, "icnet: true is not supported")
    require(0 <= p.momentum <= 1, f"momentum must lie between 0 and 1, not be {p.momentum:g}")
    variance = type(p.slope_filler)(type="constant", value=1)
    learned = [ParamSpec(shape, p.slope_filler), ParamSpec(shape, p.bias_filler)]
    return [*learned, ParamSpec(shape, learnable=False), ParamSpec(shape, variance, learnable=False)]


def moving_bn_backward(
    ctx: Context, blobs: Arrays, x: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[Any, jax.Array]:
    slope, _, mean, variance = blobs
    if _by_batch(ctx):
        (d_slope, d_bias), dx = _diffs(slope, x, dy, ctx.param.eps)
        return (d_slope, d_bias, None, None), dx
    deviation = jnp.sqrt(promote(_channels(variance)) + ctx.param.eps)
    dx = promote(dy) * FIRST.along(_channels(slope) / deviation, x)
    if ctx.param.frozen:
        return (None, None, None, None), dx
    normal = (promote(x) - FIRST.along(_channels(mean), x)) / FIRST.along(deviation, x)
    d_slope, d_bias = FIRST.sums(promote(dy) * normal), FIRST.sums(promote(dy))
    return (d_slope.reshape(slope.shape), d_bias.reshape(slope.shape), None, None), dx


def _moving_is_affine(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return not _by_batch(ctx) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def moving_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    slope, bias, mean, variance = (promote(_channels(b)) for b in blobs)
    factor = slope * jax.lax.rsqrt(variance + ctx.param.eps)
    bias = bias - mean * factor
    return (jax.lax.stop_gradient(factor), jax.lax.stop_gradient(bias)) if ctx.param.frozen else (factor, bias)


def moving_bn_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count a ReLU right after it, where the batch is normalised by itself."""
    return int(_by_batch(ctx) and epilogues[0].is_relu)


def moving_bn_fused(
    ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]
) -> tuple[jax.Array, Arrays]:
    """Compute it with what `moving_bn_fusible` counts."""
    slope, bias, mean, variance = map(_channels, blobs)
    top, *batch = _normalized(ctx, x, slope, bias, mean, ctx.param.eps, relu=bool(epilogues))
    momentum = ctx.param.momentum
    new = (momentum * old + (1 - momentum) * now for old, now in zip((mean, variance), batch, strict=True))
    return top, tuple(
        jax.lax.stop_gradient(n).reshape(b.shape).astype(b.dtype) for n, b in zip(new, blobs[2:], strict=True)
    )


def segnet_bn(ctx: Context, blobs: Arrays, x: jax.Array) -> object:
    """scale * (x - mean) / sqrt(variance + 1e-9) + shift, channel by channel, by the batch's own statistics.

    In TEST too. With bn_mode INFERENCE just scale * x + shift. Second and third tops are the batch's mean and variance,
    (1, channels, 1, 1). Blobs are scale and shift of that shape.
    """
    if _by_batch_always(ctx) or ctx.n_tops > 1:
        return segnet_bn_fused(ctx, blobs, x, ())
    return _affine(ctx, x, *segnet_factor_and_bias(ctx, blobs))


def segnet_bn_params(ctx: Context, x: Any) -> list[ParamSpec]:
    require(_by_batch_always(ctx) or ctx.n_tops == 1, "with bn_mode: INFERENCE there are no tops for mean and variance")
    return [ParamSpec(_shape(x), ctx.param.scale_filler), ParamSpec(_shape(x), ctx.param.shift_filler)]


def segnet_bn_backward(ctx: Context, blobs: Arrays, x: jax.Array, *, y: Any, dy: Any) -> tuple[Any, jax.Array]:
    d_top, scale = dy[0] if isinstance(dy, tuple) else dy, blobs[0]
    if _by_batch_always(ctx):
        return _diffs(scale, x, d_top, _SEGNET_EPS)
    d_scale, d_shift = FIRST.sums(promote(d_top) * x), FIRST.sums(promote(d_top))
    return (d_scale.reshape(scale.shape), d_shift.reshape(scale.shape)), d_top * FIRST.along(_channels(scale), x)


def _segnet_is_affine(ctx: Context, shapes: Sequence[Shape], axis: int, channels: int) -> bool:
    return not _by_batch_always(ctx) and axis == 1 and shapes[0] == (1, channels, 1, 1)


def segnet_factor_and_bias(ctx: Context, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return _channels(blobs[0]), _channels(blobs[1])


def segnet_bn_fusible(ctx: Context, x: Any, epilogues: Sequence[Epilogue]) -> int:
    """Count a ReLU right after it, where the batch is normalised by itself."""
    return int(_by_batch_always(ctx) and epilogues[0].is_relu)


def segnet_bn_fused(ctx: Context, blobs: Arrays, x: jax.Array, epilogues: Sequence[Epilogue]) -> object:
    """Compute it with what `segnet_bn_fusible` counts."""
    scale, shift = map(_channels, blobs)
    top, *batch = _normalized(ctx, x, scale, shift, jnp.zeros_like(shift), _SEGNET_EPS, relu=bool(epilogues))
    return top if ctx.n_tops == 1 else (top, *(b.reshape(_shape(x)) for b in batch[: ctx.n_tops - 1]))


def _variant(layer: Any) -> str:
    p = layer.bn_param
    tells = any(p.HasField(field) for field in ("bn_mode", "scale_filler", "shift_filler"))
    return "SegNet" if tells or len(layer.blobs) == 2 else "PSPNet"


_PSPNET = LayerType(
    Signature("BN", param="bn_param"),
    Traced(moving_bn, params=moving_bn_params, stateful=True, fusion=Fusion(moving_bn_fusible, moving_bn_fused)),
    Gradient(moving_bn_backward),
    Facts(
        dtypes="bottoms",
        pixels="same",
        by_channel=ByChannel(_moving_is_affine, moving_factor_and_bias),
        weight_axes=4,
        origin="yjxiong/caffe, PSPNet",
    ),
)
_SEGNET = LayerType(
    Signature("BN", tops=(1, 3), param="bn_param"),
    Traced(segnet_bn, params=segnet_bn_params, fusion=Fusion(segnet_bn_fusible, segnet_bn_fused)),
    Gradient(segnet_bn_backward, not_derivative="mean and variance pass no gradient"),
    Facts(
        dtypes="bottoms",
        pixels="same",
        by_channel=ByChannel(_segnet_is_affine, segnet_factor_and_bias),
        weight_axes=4,
        origin="SegNet, DeconvNet",
    ),
)
register(
    LayerType(
        Signature("BN", tops=(1, 3), param="bn_param"),
        Variants(
            _variant,
            {"PSPNet": _PSPNET, "SegNet": _SEGNET},
            "SegNet's has bn_mode, scale_filler or shift_filler, or two blobs",
        ),
        facts=Facts(origin="yjxiong/caffe, PSPNet; SegNet, DeconvNet"),
    )
)


def _by_batch(ctx: Context) -> bool:
    return ctx.training and not ctx.param.frozen


def _by_batch_always(ctx: Context) -> bool:
    return bool(ctx.param.bn_mode == ctx.param.LEARN)


def _shape(x: Any) -> Shape:
    require(len(x.shape) >= 2, f"needs a bottom with a channel axis (axis 1), not shape {x.shape}")
    return (1, x.shape[1], 1, 1)


def _channels(blob: jax.Array) -> jax.Array:
    return blob.reshape(-1)


def _affine(ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array) -> jax.Array:
    return by_channel(x, factor, bias, fast=ctx.fast).astype(x.dtype)


def _normalized(
    ctx: Context, x: jax.Array, factor: jax.Array, bias: jax.Array, near: jax.Array, eps: float, *, relu: bool
) -> Arrays:
    """Return the top, and the batch's mean and variance; `near` is a guess at the mean."""
    if ctx.fast:
        guess = jax.lax.stop_gradient(promote(near))
        guess = jnp.where(jnp.isfinite(guess), guess, 0)
        found: Arrays = batch_normalized(x, promote(factor), promote(bias), guess, eps, relu=relu)
        return found
    mean, variance = _statistics(x)
    y = (promote(x) - FIRST.along(mean, x)) / FIRST.along(jnp.sqrt(variance + eps), x)
    y = y * FIRST.along(factor, x) + FIRST.along(bias, x)
    return y.astype(x.dtype), jax.lax.stop_gradient(mean), jax.lax.stop_gradient(variance)


def _statistics(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean = FIRST.means(promote(x))
    return mean, FIRST.means(jnp.square(promote(x) - FIRST.along(mean, x)))


def _diffs(factor: jax.Array, x: jax.Array, dy: jax.Array, eps: float) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Return the diffs of factor and bias, and of the bottom, where the batch is normalised by itself."""
    mean, variance = _statistics(x)
    deviation, dy = jnp.sqrt(variance + eps), promote(dy)
    normal = (promote(x) - FIRST.along(mean, x)) / FIRST.along(deviation, x)
    d_factor, d_bias = FIRST.sums(dy * normal), FIRST.sums(dy)
    m = x.size // mean.size
    # the normal has mean 0 and variance 1 (but for eps): moving x only moves it across both directions
    across = dy - FIRST.along(d_bias / m, x) - normal * FIRST.along(d_factor / m, x)
    dx = across * FIRST.along(_channels(factor) / deviation, x)
    return (d_factor.reshape(factor.shape), d_bias.reshape(factor.shape)), dx
