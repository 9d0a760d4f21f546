"""Proposal: regions of interest from an RPN's scores and box deltas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .anchors import anchors, by_cell, clipped, decoded, grid, half_up
from .proposing import Limits, best, require_maps
from .quicksort import quicksorted


def proposal(
    ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Best boxes that an RPN predicts for an image, as rows 0, x1, y1, x2, y2; and if asked for, their scores.

    Anchors of all `ratio` and `scale` at each cell are moved by the deltas and cut to the image; boxes too small score
    0. The `pre_nms_topn` best go through suppression, which leaves `post_nms_topn` at most. Boxes of equal scores are
    in the order into which the fork's quicksort brings them.
    """
    p = ctx.param
    require(p.feat_stride > 0 and p.base_size > 0, "feat_stride and base_size must be > 0")
    require(all(r > 0 for r in p.ratio), f"ratios must be > 0, not {list(p.ratio)}")
    require(bool(p.ratio) and bool(p.scale), "needs a ratio and a scale at least")
    base = anchors(p.base_size, p.ratio, p.scale, half_up)
    require_maps(scores, deltas, im_info, len(base), 4)
    dtype = scores.dtype
    scores, deltas, image = (lax.stop_gradient(promote(x)) for x in (scores, deltas, im_info[0]))
    places = grid(base, scores.shape[2:], p.feat_stride)
    boxes = clipped(decoded(places, by_cell(deltas, 4)), image[0], image[1]).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    large = jnp.all(sides >= p.min_size * jnp.stack([image[3], image[2]]), axis=1)
    score = jnp.where(large, by_cell(scores[:, len(base) :], 1).ravel(), 0)
    limits = Limits(p.pre_nms_topn, p.post_nms_topn, p.nms_thresh)
    found = best(boxes, score, jnp.ones_like(large), limits, quicksorted(score))
    rois = found.rois.astype(dtype)
    return rois if ctx.n_tops == 1 else (rois, found.marked_scores.astype(dtype))


register(
    LayerType(
        Signature(
            "Proposal",
            bottoms=3,
            tops=(1, 2),
            param="proposal_param",
            in_place=False,
            fork_settings=("ratio", "scale", "base_size", "min_size"),
        ),
        Traced(proposal),
        Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(origin="pva-faster-rcnn", restrictions="One image, as in the fork."),
    )
)
