"""SegAccuracy: how well a map of labels is met, from a matrix of which class was taken for which."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from .. import across
from ..context import Context, ParamSpec
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced

Arrays = tuple[jax.Array, ...]


def seg_accuracy(ctx: Context, blobs: Arrays, scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, Arrays]:
    """Share of pixels that are right, mean recall, mean intersection over union; a top of 1 x 1 x 1 x 3.

    Recall is averaged over the classes that occur, intersection over union over all, with 1 for one that occurs
    nowhere. `reset: false` counts the pixels of earlier passes, too. A label that is no class gives NaN.
    """
    require_label_map(scores, labels)
    classes = scores.shape[1]
    index = labels.astype(jnp.int32).reshape(scores.shape[0], -1)
    guesses = jnp.argmax(scores, axis=1).reshape(scores.shape[0], -1)
    valid = jnp.ones(index.shape, bool)
    for ignored in ctx.param.ignore_label:
        valid &= index != ignored
    unknown = across.total(ctx, jnp.sum(valid & ((index < 0) | (index >= classes)))) > 0
    own = ((index[..., None] == jnp.arange(classes)) & valid[..., None]).astype(jnp.float32)
    guessed = (guesses[..., None] == jnp.arange(classes)).astype(jnp.float32)
    counts = jnp.einsum("bpi,bpj->ij", own, guessed, precision="highest")
    counts = sum(blobs, start=across.total(ctx, counts))
    figures = jnp.where(unknown, jnp.nan, _figures(counts))
    return figures.reshape(1, 1, 1, 3), tuple(counts.astype(b.dtype) for b in blobs)


def seg_accuracy_params(ctx: Context, scores: Any, labels: Any) -> list[ParamSpec]:
    require_label_map(scores, labels)
    classes = scores.shape[1]
    return [] if ctx.param.reset else [ParamSpec((classes, classes), learnable=False, persistent=False)]


def _classes(ctx: Context, scores: Any, labels: Any) -> int | None:
    return int(scores.shape[1]) if len(scores.shape) > 1 and len(ctx.param.ignore_label) <= 1 else None


def _ignored(ctx: Context) -> int | None:
    return int(ctx.param.ignore_label[0]) if len(ctx.param.ignore_label) == 1 else None


register(
    LayerType(
        Signature("SegAccuracy", bottoms=2, param="seg_accuracy_param"),
        Traced(seg_accuracy, params=seg_accuracy_params, stateful=True),
        Gradient(exists=False, indices=Indices((1,), _classes, _ignored)),
        docs=LayerDocs(origin="DeepLab, PSPNet"),
    )
)


def require_label_map(scores: Any, labels: Any) -> None:
    """Raise `LayerError` unless there is one label for each place of (num, classes, height, width)."""
    require(len(scores.shape) == 4, f"needs scores with 4 axes (num, classes, height, width), not {scores.shape}")
    places = (scores.shape[0], *scores.shape[2:])
    require(
        labels.shape in (places, (places[0], 1, *places[1:])),
        f"bottom 1 must hold a label for each place of the scores {scores.shape}, not have shape {labels.shape}",
    )


def _figures(counts: jax.Array) -> jax.Array:
    """Return the three figures of counts by (label, guess)."""
    right, labelled, guessed = jnp.diagonal(counts), jnp.sum(counts, axis=1), jnp.sum(counts, axis=0)
    together = labelled + guessed - right
    union = jnp.where(together > 0, right / jnp.maximum(together, 1), 1)
    recall = jnp.sum(right / jnp.maximum(labelled, 1)) / jnp.maximum(jnp.sum(labelled > 0), 1)
    return jnp.stack([jnp.sum(right) / jnp.maximum(jnp.sum(counts), 1), recall, jnp.mean(union)])
