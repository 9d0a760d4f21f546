"""Scale with limits of its factor (caffe-windows), or with a factor that is matched by its size (OpenCV)."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ...core.layers.affine import (
    affine_top_shapes,
    scale,
    scale_backward,
    scale_factor_and_bias,
    scale_params,
    spans_channels,
)
from ...core.layers.context import Context, Params, ParamSpec, Shape
from ...core.layers.helpers import array_namespace, canonical_axis
from ...core.layers.loss_helpers import straight_through
from ...core.layers.registry import register_variants
from ...core.layers.types import ChannelAffine

Arrays = tuple[jax.Array, ...]


_SETTINGS = ("min_value", "max_value", "match_by_count")


def limited_factor_and_bias(p: Any, blobs: Arrays) -> tuple[jax.Array, jax.Array]:
    return scale_factor_and_bias((_limit(p, blobs[0]), *blobs[1:]))


@scale.variant(
    fork_settings=_SETTINGS,
    top_shapes=affine_top_shapes,
    channel_affine=ChannelAffine(spans_channels, limited_factor_and_bias),
    origin="caffe-windows, OpenCV",
)
def adapted_scale(p: Any, params: Params, *bottoms: jax.Array, ctx: Context) -> jax.Array:
    """Apply Scale with the factor clamped to [`min_value`, `max_value`]; the gradient ignores the clamp.

    With `match_by_count` the factor spans the axes of the bottom from `axis` on that have its number of elements, such
    as (N, C, 1, 1) with axis 0.
    """
    adapted_params, adapted_bottoms = _adapt_factor(p, params, bottoms)
    return scale(adapted_params, *adapted_bottoms, ctx=ctx)


@adapted_scale.params
def adapted_scale_params(p: Any, *bottoms: Any) -> list[ParamSpec]:
    x, *factors = bottoms
    return scale_params(p, x, *(jax.ShapeDtypeStruct(_factor_shape(p, x, f), f.dtype) for f in factors))


@adapted_scale.backward
def adapted_scale_backward(p: Any, params: Params, *bottoms: jax.Array, y: jax.Array, dy: jax.Array) -> tuple[Any, ...]:
    adapted_params, adapted_bottoms = _adapt_factor(p, params, bottoms)
    param_diffs, dx, *factor_diff = scale_backward(p, adapted_params, *adapted_bottoms, y=y, dy=dy)
    if factor_diff:
        return param_diffs, dx, factor_diff[0].reshape(bottoms[1].shape)
    return (param_diffs[0].reshape(params["weight"].shape), *param_diffs[1:]), dx


def _adapt_factor(p: Any, params: Params, bottoms: Arrays) -> tuple[Params, Arrays]:
    """Return params and bottoms with the factor, which is bottom 1 or the weight, reshaped and limited."""
    x, factor = bottoms if len(bottoms) == 2 else (bottoms[0], params["weight"])
    adapted_factor = _limit(p, factor.reshape(_factor_shape(p, x, factor)))
    return (params, (x, adapted_factor)) if len(bottoms) == 2 else ({**params, "weight": adapted_factor}, bottoms)


def _factor_shape(p: Any, x: Any, factor: Any) -> Shape:
    if not p.match_by_count:
        return tuple(factor.shape)
    start = canonical_axis(p.axis, x.shape)
    ends = range(start + 1, len(x.shape) + 1)
    return next((x.shape[start:end] for end in ends if math.prod(x.shape[start:end]) == factor.size), factor.shape)


def _limit(p: Any, factor: Any) -> Any:
    low, high = (getattr(p, f) if p.HasField(f) else None for f in ("min_value", "max_value"))
    if low is None and high is None:
        return factor
    limited_factor = array_namespace(factor).clip(factor, low, high)
    return limited_factor if isinstance(limited_factor, np.ndarray) else straight_through(factor, limited_factor)


register_variants(
    "Scale",
    lambda layer: "of an adapted factor" if any(layer.scale_param.HasField(f) for f in _SETTINGS) else None,
    {"of an adapted factor": adapted_scale.type},
    "With `min_value` or `max_value` (caffe-windows), or `match_by_count` (OpenCV), the factor is adapted.",
)
