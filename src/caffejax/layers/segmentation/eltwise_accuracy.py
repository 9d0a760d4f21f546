"""EltwiseAccuracy: the share of pixels whose label is among the top_k scores."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..context import Context
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .seg_accuracy import require_label_map


def eltwise_accuracy(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """A pixel is right if its label is among the top_k classes; of equal scores the higher class is first.

    The top is 1 x 1 x 1 x 1. A label that is no class is wrong; pixels with `ignore_label` do not count.
    """
    p, classes = ctx.param, scores.shape[1]
    require_label_map(scores, labels)
    require(1 <= p.top_k <= classes, f"top_k must lie between 1 and the number of classes {classes}, not be {p.top_k}")
    index = labels.astype(jnp.int32).reshape(scores.shape[0], 1, *scores.shape[2:])
    number = jnp.arange(classes).reshape(-1, 1, 1)
    own = jnp.sum(jnp.where(index == number, scores, 0), axis=1, keepdims=True)
    before = jnp.sum((scores > own) | ((scores == own) & (number > index)), axis=1, keepdims=True)
    right = (before < p.top_k) & (index >= 0) & (index < classes)
    counts = index != p.ignore_label if p.HasField("ignore_label") else jnp.ones(index.shape, bool)
    found, among = (across.total(ctx, jnp.sum(x)) for x in (right & counts, counts))
    share = found / jnp.maximum(among, 1)
    return share.astype(jnp.float32).reshape(1, 1, 1, 1)


def _ignored(ctx: Context) -> int | None:
    return int(ctx.param.ignore_label) if ctx.param.HasField("ignore_label") else None


def _classes(ctx: Context, scores: Any, labels: Any) -> int | None:
    return int(scores.shape[1]) if len(scores.shape) > 1 else None


register(
    LayerType(
        Signature("EltwiseAccuracy", bottoms=2, param="eltwise_accuracy_param"),
        Traced(eltwise_accuracy),
        Gradient(exists=False, indices=Indices((1,), _classes, _ignored)),
        docs=LayerDocs(origin="DeconvNet"),
    )
)
