"""DetectNet's ScoreDetections and mAP, Python layers that are built in: which detections are right, and how many."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from .. import across
from ..boxes import overlaps
from ..context import Context
from ..no_gradient import no_gradient
from ..types import Gradient, LayerDocs, LayerTraits, LayerType, Signature, Traced

_RIGHT, _WRONG, _MISSED = 1, 2, 3


def score_detections(ctx: Context, truth: jax.Array, found: jax.Array) -> jax.Array:
    """Lists of true boxes (N x most x 5) and detections as one list: x1, y1, x2, y2, and 1 right, 2 wrong, 3 missed.

    True boxes take in turn the first detection left that overlaps them by the threshold in param_str (0.7) or more;
    those that get none are missed. Rows of zeros are no boxes. The list is as long as both together.
    """
    threshold = _threshold(ctx)
    for i, x in enumerate((truth, found)):
        require(
            len(x.shape) == 3 and x.shape[2] == 5, f"bottom {i} must be a list of boxes N x most x 5, not {x.shape}"
        )
    require(truth.shape[0] == found.shape[0], f"bottoms are of {truth.shape[0]} and {found.shape[0]} images")
    dtype = jnp.result_type(truth, found)
    return jax.vmap(lambda t, f: _scored(t[:, :4], f[:, :4], threshold))(truth.astype(dtype), found.astype(dtype))


def mean_ap(ctx: Context, scored: jax.Array) -> tuple[jax.Array, ...]:
    """DetectNet's mAP, precision and recall of a scored list (N x most x 5), in percent; mAP is the others' product."""
    require(len(scored.shape) == 3 and scored.shape[2] == 5, f"needs a scored list N x most x 5, not {scored.shape}")
    right, wrong, missed = (
        across.total(ctx, jnp.sum(scored[:, :, 4] == kind, dtype=scored.dtype)) for kind in (_RIGHT, _WRONG, _MISSED)
    )
    precision, recall = (100 * right / jnp.maximum(right + others, 1) for others in (wrong, missed))
    return tuple(x[None] for x in (precision * recall / 100, precision, recall))


SCORE_DETECTIONS = LayerType(
    Signature("Python", bottoms=2, param="python_param", in_place=False),
    Traced(score_detections),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    LayerTraits(row_wise=True),
    docs=LayerDocs(
        origin="NVIDIA Caffe",
        restrictions="The list is as long as both; the original's has 50 rows, and fails if they are too few.",
    ),
)

MEAN_AP = LayerType(
    Signature("Python", tops=3, param="python_param", in_place=False),
    Traced(mean_ap),
    Gradient(no_gradient, overrides_autodiff=True, stops_gradient=True),
    docs=LayerDocs(origin="NVIDIA Caffe"),
)


def _threshold(ctx: Context) -> float:
    text = ctx.param.param_str.strip()
    try:
        threshold = float(text or 0.7)
    except ValueError:
        threshold = -1
    require(0 <= threshold <= 1, f"param_str must be the least overlap, such as 0.7, not {text!r}")
    return threshold


def _scored(truth: jax.Array, found: jax.Array, threshold: float) -> jax.Array:
    """Return the list of one image: right ones first, then wrong ones, then missed ones."""
    real, there = (jnp.any(x != 0, axis=1) for x in (truth, found))
    alike = (overlaps(truth[:, None], found) >= threshold) & real[:, None]

    def step(free: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        candidates = row & free
        taken = candidates & (jnp.cumsum(candidates) == 1)
        return free & ~taken, jnp.any(candidates)

    free, matched = lax.scan(step, there, alike)
    kinds = jnp.concatenate(
        [jnp.where(there, jnp.where(free, _WRONG, _RIGHT), 0), jnp.where(real & ~matched, _MISSED, 0)]
    )
    rows = jnp.concatenate([jnp.concatenate([found, truth]), kinds[:, None].astype(truth.dtype)], axis=1)
    order = jnp.argsort(jnp.where(kinds > 0, kinds, _MISSED + 1), stable=True)
    return jnp.where((kinds > 0)[order, None], rows[order], 0)
