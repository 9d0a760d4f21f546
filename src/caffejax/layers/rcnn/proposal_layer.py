"""py-faster-rcnn's ProposalLayer, a Python layer that is built in, and MNC's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ..context import Context
from ..dtypes import promote
from ..no_gradient import no_gradient
from ..param_str import settings
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced
from .anchors import anchors, by_cell, clipped, decoded, grid
from .proposing import Limits, best, require_maps

RATIOS, BASE = (0.5, 1, 2), 16
_DEFAULTS: dict[str, Any] = {"feat_stride": 16, "scales": (8, 16, 32), "rpn_nms_thresh": 0.7, "rpn_min_size": 16.0}
_TRAIN = {"rpn_pre_nms_top_n": 12000, "rpn_post_nms_top_n": 2000}
_TEST = {"rpn_pre_nms_top_n": 6000, "rpn_post_nms_top_n": 300}


def proposal_layer(
    ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Best boxes that an RPN predicts for an image, as rows 0, x1, y1, x2, y2; and if asked for, their scores.

    The settings of py-faster-rcnn's cfg for the phase can be given in param_str by their names in lower case.
    """
    return _proposals(ctx, settings(ctx.param.param_str, _defaults(ctx)), scores, deltas, im_info)


def mnc_proposal_layer(ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array) -> Any:
    """The same in MNC, where it trains the RPN's deltas too, which is not done here."""
    extra = {"gradient_scale": 1.0, "use_clip": 0, "clip_base": 64.0}  # they matter to gradients
    return _proposals(ctx, settings(ctx.param.param_str, _defaults(ctx) | extra), scores, deltas, im_info)


def _layer(forward: Any, origin: str, most_tops: int, restrictions: str) -> LayerType:
    return LayerType(
        Signature("Python", bottoms=3, tops=(1, most_tops), param="python_param", in_place=False),
        Traced(forward),
        Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(origin=origin, restrictions=restrictions),
    )


_ONE = "One image, as in the original."
PROPOSAL_LAYER = _layer(proposal_layer, "py-faster-rcnn", 2, _ONE)
MNC_PROPOSAL_LAYER = _layer(mnc_proposal_layer, "MNC", 1, f"{_ONE} No gradient reaches the deltas.")


def _defaults(ctx: Context) -> dict[str, Any]:
    return _DEFAULTS | (_TRAIN if ctx.training else _TEST)


def _proposals(ctx: Context, s: dict[str, Any], scores: jax.Array, deltas: jax.Array, im_info: jax.Array) -> Any:
    require(s["feat_stride"] > 0 and len(s["scales"]) > 0, "needs a feat_stride > 0 and a scale at least")
    base = anchors(BASE, RATIOS, s["scales"])
    require_maps(scores, deltas, im_info, len(base), 3)
    dtype = scores.dtype
    scores, deltas, image = (lax.stop_gradient(promote(x)) for x in (scores, deltas, im_info[0]))
    places = grid(base, scores.shape[2:], s["feat_stride"])
    boxes = clipped(decoded(places, by_cell(deltas, 4)), image[0], image[1]).reshape(-1, 4)
    large = jnp.all(boxes[:, 2:] - boxes[:, :2] + 1 >= s["rpn_min_size"] * image[2], axis=1)
    limits = Limits(s["rpn_pre_nms_top_n"], s["rpn_post_nms_top_n"], s["rpn_nms_thresh"])
    found = best(boxes, by_cell(scores[:, len(base) :], 1).ravel(), large, limits)
    rois = found.rois.astype(dtype)
    return rois if ctx.n_tops == 1 else (rois, found.marked_scores[:, None].astype(dtype))
