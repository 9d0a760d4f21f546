"""MyCaffe's variant of ContrastiveLoss: labels of the items, centroids, other distances, and a top of matches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers.context import Context
from ...core.layers.distance_losses import Pairs, contrastive_loss, pair_gradient, read_pairs, sum_pair_losses
from ...core.layers.dtype_policy import promote
from ...core.layers.helpers import as_nchw, first_top
from ...core.layers.registry import register_variants

_SETTINGS = ("output_matches", "centroid_learning", "distance_calculation", "matching_distance_scale")


@contrastive_loss.variant(
    bottoms=(3, 4),
    tops=(1, 2),
    fork_settings=_SETTINGS,
    exempt_from_force_backward=(2, 3),
    row_bottoms=(0, 1, 2),
    row_tops=(1,),
    origin="MyCaffe",
)
def contrastive_loss_of_labels(
    p: Any, a: jax.Array, b: jax.Array, labels: jax.Array, *centroids: jax.Array, ctx: Context
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Return half the mean over pairs of d**2 (similar pairs) or max(margin - d, 0)**2 (other pairs), a scalar.

    As BVLC's ContrastiveLoss, and:

    - Bottom 2 may have 2 or 3 labels for each pair. The pair is similar if its labels are equal.
    - A second top, (N, 1, 1, 1), is 1 for pairs that the margin classifies correctly, by d <= margin, and 0 for others.
    - `matching_distance_scale` multiplies d**2 of similar pairs, but does not affect the gradient.
    - `distance_calculation: MANHATTAN` replaces d**2 with the sum of absolute differences, and implies legacy_version.
    - Bottom 3 has centroids (labels, C). If they are not all 0, the centroid of the pair's first label replaces a, in
      similar pairs (`centroid_learning: MATCHING`) or in dissimilar pairs (NONMATCHING).
    """
    pairs = _compare_pairs(ctx, a, b, labels, *centroids)
    scale = jnp.where(pairs.is_similar, p.matching_distance_scale, 1)
    scaled_pairs = pairs._replace(squared_distance=scale * pairs.squared_distance)
    loss = sum_pair_losses(ctx, scaled_pairs)
    if ctx.num_tops == 1:
        return loss
    is_correct = (scaled_pairs.gap >= 0) == pairs.is_similar
    return loss, lax.stop_gradient(is_correct.astype(a.dtype)).reshape(-1, 1, 1, 1)


@contrastive_loss_of_labels.backward
def contrastive_loss_of_labels_backward(
    a: jax.Array, b: jax.Array, labels: jax.Array, *centroids: jax.Array, y: Any, dy: Any, ctx: Context
) -> tuple[jax.Array | None, ...]:
    da = pair_gradient(ctx, _compare_pairs(ctx, a, b, labels, *centroids), first_top(dy))
    return da.reshape(a.shape), -da.reshape(b.shape), None, *(None for _ in centroids)


_DISTANCE_CALCULATIONS, _CENTROID_LEARNING_MODES = ("EUCLIDEAN", "MANHATTAN"), ("NONE", "MATCHING", "NONMATCHING")


def _compare_pairs(ctx: Context, a: jax.Array, b: jax.Array, pair_labels: jax.Array, *centroids: jax.Array) -> Pairs:
    p = ctx.param
    rows_a, rows_b = read_pairs(a, b)
    n, n_labels, *plane = as_nchw(pair_labels.shape, "bottom 2")
    require(
        (n, *plane) == (a.shape[0], 1, 1) and 1 <= n_labels <= 3,
        f"bottom 2 must hold one number, or two or three labels, for each of the {a.shape[0]} pairs, but has shape "
        f"{pair_labels.shape}",
    )
    require(ctx.num_tops == 1 or p.output_matches, "has two tops: set output_matches, or remove the second top")
    for name, choices in (
        ("distance_calculation", _DISTANCE_CALCULATIONS),
        ("centroid_learning", _CENTROID_LEARNING_MODES),
    ):
        require(getattr(p, name) in choices, f"{name} must be one of {', '.join(choices)}, not {getattr(p, name)}")
    labels = promote(pair_labels).reshape(n, n_labels)
    is_similar = (
        labels[:, 0].astype(jnp.int32) != 0 if n_labels == 1 else jnp.all(labels[:, 1:] == labels[:, :1], axis=1)
    )
    if centroids and p.centroid_learning != "NONE":
        require(n_labels > 1, "centroid_learning needs two or three labels for each pair in bottom 2, not one")
        centroid_rows = lax.stop_gradient(promote(centroids[0]).reshape(centroids[0].shape[0], -1))
        require(
            centroid_rows.shape[1:] == rows_a.shape[1:],
            f"bottom 3 must have {rows_a.shape[1]} channels, like bottom 0, not {centroid_rows.shape[1]}",
        )
        is_replaced = jnp.any(centroid_rows != 0) & (is_similar if p.centroid_learning == "MATCHING" else ~is_similar)
        rows_a = jnp.where(is_replaced[:, None], centroid_rows[labels[:, 0].astype(jnp.int32)], rows_a)
    diff, is_manhattan = rows_a - rows_b, p.distance_calculation == "MANHATTAN"
    squared_distance = jnp.sum(jnp.abs(diff) if is_manhattan else jnp.square(diff), axis=1)
    return Pairs(diff, is_similar, squared_distance, p.margin, p.legacy_version or is_manhattan)


def _select_variant(layer: Any) -> str | None:
    p = layer.contrastive_loss_param
    has_settings = any(p.HasField(name) for name in _SETTINGS)
    return "of labels" if has_settings or len(layer.bottom) == 4 or len(layer.top) == 2 else None


register_variants(
    "ContrastiveLoss",
    _select_variant,
    {"of labels": contrastive_loss_of_labels.type},
    "With a fourth bottom, a second top, or a setting of MyCaffe, such as `distance_calculation`, it is MyCaffe's.",
)
