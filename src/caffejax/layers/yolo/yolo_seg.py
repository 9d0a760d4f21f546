"""YoloSeg: MobileNet-YOLO's loss of segmentation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from .. import across
from ..context import Context
from ..dtypes import promote
from ..loss import require_one_batch
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced


def yolo_seg(ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array) -> jax.Array:
    """Sum of the squared differences `object_scale` * (sigmoid(x) - label), over N; they are the gradient themselves.

    A third bottom (N, C) counts pixels of the C classes that x's axis 1 has: a class's differences are multiplied by
    2 less its share of them.
    """
    return jnp.sum(jnp.square(_difference(ctx, x, labels, *pixels))) / max(x.shape[0], 1)


def yolo_seg_backward(
    ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array | None, ...]:
    diff = dy / max(x.shape[0], 1) * _difference(ctx, x, labels, *pixels)
    return diff.astype(x.dtype), None, *(None for _ in pixels)


register(
    LayerType(
        Signature("YoloSeg", bottoms=(2, 3), param="yolo_seg_param", loss=True),
        Traced(yolo_seg),
        Gradient(
            yolo_seg_backward, overrides_autodiff=True, indices=Indices((1, 2)), exempt_from_force_backward=(1, 2)
        ),
        docs=LayerDocs(
            origin="MobileNet-YOLO",
            restrictions="`class_scale`, `num_class`, `use_logic_gradient` and `use_hardsigmoid` do nothing, as in the "
            "fork. No recorded case.",
        ),
    )
)


def _difference(ctx: Context, x: jax.Array, labels: jax.Array, *pixels: jax.Array) -> jax.Array:
    require_one_batch(x.shape, labels.shape)
    require(x.size == labels.size, f"needs a label for each number: data {x.shape}, labels {labels.shape}")
    target = lax.stop_gradient(promote(labels)).reshape(x.shape)
    difference = ctx.param.object_scale * (jax.nn.sigmoid(promote(x)) - target)
    for counts in pixels:
        wanted = x.shape[:2]
        require(
            len(x.shape) >= 2 and counts.shape[:2] == wanted and counts.size == wanted[0] * wanted[1],
            f"bottom 2 must count the pixels of each image's classes, {wanted}, not have shape {counts.shape}",
        )
        per_class = across.total(ctx, jnp.sum(lax.stop_gradient(promote(counts)).reshape(wanted), axis=0))
        share = per_class / jnp.maximum(jnp.sum(per_class), 1e-30)
        difference *= (2 - share).reshape(-1, *(1,) * (len(x.shape) - 2))
    return difference
