"""Proposal and ProposalLayer, which select regions from the scores and deltas of a region proposal network (RPN)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.declaration import declare, register
from ...core.layers.dtype_policy import promote
from ...core.layers.param_str import parse_param_str
from ...core.ops.host_constant import host_constant
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import ProposalParameter
from ..detection.boxes import avoids_loops, select_best

Rounding = Callable[[float], float]


def round_half_up(x: float) -> float:
    """Round a positive number to an integer; halves are rounded up, as by C's `round`."""
    return math.floor(x + 0.5)


def make_base_anchors(
    base_size: int, ratios: Sequence[float], scales: Sequence[float], rounding: Rounding = round
) -> np.ndarray:
    """Return boxes around the center of a square, sorted by ratio, then by scale, float32 (boxes, 4).

    There is a box for each pair of a ratio and a scale.

    Args:
        base_size: the side of the square in pixels.
        ratios: ratios of height to width. A box has this ratio and the area of the square, before its sides are
            rounded.
        scales: factors by which the rounded sides are multiplied.
        rounding: a function that rounds the sides. The default is Python's `round`, which rounds halves to even
            numbers, like NumPy.
    """
    center, boxes = (base_size - 1) / 2, []
    for ratio in ratios:
        width = rounding(math.sqrt(base_size * base_size / ratio))
        height = rounding(width * ratio)
        for scale in scales:
            half_w, half_h = (width * scale - 1) / 2, (height * scale - 1) / 2
            boxes.append((center - half_w, center - half_h, center + half_w, center + half_h))
    return np.asarray(boxes, np.float32)


def shift_anchors(boxes: np.ndarray, size: tuple[int, ...], stride: int) -> jax.Array:
    """Return the boxes (A, 4), moved to every cell of a map, (height, width, A, 4).

    Args:
        boxes: the boxes at the first cell.
        size: (height, width) of the map.
        stride: the distance between neighbouring cells in pixels.
    """

    def compute_shifted_boxes() -> np.ndarray:
        y, x = np.meshgrid(*(np.arange(n) * stride for n in size), indexing="ij")
        shifted_boxes: np.ndarray = boxes + np.stack([x, y, x, y], axis=-1)[:, :, None]
        return shifted_boxes

    return host_constant(compute_shifted_boxes, (*size, len(boxes), 4), np.float32)


def split_anchors(maps: jax.Array, n: int) -> jax.Array:
    """Transpose (1, A * n, H, W) to (H, W, A, n), for A anchors with n values each."""
    _, num_channels, height, width = maps.shape
    return jnp.transpose(maps.reshape(num_channels // n, n, height, width), (2, 3, 0, 1))


def decode_boxes(boxes: Any, deltas: jax.Array) -> jax.Array:
    """Return boxes (x1, y1, x2, y2), (..., 4), moved by deltas (..., 4). This is the inverse of `encode_boxes`.

    The deltas are the shift of the center divided by the sides, and the logarithms of (new side / side). A side is x2 -
    x1 + 1.
    """
    sides = boxes[..., 2:] - boxes[..., :2] + 1
    center = boxes[..., :2] + 0.5 * sides + deltas[..., :2] * sides
    half_sides = 0.5 * sides * jnp.exp(deltas[..., 2:])
    return jnp.concatenate([center - half_sides, center + half_sides], axis=-1)


def encode_boxes(boxes: Any, truth: Any, xp: Any = jnp) -> Any:
    """Return the deltas (..., 4) that move boxes (..., 4) to `truth` (..., 4), the inverse of `decode_boxes`."""
    sides, truth_sides = (b[..., 2:] - b[..., :2] + 1 for b in (boxes, truth))
    shift = (truth[..., :2] + 0.5 * truth_sides - boxes[..., :2] - 0.5 * sides) / sides
    return xp.concatenate([shift, xp.log(truth_sides / sides)], axis=-1)


def clip_boxes(boxes: jax.Array, height: jax.Array, width: jax.Array) -> jax.Array:
    """Return boxes (..., 4) clipped to an image of the given height and width, in pixels."""
    return jnp.clip(boxes, 0, jnp.stack([width, height, width, height]) - 1)


class _QuicksortState(NamedTuple):
    """The state of the quicksort, which has split the scores into parts. All arrays have shape (N,).

    Attributes:
        scores: the scores in their current order.
        order: the original indices of the scores.
        start, end: the first and the last index of the part to which each score belongs.
    """

    scores: jax.Array
    order: jax.Array
    start: jax.Array
    end: jax.Array


def quicksort_order(scores: jax.Array) -> jax.Array:
    """Return the indices of scores (N,) in falling order, with equal scores ordered like pva-faster-rcnn's quicksort.

    The fork's partition takes the first score as the pivot. It swaps the first smaller score from the left with the
    first larger score from the right until both searches meet. Scores equal to the pivot do not move, so their order
    depends on the other scores. Here all parts are partitioned at once, and a round costs one pass over all scores. If
    all scores differ, an ordinary sort gives the order, as it does in `suppress_without_loops`.
    """
    order = jnp.argsort(-scores, stable=True)
    if avoids_loops():
        return order
    sorted_scores = scores[order]
    return lax.cond(jnp.any(sorted_scores[1:] == sorted_scores[:-1]), _quicksort, lambda _: order, scores)


def _quicksort(scores: jax.Array) -> jax.Array:
    n = scores.shape[0]
    indices = vary_as(jnp.arange(n), scores)
    state = _QuicksortState(scores, indices, jnp.zeros_like(indices), jnp.full_like(indices, n - 1))
    return lax.while_loop(_has_mixed_part, _partition, state).order


def _has_mixed_part(state: _QuicksortState) -> jax.Array:
    """Return whether any part still contains different scores and must be partitioned, as a bool scalar."""
    pivot = state.scores[state.start]
    return jnp.any((state.scores < pivot) | (state.scores > pivot))


def _partition(state: _QuicksortState) -> _QuicksortState:
    indices, pivot = jnp.arange(state.scores.shape[0]), state.scores[state.start]
    is_smaller, is_larger = state.scores < pivot, state.scores > pivot
    left_rank = jnp.cumsum(is_smaller) - is_smaller - _count_before(is_smaller, state.start)
    right_rank = _count_before(is_larger, state.end + 1) - jnp.cumsum(is_larger)
    # if the k-th smaller score from the left is left of the k-th larger score from the right, swap both
    is_swapped = jnp.where(
        is_smaller,
        left_rank < _count_before(is_larger, state.end + 1) - jnp.cumsum(is_larger),
        is_larger & (right_rank < jnp.cumsum(is_smaller) - _count_before(is_smaller, state.start)),
    )
    left_positions, right_positions = (
        jnp.zeros_like(indices)
        .at[jnp.where(is_swapped & is_member, state.start + rank, indices.size)]
        .set(indices, mode="drop")
        for is_member, rank in ((is_smaller, left_rank), (is_larger, right_rank))
    )
    source_index = jnp.where(
        is_swapped,
        jnp.where(is_smaller, right_positions[state.start + left_rank], left_positions[state.start + right_rank]),
        indices,
    )
    scores = state.scores[source_index]
    # the pivot is swapped with the last larger score
    pivot_index = state.start.at[state.start].max(jnp.where(scores > pivot, indices, state.start))[state.start]
    source_index = jnp.where(
        indices == state.start, source_index[pivot_index], jnp.where(indices == pivot_index, state.start, source_index)
    )
    start = jnp.where(
        indices == pivot_index, pivot_index, jnp.where(indices > pivot_index, pivot_index + 1, state.start)
    )
    end = jnp.where(indices == pivot_index, pivot_index, jnp.where(indices < pivot_index, pivot_index - 1, state.end))
    return _QuicksortState(state.scores[source_index], state.order[source_index], start, end)


def _count_before(mask: jax.Array, index: jax.Array) -> jax.Array:
    """Return the number of True entries of `mask`, (N,), before each of the positions in `index`."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(mask, dtype=jnp.int32)])[index]


class ProposalLimits(NamedTuple):
    """Limits of non-maximum suppression.

    Attributes:
        pre_nms_topn: the number of best boxes that suppression considers; other boxes are dropped.
        post_nms_topn: the maximum number of boxes that remain after suppression.
        nms_threshold: a box is suppressed if its overlap with a better box exceeds this. If None, no box is suppressed.
    """

    pre_nms_topn: int
    post_nms_topn: int
    nms_threshold: float | None


class Proposals(NamedTuple):
    """The proposals of one or more images, image by image, best first.

    Attributes:
        boxes: (K, 4), x1, y1, x2, y2 in pixels.
        scores: (K,).
        valid: (K,), False for padding, which comes last.
    """

    boxes: jax.Array
    scores: jax.Array
    valid: jax.Array


def propose_for_images(
    find_proposals: Callable[[jax.Array, jax.Array, jax.Array], Proposals],
    scores: jax.Array,
    deltas: jax.Array,
    im_info: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the proposals of all images, in order, as rows image, x1, y1, x2, y2, (N * K, 5), and scores (N * K,).

    Padding rows come last and are -1, 0, 0, 0, 0, with score -1. No gradient passes.

    Args:
        find_proposals: a function that returns the K proposals of an image from its scores (2A, H, W), its deltas
            (4A, H, W) and its row of im_info.
        scores, deltas, im_info: the bottoms of all N images, as `require_maps` accepts them.
    """
    dtype, n = scores.dtype, scores.shape[0]
    scores, deltas, im_info = (
        lax.stop_gradient(promote(x)) for x in (scores, deltas, im_info.reshape(len(im_info), -1))
    )
    if n == 1:
        proposals = find_proposals(scores[0], deltas[0], im_info[0])
    else:
        info_rows = jnp.broadcast_to(im_info, (n, im_info.shape[1]))
        proposals = Proposals(
            *(x.reshape(-1, *x.shape[2:]) for x in lax.map(lambda x: find_proposals(*x), (scores, deltas, info_rows)))
        )
    boxes, roi_scores, valid = proposals
    image_index = jnp.repeat(jnp.arange(n, dtype=boxes.dtype), boxes.shape[0] // n)
    rois = jnp.concatenate([image_index[:, None], boxes], axis=1)
    order = jnp.argsort(~valid, stable=True) if n > 1 else jnp.arange(boxes.shape[0])
    padding_row = jnp.asarray([-1, 0, 0, 0, 0], boxes.dtype)
    rois, roi_scores = jnp.where(valid[:, None], rois, padding_row)[order], jnp.where(valid, roi_scores, -1)[order]
    return rois.astype(dtype), roi_scores.astype(dtype)


def require_maps(scores: Any, deltas: Any, im_info: Any, num_anchors: int) -> None:
    """Raise `LayerError` unless the maps have 2 scores and 4 deltas for each anchor of a cell, for the same images.

    Args:
        scores, deltas, im_info: the bottoms. im_info must have a row of three or more values for each image, or one row
            for all images.
        num_anchors: the number of anchors of a cell.
    """
    for i, (x, n) in enumerate(((scores, 2 * num_anchors), (deltas, 4 * num_anchors))):
        require(
            len(x.shape) == 4 and x.shape[1] == n,
            f"bottom {i} must have {n} channels for {num_anchors} anchors, not shape {x.shape}",
        )
    map_shapes = ((x.shape[0], *x.shape[2:]) for x in (scores, deltas))
    require(len(set(map_shapes)) == 1, f"bottoms 0 and 1 differ in size: {scores.shape} and {deltas.shape}")
    num_images, shape = scores.shape[0], im_info.shape
    require(
        len(shape) >= 2 and shape[0] in (1, num_images) and math.prod(shape[1:]) >= 3,
        f"im_info must have a row of 3 values (height, width, scale ...) for each of the {num_images} images, "
        f"or one row for all, not shape {shape}",
    )


def require_one_image(im_info: Any, num_values: int) -> None:
    """Raise `LayerError` unless im_info has one row of at least `num_values` values."""
    shape = im_info.shape
    require(
        len(shape) >= 2 and shape[0] == 1 and shape[1] >= num_values,
        f"im_info must be a row of {num_values} values (height, width, scale ...) for one image, not shape {shape}",
    )


def propose(
    boxes: jax.Array, scores: jax.Array, valid: jax.Array, limits: ProposalLimits, order: jax.Array | None = None
) -> Proposals:
    """Return the best boxes of an image that remain after non-maximum suppression, followed by padding.

    Args:
        boxes: (N, 4), in pixels; a side is x2 - x1 + 1.
        scores: (N,).
        valid: (N,), False for boxes that are ignored.
        limits: the numbers of boxes before and after suppression, and its threshold.
        order: (N,), the indices of the boxes in the order in which they are considered. By default the order is by
            falling score, with the first of equal scores first.
    """
    require(
        limits.pre_nms_topn > 0 and limits.post_nms_topn > 0,
        "the numbers of boxes before and after suppression must be 1 or more, "
        f"not {limits.pre_nms_topn} and {limits.post_nms_topn}",
    )
    num_candidates = min(limits.pre_nms_topn, boxes.shape[0])
    if order is None:
        _, order = lax.top_k(jnp.where(valid, scores, -jnp.inf), num_candidates)
    if limits.nms_threshold is None:
        indices = order[: min(num_candidates, limits.post_nms_topn)]
        return Proposals(boxes[indices], scores[indices], valid[indices])
    indices, selected = select_best(
        boxes,
        scores,
        valid,
        limits.nms_threshold,
        n_candidates=num_candidates,
        max_selected=limits.post_nms_topn,
        order=order,
        side_offset=1.0,
    )
    return Proposals(boxes[indices], scores[indices], selected)


@register(
    "Proposal",
    bottoms=3,
    tops=(1, 2),
    param="proposal_param",
    in_place=False,
    fork_settings=("ratio", "scale", "base_size", "min_size"),
    stops_gradient=True,
    pads_rows=True,
    origin="pva-faster-rcnn",
)
def proposal(
    p: ProposalParameter, scores: jax.Array, deltas: jax.Array, im_info: jax.Array, *, num_tops: int
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Select the best boxes of a region proposal network, as rows image, x1, y1, x2, y2.

    Bottoms: scores (N, 2A, H, W), deltas (N, 4A, H, W), and im_info (N, 4) or (1, 4) with height, width and two scales,
    or (N, 3) with one scale, as in mini-caffe. The top has at most `post_nms_topn` boxes for each image. An optional
    second top contains the scores of the boxes. A cell has A anchors, one for each `ratio` and `scale`. Anchors are
    moved by the deltas and clipped to the image. Boxes smaller than `min_size` score 0. The `pre_nms_topn` best boxes
    go through non-maximum suppression. Equal scores are ordered as by the fork's quicksort. Padding rows come last and
    are -1, 0, 0, 0, 0, with score -1. No gradient passes.
    """
    for name in ("anchor_base_size", "anchor_scale", "anchor_ratio", "max_rois", "rpn_min_size", "rpn_nms_thresh"):
        require(
            not p.HasField(name),
            f"{name} is only for synopsys-caffe; set base_size, scale, ratio, min_size, nms_thresh",
        )
    require(
        p.feat_stride > 0 and p.base_size > 0,
        f"feat_stride and base_size must be > 0, not {p.feat_stride} and {p.base_size}",
    )
    require(all(r > 0 for r in p.ratio), f"ratios must be > 0, not {list(p.ratio)}")
    require(
        bool(p.ratio) and bool(p.scale),
        f"needs at least one ratio and one scale, not {len(p.ratio)} and {len(p.scale)}",
    )
    base_anchors = make_base_anchors(p.base_size, p.ratio, p.scale, round_half_up)
    require_maps(scores, deltas, im_info, len(base_anchors))
    limits = ProposalLimits(p.pre_nms_topn, p.post_nms_topn, p.nms_thresh)

    def find_proposals(scores: jax.Array, deltas: jax.Array, info_row: jax.Array) -> Proposals:
        boxes = decode_anchors(base_anchors, p.feat_stride, deltas, info_row)
        scale = jnp.stack([info_row[min(3, len(info_row) - 1)], info_row[2]])
        is_large = jnp.all(boxes[:, 2:] - boxes[:, :2] + 1 >= p.min_size * scale, axis=1)
        score = jnp.where(is_large, split_anchors(scores[None, len(base_anchors) :], 1).ravel(), 0)
        return propose(boxes, score, jnp.ones_like(is_large), limits, quicksort_order(score))

    rois, roi_scores = propose_for_images(find_proposals, scores, deltas, im_info)
    return rois if num_tops == 1 else (rois, roi_scores)


def decode_anchors(base_anchors: np.ndarray, stride: int, deltas: jax.Array, info_row: jax.Array) -> jax.Array:
    """Return the anchors of all cells, moved by the deltas and clipped to the image, (cells * A, 4).

    Args:
        base_anchors: (A, 4), the anchors of the first cell.
        stride: the distance between neighbouring cells in pixels.
        deltas: (4A, H, W).
        info_row: a row of im_info, which begins with height and width of the image.
    """
    anchors = shift_anchors(base_anchors, deltas.shape[1:], stride)
    return clip_boxes(decode_boxes(anchors, split_anchors(deltas[None], 4)), info_row[0], info_row[1]).reshape(-1, 4)


# settings of the anchors: py-faster-rcnn has feat_stride and scales, pvanet adds ratios, and SSH adds base_size
ANCHOR_SETTINGS: dict[str, Any] = {"feat_stride": 16, "scales": (8, 16, 32), "ratios": (0.5, 1, 2), "base_size": 16}
_PROPOSAL_DEFAULTS: dict[str, Any] = ANCHOR_SETTINGS | {"rpn_nms_thresh": 0.7, "rpn_min_size": 16.0}
_TRAIN_DEFAULTS = {"rpn_pre_nms_top_n": 12000, "rpn_post_nms_top_n": 2000}
_TEST_DEFAULTS = {"rpn_pre_nms_top_n": 6000, "rpn_post_nms_top_n": 300}


@declare(
    "Python",
    bottoms=3,
    tops=(1, 2),
    param="python_param",
    in_place=False,
    stops_gradient=True,
    pads_rows=True,
    origin="py-faster-rcnn",
)
def proposal_layer(
    scores: jax.Array, deltas: jax.Array, im_info: jax.Array, *, ctx: Context
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Select the best boxes of a region proposal network, as rows image, x1, y1, x2, y2.

    Bottoms: scores (N, 2A, H, W), deltas (N, 4A, H, W), and im_info (N, 3) or (1, 3) with height, width and scale. An
    optional second top contains the scores of the boxes. Anchors are moved by the deltas and clipped to the image.
    Boxes smaller than `rpn_min_size` times the scale are ignored. The best boxes go through non-maximum suppression.
    Padding rows come last and are -1, 0, 0, 0, 0, with score -1. No gradient passes.

    param_str contains pvanet's `ratios`, SSH's `base_size`, and settings of py-faster-rcnn's cfg in lower case. The
    defaults depend on the phase.
    """
    return _propose_from_maps(
        ctx, parse_param_str(ctx.param.param_str, _default_settings(ctx)), scores, deltas, im_info
    )


@proposal_layer.variant(tops=1, origin="MNC", restrictions="No gradient reaches the deltas.")
def mnc_proposal_layer(scores: jax.Array, deltas: jax.Array, im_info: jax.Array, *, ctx: Context) -> Any:
    """Select the best boxes of a region proposal network, like py-faster-rcnn's ProposalLayer.

    MNC's settings for the gradient of the deltas are accepted in param_str, but no gradient reaches the deltas.
    """
    gradient_settings = {"gradient_scale": 1.0, "use_clip": 0, "clip_base": 64.0}  # they only affect gradients
    return _propose_from_maps(
        ctx, parse_param_str(ctx.param.param_str, _default_settings(ctx) | gradient_settings), scores, deltas, im_info
    )


@proposal_layer.variant(origin="SSH")
def ssh_proposal_layer(scores: jax.Array, deltas: jax.Array, im_info: jax.Array, *, ctx: Context) -> Any:
    """Select the best boxes of a module of SSH, like py-faster-rcnn's ProposalLayer. In TEST, no box is suppressed.

    SSH's default_config.yml determines the defaults.
    """
    train_defaults = {"rpn_pre_nms_top_n": 1000, "rpn_post_nms_top_n": 300, "rpn_nms_thresh": 0.3, "rpn_min_size": 4.0}
    test_defaults = {"rpn_pre_nms_top_n": 1000, "rpn_post_nms_top_n": 1000, "rpn_min_size": 0.0}
    s = parse_param_str(ctx.param.param_str, ANCHOR_SETTINGS | (train_defaults if ctx.training else test_defaults))
    return _propose_from_maps(ctx, {"rpn_nms_thresh": None} | s, scores, deltas, im_info)


def _default_settings(ctx: Context) -> dict[str, Any]:
    return _PROPOSAL_DEFAULTS | (_TRAIN_DEFAULTS if ctx.training else _TEST_DEFAULTS)


def make_base_anchors_from_settings(s: dict[str, Any]) -> np.ndarray:
    """Return the anchors of the first cell, (A, 4), that the settings of a param_str define.

    Raises:
        LayerError: if the settings are invalid, or do not define any anchor.
    """
    require(
        s["feat_stride"] > 0 and s["base_size"] > 0,
        f"feat_stride and base_size must be > 0, not {s['feat_stride']} and {s['base_size']}",
    )
    require(
        len(s["scales"]) > 0 and len(s["ratios"]) > 0,
        f"needs at least one scale and one ratio, not {len(s['scales'])} and {len(s['ratios'])}",
    )
    require(all(r > 0 for r in s["ratios"]), f"ratios must be > 0, not {list(s['ratios'])}")
    return make_base_anchors(s["base_size"], s["ratios"], s["scales"])


def _propose_from_maps(
    ctx: Context, s: dict[str, Any], scores: jax.Array, deltas: jax.Array, im_info: jax.Array
) -> Any:
    base_anchors = make_base_anchors_from_settings(s)
    require_maps(scores, deltas, im_info, len(base_anchors))
    limits = ProposalLimits(s["rpn_pre_nms_top_n"], s["rpn_post_nms_top_n"], s["rpn_nms_thresh"])

    def find_proposals(scores: jax.Array, deltas: jax.Array, info_row: jax.Array) -> Proposals:
        boxes = decode_anchors(base_anchors, s["feat_stride"], deltas, info_row)
        is_large = jnp.all(boxes[:, 2:] - boxes[:, :2] + 1 >= s["rpn_min_size"] * info_row[2], axis=1)
        return propose(boxes, split_anchors(scores[None, len(base_anchors) :], 1).ravel(), is_large, limits)

    rois, roi_scores = propose_for_images(find_proposals, scores, deltas, im_info)
    return rois if ctx.num_tops == 1 else (rois, roi_scores[:, None])
