"""LabelsequenceAccuracy: the share of sequences that are said without a mistake."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...errors import require
from ..context import Context
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .compact import GAP, compacted


def labelsequence_accuracy(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Share of items whose best labels of each step, without repetitions and blanks, are the item's labels.

    Scores are (items, time steps, labels); places of the labels (items, places) with the blank label are left out.
    """
    require(len(scores.shape) == 3, f"needs scores with 3 axes (items, time steps, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[0],
        f"needs labels (items, places) for {scores.shape[0]} items, not shape {labels.shape}",
    )
    blank = ctx.param.blank_label
    best = jnp.argmax(scores, axis=2).astype(jnp.int32)
    before = jnp.pad(best, ((0, 0), (1, 0)), constant_values=blank)[:, :-1]
    said = compacted(best, (best != before) & (best != blank))
    given = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    wanted = compacted(given, given != blank)
    length = max(said.shape[1], wanted.shape[1])
    said, wanted = (jnp.pad(x, ((0, 0), (0, length - x.shape[1])), constant_values=GAP) for x in (said, wanted))
    return jnp.mean(jnp.all(said == wanted, axis=1).astype(jnp.float32))


register(
    LayerType(
        Signature("LabelsequenceAccuracy", bottoms=2, param="labelsequence_accuracy_param"),
        Traced(labelsequence_accuracy),
        Gradient(exists=False, indices=Indices((1,))),
        docs=LayerDocs(origin="warpctc-caffe"),
    )
)
