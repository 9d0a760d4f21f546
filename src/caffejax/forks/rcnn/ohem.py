"""Online hard example mining (R-FCN): a loss that also outputs a map of losses, and the selection of hard regions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw, first_top, is_after_first_axis
from ...core.layers.loss_helpers import (
    ignored_label,
    in_valid_rows,
    loss_divisor,
    num_classes_along_axis,
    num_items,
    require_same_batch_size,
)
from ...core.layers.types import Indices
from ...core.schema.caffe_pb2 import BoxAnnotatorOHEMParameter
from ..segmentation.softmax_loss import softmax_with_losses, softmax_with_losses_backward
from .roi_utils import round_nearest
from .smooth_l1 import huber, huber_slope

Arrays = tuple[jax.Array, ...]

_ONLY_LOSS_DIFFERENTIABLE = "Only the loss passes a gradient."


register(
    "SoftmaxWithLossOHEM",
    bottoms=2,
    tops=(1, 3),
    param="softmax_param",
    loss=True,
    backward=softmax_with_losses_backward,
    overrides_autodiff=True,
    indices=Indices((1,), num_classes_along_axis, ignored_label),
    deviation=_ONLY_LOSS_DIFFERENTIABLE,
    counts_rows=is_after_first_axis,
    row_tops=(1, 2),
    origin="R-FCN",
)(softmax_with_losses)


@register(
    "SmoothL1LossOHEM",
    bottoms=(2, 3),
    tops=(1, 2),
    loss=True,
    overrides_autodiff=True,
    indices=Indices((2,), ignores_gradient=True),
    deviation=_ONLY_LOSS_DIFFERENTIABLE,
    counts_rows=True,
    row_tops=(1,),
    origin="R-FCN",
)
def smooth_l1_loss_ohem(a: jax.Array, b: jax.Array, *weights: jax.Array, ctx: Context) -> jax.Array | Arrays:
    """Compute the sum of smooth L1 of d, divided by the number of positions, as a scalar.

    Bottoms: a and b (N, C, H, W), and optionally weights of that shape. d is a - b, times the weights. Smooth L1 is
    d**2 / 2 where |d| < 1, otherwise |d| - 1/2. An optional second top (N, 1, H, W) contains the loss of each position,
    summed over the channels; it passes no gradient. As in the fork, the gradient is not multiplied by the weights
    again. loss_param may set a different divisor; the default is VALID.
    """
    d, divisor = _difference_and_divisor(ctx, a, b, *weights)
    losses = huber(d)
    loss = jnp.sum(losses) / divisor
    return (loss, lax.stop_gradient(jnp.sum(losses, axis=1, keepdims=True))) if ctx.num_tops > 1 else loss


@smooth_l1_loss_ohem.backward
def smooth_l1_loss_ohem_backward(
    a: jax.Array, b: jax.Array, *weights: jax.Array, y: Any, dy: Any, ctx: Context
) -> tuple[jax.Array | None, ...]:
    d, divisor = _difference_and_divisor(ctx, a, b, *weights)
    diff = first_top(dy) * huber_slope(d) / divisor
    return diff, -diff.reshape(b.shape), *(None,) * len(weights)


@register(
    "BoxAnnotatorOHEM",
    bottoms=4,
    tops=2,
    param="box_annotator_ohem_param",
    in_place=False,
    stops_gradient=True,
    counts_rows=True,
    row_tops=(0, 1),
    origin="R-FCN",
    unsupported={"shard": "all regions of an image are ranked together"},
)
def box_annotator_ohem(
    p: BoxAnnotatorOHEMParameter,
    rois: jax.Array,
    loss: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    *,
    ctx: Context,
) -> tuple[jax.Array, jax.Array]:
    """Select the `roi_per_img` ROIs of each image with the largest loss, and mask the labels and weights of other ROIs.

    Bottoms: ROIs (R, 5), and the loss, label and box weights of each ROI. The tops are the labels and the weights, in
    the shapes of these bottoms. ROIs that are not selected get the label `ignore_label` and the weight 0. No gradient
    passes.
    """
    n = rois.shape[0]
    for i, x in ((1, loss), (2, labels)):
        is_one_per_roi = x.shape[:1] == (n,) and math.prod(x.shape[1:]) == 1
        require(is_one_per_roi, f"bottom {i} must have one value for each of the {n} ROIs, not shape {x.shape}")
    require(weights.shape[:1] == (n,), f"bottom 3 must have {n} rows, one for each ROI, not shape {weights.shape}")
    require(
        math.prod(rois.shape[1:]) == 5, f"the ROIs, bottom 0, must have five values in each row, not shape {rois.shape}"
    )
    image = round_nearest(promote(rois).reshape(n, 5)[:, 0])
    losses = jnp.where(in_valid_rows(ctx, jnp.ones(n, bool)), promote(loss).reshape(n), -jnp.inf)
    index = jnp.arange(n)
    ranks_higher = (losses[:, None] > losses) | ((losses[:, None] == losses) & (index[:, None] < index))
    rank = jnp.sum(ranks_higher & (image[:, None] == image), axis=0)
    is_hard = rank < p.roi_per_img

    def select(x: jax.Array, masked_value: float) -> jax.Array:
        return lax.stop_gradient(jnp.where(is_hard.reshape(n, *(1,) * (x.ndim - 1)), x, masked_value))

    return select(labels, p.ignore_label), select(weights, 0)


def _difference_and_divisor(
    ctx: Context, a: jax.Array, b: jax.Array, *weights: jax.Array
) -> tuple[jax.Array, jax.Array | float]:
    """Return a - b, in the shape of `a` and multiplied by the weights if there are any, and the divisor of the loss."""
    require(len(a.shape) >= 2, f"bottom 0 must have rows and channels, not shape {a.shape}")
    require_same_batch_size(a.shape, b.shape)
    for i, x in enumerate((b, *weights), 1):
        has_equal_shape = (
            as_nchw(x.shape) == as_nchw(a.shape) if max(len(x.shape), len(a.shape)) <= 4 else x.shape == a.shape
        )
        require(has_equal_shape, f"bottom {i} must have the shape of bottom 0, {a.shape}, not {x.shape}")
    positions = in_valid_rows(ctx, jnp.ones((a.shape[0], *a.shape[2:]), bool))
    d = promote(a) - promote(b).reshape(a.shape)
    d = d * promote(weights[0]).reshape(a.shape) if weights else d
    return d, loss_divisor(ctx, positions, "VALID", num_items(ctx, a.shape[:1]))
