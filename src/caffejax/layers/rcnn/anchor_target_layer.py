"""py-faster-rcnn's AnchorTargetLayer, a Python layer that is built in: what an RPN learns at each anchor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..boxes import overlaps
from ..context import Context
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..param_str import settings
from ..types import Gradient, LayerDocs, LayerType, Signature, Traced
from .anchors import anchors, encoded, grid
from .proposal_layer import BASE, RATIOS
from .proposing import require_image
from .rois import are_rows_of_five

_DEFAULTS: dict[str, Any] = {
    "feat_stride": 16,
    "scales": (8, 16, 32),
    "allowed_border": 0,
    "rpn_batchsize": 256,
    "rpn_fg_fraction": 0.5,
    "rpn_positive_overlap": 0.7,
    "rpn_negative_overlap": 0.3,
    "rpn_clobber_positives": False,
    "rpn_bbox_inside_weights": (1.0, 1.0, 1.0, 1.0),
    "rpn_positive_weight": -1.0,
}


def anchor_target_layer(
    ctx: Context, scores: jax.Array, truth: jax.Array, im_info: jax.Array, *_image: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Labels (1 x 1 x A*H x W: 1, 0; -1 for those left out), box targets, inside and outside weights (1 x 4A x H x W).

    Of the scores (bottom 0) only the size counts; bottom 1 has the true boxes, x1, y1, x2, y2, class, of which rows of
    class 0 do not count. The settings of py-faster-rcnn's cfg can be given in param_str, in lower case.
    """
    s = settings(ctx.param.param_str, _DEFAULTS)
    require(s["feat_stride"] > 0 and len(s["scales"]) > 0, "needs a feat_stride > 0 and a scale at least")
    require(len(s["rpn_bbox_inside_weights"]) == 4, "rpn_bbox_inside_weights must be four numbers")
    require(len(scores.shape) == 4 and scores.shape[0] == 1, f"bottom 0 must be of one image: not {scores.shape}")
    require_truth(truth)
    require_image(im_info, 2)
    height, width = scores.shape[2:]
    places = grid(anchors(BASE, RATIOS, s["scales"]), (height, width), s["feat_stride"])
    boxes = places.reshape(-1, 4)
    truth, image = (lax.stop_gradient(promote(x)) for x in (truth.reshape(truth.shape[0], 5), im_info[0]))
    labels, matched = _labels(s, boxes, truth, image)
    chosen = _sampled(labels, s["rpn_batchsize"], s["rpn_fg_fraction"], ctx.key)
    inside = jnp.where((chosen == 1)[:, None], jnp.asarray(s["rpn_bbox_inside_weights"], jnp.float32), 0.0)
    targets = jnp.where(_inside(boxes, image, s["allowed_border"])[:, None], encoded(boxes, matched), 0.0)
    outside = jnp.broadcast_to(_weights(chosen, s["rpn_positive_weight"])[:, None], targets.shape)

    def maps(values: jax.Array) -> jax.Array:  # (H * W * A, n) to (1, A * n, H, W)
        return jnp.transpose(values.reshape(height, width, -1), (2, 0, 1))[None]

    return maps(chosen[:, None]).reshape(1, 1, -1, width), maps(targets), maps(inside), maps(outside)


ANCHOR_TARGET_LAYER = LayerType(
    Signature("Python", bottoms=(3, 4), tops=4, param="python_param", in_place=False),
    Traced(anchor_target_layer),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    docs=LayerDocs(
        origin="py-faster-rcnn",
        restrictions="One image, as in the original. A true box that meets no anchor makes none positive.",
    ),
)


def require_truth(truth: Any) -> None:
    """Raise `LayerError` unless these are rows of five numbers."""
    good = are_rows_of_five(truth)
    require(good and truth.shape[0] > 0, f"true boxes must be rows x1, y1, x2, y2, class, not of shape {truth.shape}")


def _inside(boxes: jax.Array, image: jax.Array, border: int) -> jax.Array:
    before = jnp.all(boxes[:, :2] >= -border, axis=1)
    return before & (boxes[:, 2] < image[1] + border) & (boxes[:, 3] < image[0] + border)


def _labels(s: dict[str, Any], boxes: jax.Array, truth: jax.Array, image: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return for each anchor whether it is positive (1), negative (0) or neither (-1), and its nearest true box."""
    inside, real = _inside(boxes, image, s["allowed_border"]), truth[:, 4] >= 1
    overlap = overlaps(boxes[:, None], truth[:, :4], 1.0)
    overlap = jnp.where(inside[:, None] & real, overlap, -1.0)
    most, nearest = jnp.max(overlap, axis=1), jnp.argmax(overlap, axis=1)
    of_truth = jnp.max(overlap, axis=0)
    positive = jnp.any((overlap == of_truth) & (of_truth > 0), axis=1) | (most >= s["rpn_positive_overlap"])
    negative = most < s["rpn_negative_overlap"]
    first, then = (negative, positive) if s["rpn_clobber_positives"] else (positive, negative)
    labels = jnp.where(first, 0.0 if s["rpn_clobber_positives"] else 1.0, -1.0)
    labels = jnp.where(then & ~first, 1.0 if s["rpn_clobber_positives"] else 0.0, labels)
    return jnp.where(inside, labels, -1.0), truth[nearest, :4]


def _sampled(labels: jax.Array, batch: int, fraction: float, key: jax.Array) -> jax.Array:
    """Return the labels with as many positives and negatives as are asked for, -1 at random where there are more."""
    order = jax.random.uniform(key, (2, *labels.shape))
    positive = _some(labels == 1, order[0], int(fraction * batch))
    negative = _some(labels == 0, order[1], batch - jnp.sum(positive))
    return jnp.where(positive, 1.0, jnp.where(negative, 0.0, -1.0))


def _some(among: jax.Array, order: jax.Array, n: Any) -> jax.Array:
    rank = jnp.argsort(jnp.argsort(jnp.where(among, order, 2.0)))
    return among & (rank < n)


def _weights(labels: jax.Array, positive_weight: float) -> jax.Array:
    """Return each anchor's outside weight: the same for all that are used, or shared out between both kinds."""
    positive, negative = labels == 1, labels == 0
    if positive_weight < 0:
        return (positive | negative) / jnp.maximum(jnp.sum(positive | negative), 1)
    require(0 < positive_weight < 1, f"rpn_positive_weight must be below 1, or negative, not {positive_weight}")
    shares = (
        positive_weight / jnp.maximum(jnp.sum(positive), 1),
        (1 - positive_weight) / jnp.maximum(jnp.sum(negative), 1),
    )
    return jnp.where(positive, shares[0], jnp.where(negative, shares[1], 0.0))
