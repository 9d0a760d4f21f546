"""Region proposals from an RPN's scores and deltas: Proposal, and the ProposalLayer of py-faster-rcnn and MNC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...errors import require
from ...kernels.host_constant import table
from ...kernels.vma import vary_as
from ..boxes import select_best
from ..context import Context
from ..dtypes import promote
from ..helpers import no_gradient
from ..param_str import settings
from ..registry import register
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced

Rounding = Callable[[float], float]


def round_half_up(x: float) -> float:
    """Round a positive number to an integer, halves up, as C does."""
    return math.floor(x + 0.5)


def make_anchors(base: int, ratios: Sequence[float], scales: Sequence[float], rounding: Rounding = round) -> np.ndarray:
    """Return boxes (ratios * scales, 4) around the middle of a square of `base` pixels, by ratio, then by scale.

    Args:
        base: the side of the square in pixels.
        ratios: height over width. A box with the area of the square and this ratio has its sides rounded.
        scales: factors of the rounded sides.
        rounding: the rounding of the sides. Default: Python's, which rounds halves to even numbers, like NumPy.
    """
    middle, boxes = (base - 1) / 2, []
    for ratio in ratios:
        width = rounding(math.sqrt(base * base / ratio))
        height = rounding(width * ratio)
        for scale in scales:
            half_w, half_h = (width * scale - 1) / 2, (height * scale - 1) / 2
            boxes.append((middle - half_w, middle - half_h, middle + half_w, middle + half_h))
    return np.asarray(boxes, np.float32)


def shift_anchors(boxes: np.ndarray, size: tuple[int, ...], stride: int) -> jax.Array:
    """Return the boxes (A, 4) at every cell of a map, `stride` pixels apart: (height, width, A, 4)."""

    def moved() -> np.ndarray:
        y, x = np.meshgrid(*(np.arange(n) * stride for n in size), indexing="ij")
        moved: np.ndarray = boxes + np.stack([x, y, x, y], axis=-1)[:, :, None]
        return moved

    return table(moved, (*size, len(boxes), 4), np.float32)


def split_anchors(channels: jax.Array, n: int) -> jax.Array:
    """Return channels (1, A * n, H, W) as (H, W, A, n)."""
    _, total, height, width = channels.shape
    return jnp.transpose(channels.reshape(total // n, n, height, width), (2, 3, 0, 1))


def decode_boxes(boxes: Any, deltas: jax.Array) -> jax.Array:
    """Return boxes (..., 4) moved by deltas (..., 4); the inverse of `encode_boxes`.

    The deltas are the shift of the centre divided by the sides, and the logarithms of the ratios of the sides. A side
    is x2 - x1 + 1.
    """
    size = boxes[..., 2:] - boxes[..., :2] + 1
    middle = boxes[..., :2] + 0.5 * size + deltas[..., :2] * size
    half = 0.5 * size * jnp.exp(deltas[..., 2:])
    return jnp.concatenate([middle - half, middle + half], axis=-1)


def encode_boxes(boxes: Any, truth: Any, numpy: Any = jnp) -> Any:
    """Return the deltas (..., 4) from boxes (..., 4) to `truth` (..., 4); the inverse of `decode_boxes`."""
    size, true = (b[..., 2:] - b[..., :2] + 1 for b in (boxes, truth))
    shift = (truth[..., :2] + 0.5 * true - boxes[..., :2] - 0.5 * size) / size
    return numpy.concatenate([shift, numpy.log(true / size)], axis=-1)


def clip_boxes(boxes: jax.Array, height: jax.Array, width: jax.Array) -> jax.Array:
    """Return boxes (..., 4) clipped to an image of this height and width, in pixels."""
    return jnp.clip(boxes, 0, jnp.stack([width, height, width, height]) - 1)


class _Parts(NamedTuple):
    """State of the quicksort: the partly sorted scores, and the part to which each score belongs; all (N,).

    Attributes:
        scores: the scores in their present order.
        order: the original indices of the scores.
        start, end: the first and the last index of each score's part.
    """

    scores: jax.Array
    order: jax.Array
    start: jax.Array
    end: jax.Array


def quicksort_order(scores: jax.Array) -> jax.Array:
    """Return the indices of scores (N,) in falling order, with equal scores ordered as by pva-faster-rcnn's quicksort.

    The fork's partition takes the first score as the pivot. It swaps the first smaller score from the left with the
    first larger score from the right until both searches meet. Scores equal to the pivot do not move, so their order
    depends on the other scores. Here all parts are partitioned at once, and a round costs one pass over all scores.
    Without equal scores a plain sort gives the order.
    """
    sort = jnp.argsort(-scores, stable=True)
    best = scores[sort]
    return lax.cond(jnp.any(best[1:] == best[:-1]), _sort_equal, lambda _: sort, scores)


def _sort_equal(scores: jax.Array) -> jax.Array:
    n = scores.shape[0]
    places = vary_as(jnp.arange(n), scores)
    parts = _Parts(scores, places, jnp.zeros_like(places), jnp.full_like(places, n - 1))
    return lax.while_loop(_has_unsorted, _divide, parts).order


def _has_unsorted(parts: _Parts) -> jax.Array:
    """Return whether any part has scores that differ, a bool scalar."""
    pivot = parts.scores[parts.start]
    return jnp.any((parts.scores < pivot) | (parts.scores > pivot))


def _divide(parts: _Parts) -> _Parts:
    places, pivot = jnp.arange(parts.scores.shape[0]), parts.scores[parts.start]
    smaller, larger = parts.scores < pivot, parts.scores > pivot
    from_left = jnp.cumsum(smaller) - smaller - _count_before(smaller, parts.start)
    from_right = _count_before(larger, parts.end + 1) - jnp.cumsum(larger)
    # the k-th smaller score from the left and the k-th larger from the right are swapped if the smaller is further left
    swapped = jnp.where(
        smaller,
        from_left < _count_before(larger, parts.end + 1) - jnp.cumsum(larger),
        larger & (from_right < jnp.cumsum(smaller) - _count_before(smaller, parts.start)),
    )
    left, right = (
        jnp.zeros_like(places).at[jnp.where(swapped & side, parts.start + rank, places.size)].set(places, mode="drop")
        for side, rank in ((smaller, from_left), (larger, from_right))
    )
    origin = jnp.where(
        swapped, jnp.where(smaller, right[parts.start + from_left], left[parts.start + from_right]), places
    )
    scores = parts.scores[origin]
    # the pivot is swapped with the last larger score
    middle = parts.start.at[parts.start].max(jnp.where(scores > pivot, places, parts.start))[parts.start]
    origin = jnp.where(places == parts.start, origin[middle], jnp.where(places == middle, parts.start, origin))
    start = jnp.where(places == middle, middle, jnp.where(places > middle, middle + 1, parts.start))
    end = jnp.where(places == middle, middle, jnp.where(places < middle, middle - 1, parts.end))
    return _Parts(parts.scores[origin], parts.order[origin], start, end)


def _count_before(chosen: jax.Array, place: jax.Array) -> jax.Array:
    """Return the number of True entries of `chosen` before each index in `place`."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(chosen, dtype=jnp.int32)])[place]


class ProposalLimits(NamedTuple):
    """Limits of non-maximum suppression.

    Attributes:
        before: the number of best boxes that are considered.
        after: the maximum number of boxes that are kept.
        overlap: a box is suppressed if it overlaps a better box by more than this.
    """

    before: int
    after: int
    overlap: float


class Proposals(NamedTuple):
    """Boxes (K, 4) and scores (K,), the best first; `there` (K,) is False for padding, which comes last."""

    boxes: jax.Array
    scores: jax.Array
    there: jax.Array

    @property
    def rois(self) -> jax.Array:
        """Rows 0, x1, y1, x2, y2, (K, 5); padding rows are -1, 0, 0, 0, 0."""
        image = jnp.where(self.there, 0.0, -1.0).astype(self.boxes.dtype)
        return jnp.concatenate([image[:, None], jnp.where(self.there[:, None], self.boxes, 0)], axis=1)

    @property
    def marked_scores(self) -> jax.Array:
        """The scores, (K,); -1 for padding."""
        return jnp.where(self.there, self.scores, -1)


def require_maps(scores: Any, deltas: Any, im_info: Any, n_anchors: int, least: int) -> None:
    """Raise `LayerError` unless the bottoms are of one image, with 2 scores and 4 deltas for each anchor of a cell.

    Args:
        scores, deltas, im_info: the bottoms.
        n_anchors: the number of anchors of a cell.
        least: the minimum number of values in im_info.
    """
    for i, (x, n) in enumerate(((scores, 2 * n_anchors), (deltas, 4 * n_anchors))):
        require(
            len(x.shape) == 4 and x.shape[:2] == (1, n),
            f"bottom {i} must be of one image and have {n} channels, for {n_anchors} anchors: not shape {x.shape}",
        )
    require(scores.shape[2:] == deltas.shape[2:], f"bottoms 0 and 1 differ in size: {scores.shape} and {deltas.shape}")
    require_image(im_info, least)


def require_image(im_info: Any, least: int) -> None:
    """Raise `LayerError` unless im_info has one row of at least `least` values."""
    shape = im_info.shape
    require(
        len(shape) >= 2 and shape[0] == 1 and shape[1] >= least,
        f"im_info must be a row of {least} numbers (height, width, scale ...) about one image, not shape {shape}",
    )


def propose(
    boxes: jax.Array, scores: jax.Array, valid: jax.Array, limits: ProposalLimits, order: jax.Array | None = None
) -> Proposals:
    """Return the best boxes after non-maximum suppression, padded.

    Args:
        boxes: (N, 4), in pixels; a side is x2 - x1 + 1.
        scores: (N,).
        valid: (N,), False for boxes that are ignored.
        limits: the numbers of boxes considered and kept, and the threshold.
        order: (N,), the indices of the boxes in the order in which they are considered. Default: by falling score, the
            first of equal scores first.
    """
    require(limits.before > 0 and limits.after > 0, f"must consider and keep at least one box, not {limits}")
    n = min(limits.before, boxes.shape[0])
    if order is None:
        _, order = lax.top_k(jnp.where(valid, scores, -jnp.inf), n)
    indices, kept = select_best(
        boxes, scores, valid, limits.overlap, n_candidates=n, n_kept=limits.after, order=order, plus=1.0
    )
    return Proposals(boxes[indices], scores[indices], kept)


def proposal(
    ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Best boxes of an RPN for one image, at most `post_nms_topn` rows 0, x1, y1, x2, y2; a second top has the scores.

    Bottoms: scores (1, 2A, H, W), deltas (1, 4A, H, W), im_info (1, 4) with height, width and two scales. Each cell has
    A anchors, one for each `ratio` and `scale`. Anchors are moved by the deltas and clipped to the image. Boxes smaller
    than `min_size` score 0. The `pre_nms_topn` best boxes go through non-maximum suppression. Equal scores are ordered
    as by the fork's quicksort. Padding rows come last and are -1, 0, 0, 0, 0, with score -1. No gradient passes.
    """
    p = ctx.param
    require(p.feat_stride > 0 and p.base_size > 0, "feat_stride and base_size must be > 0")
    require(all(r > 0 for r in p.ratio), f"ratios must be > 0, not {list(p.ratio)}")
    require(bool(p.ratio) and bool(p.scale), "needs at least one ratio and one scale")
    base = make_anchors(p.base_size, p.ratio, p.scale, round_half_up)
    require_maps(scores, deltas, im_info, len(base), 4)
    dtype = scores.dtype
    scores, deltas, image = (lax.stop_gradient(promote(x)) for x in (scores, deltas, im_info[0]))
    places = shift_anchors(base, scores.shape[2:], p.feat_stride)
    boxes = clip_boxes(decode_boxes(places, split_anchors(deltas, 4)), image[0], image[1]).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    large = jnp.all(sides >= p.min_size * jnp.stack([image[3], image[2]]), axis=1)
    score = jnp.where(large, split_anchors(scores[:, len(base) :], 1).ravel(), 0)
    limits = ProposalLimits(p.pre_nms_topn, p.post_nms_topn, p.nms_thresh)
    proposals = propose(boxes, score, jnp.ones_like(large), limits, quicksort_order(score))
    rois = proposals.rois.astype(dtype)
    return rois if ctx.n_tops == 1 else (rois, proposals.marked_scores.astype(dtype))


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


RATIOS, BASE = (0.5, 1, 2), 16
_DEFAULTS: dict[str, Any] = {"feat_stride": 16, "scales": (8, 16, 32), "rpn_nms_thresh": 0.7, "rpn_min_size": 16.0}
_TRAIN = {"rpn_pre_nms_top_n": 12000, "rpn_post_nms_top_n": 2000}
_TEST = {"rpn_pre_nms_top_n": 6000, "rpn_post_nms_top_n": 300}


def proposal_layer(
    ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Best boxes of an RPN for one image, rows 0, x1, y1, x2, y2; a second top has their scores.

    Bottoms: scores (1, 2A, H, W), deltas (1, 4A, H, W), im_info (1, 3) with height, width and scale. Anchors are moved
    by the deltas and clipped to the image; boxes that are too small are ignored; the best go through non-maximum
    suppression. Padding rows come last and are -1, 0, 0, 0, 0, with score -1. param_str holds settings of
    py-faster-rcnn's cfg, in lower case; defaults depend on the phase. No gradient passes.
    """
    return _propose_from_maps(ctx, settings(ctx.param.param_str, _defaults(ctx)), scores, deltas, im_info)


def mnc_proposal_layer(ctx: Context, scores: jax.Array, deltas: jax.Array, im_info: jax.Array) -> Any:
    """Best boxes of an RPN for one image, as in py-faster-rcnn: rows 0, x1, y1, x2, y2.

    MNC's settings for the gradient of the deltas are accepted in param_str, but no gradient reaches the deltas.
    """
    extra = {"gradient_scale": 1.0, "use_clip": 0, "clip_base": 64.0}  # they only affect gradients
    return _propose_from_maps(ctx, settings(ctx.param.param_str, _defaults(ctx) | extra), scores, deltas, im_info)


def _proposal_type(forward: Any, origin: str, most_tops: int, restrictions: str) -> LayerType:
    return LayerType(
        Signature("Python", bottoms=3, tops=(1, most_tops), param="python_param", in_place=False),
        Traced(forward),
        Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
        LayerTraits(pads_rows=True),
        docs=LayerDocs(origin=origin, restrictions=restrictions),
    )


_ONE = "One image, as in the original."
PROPOSAL_LAYER = _proposal_type(proposal_layer, "py-faster-rcnn", 2, _ONE)
MNC_PROPOSAL_LAYER = _proposal_type(mnc_proposal_layer, "MNC", 1, f"{_ONE} No gradient reaches the deltas.")


def _defaults(ctx: Context) -> dict[str, Any]:
    return _DEFAULTS | (_TRAIN if ctx.training else _TEST)


def _propose_from_maps(
    ctx: Context, s: dict[str, Any], scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> Any:
    require(s["feat_stride"] > 0 and len(s["scales"]) > 0, "needs a feat_stride > 0 and at least one scale")
    base = make_anchors(BASE, RATIOS, s["scales"])
    require_maps(scores, deltas, im_info, len(base), 3)
    dtype = scores.dtype
    scores, deltas, image = (lax.stop_gradient(promote(x)) for x in (scores, deltas, im_info[0]))
    places = shift_anchors(base, scores.shape[2:], s["feat_stride"])
    boxes = clip_boxes(decode_boxes(places, split_anchors(deltas, 4)), image[0], image[1]).reshape(-1, 4)
    large = jnp.all(boxes[:, 2:] - boxes[:, :2] + 1 >= s["rpn_min_size"] * image[2], axis=1)
    limits = ProposalLimits(s["rpn_pre_nms_top_n"], s["rpn_post_nms_top_n"], s["rpn_nms_thresh"])
    proposals = propose(boxes, split_anchors(scores[:, len(base) :], 1).ravel(), large, limits)
    rois = proposals.rois.astype(dtype)
    return rois if ctx.n_tops == 1 else (rois, proposals.marked_scores[:, None].astype(dtype))
