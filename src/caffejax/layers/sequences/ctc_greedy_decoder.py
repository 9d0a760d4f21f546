"""CTCGreedyDecoder: the best label of each time step, said once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ...errors import require
from ..across import mean
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .compact import GAP, compacted


def ctc_greedy_decoder(ctx: Context, scores: jax.Array, going_on: jax.Array, *targets: jax.Array) -> Any:
    """Best labels of scores (time, items, labels), blanks and repetitions left out: (items, time, 1, 1), then -1.

    Time steps of an item are the first and those after it up to the first 0 of the second bottom (time, items).
    Further tops: less the sum of the best scores, (items, 1, 1, 1), and with a third bottom of labels (time, items),
    up to the first negative one, the share of items that are right, (1, 1, 1, 1). Of two tops beside three bottoms it
    is the share. A negative blank_index is the last label; ctc_merge_repeated: false keeps repetitions.
    """
    blank = _blank(ctx, scores, going_on, *targets)
    x = promote(scores).transpose(1, 0, 2)
    best = jnp.argmax(x, axis=2).astype(jnp.int32)
    there = _before_end(_rows(going_on, scores) != 0, first=True)
    kept = there & (best != blank)
    if ctx.param.ctc_merge_repeated:
        kept &= best != jnp.pad(best, ((0, 0), (1, 0)), constant_values=GAP)[:, :-1]
    said = compacted(best, kept)
    tops = [said.astype(x.dtype)[:, :, None, None]]
    if ctx.n_tops == 3 or (ctx.n_tops == 2 and not targets):
        tops.append(-jnp.sum(jnp.where(there, jnp.max(x, axis=2), 0), axis=1).reshape(-1, 1, 1, 1))
    for given in targets if ctx.n_tops > 1 else ():
        labels = _rows(given, scores)
        wanted = jnp.where(_before_end(labels >= 0), jnp.floor(labels + 0.5).astype(jnp.int32), GAP)
        right = mean(ctx, jnp.sum(jnp.all(said == wanted, axis=1)) / max(scores.shape[1], 1))
        tops.append(right.astype(x.dtype).reshape(1, 1, 1, 1))
    return tuple(tops) if len(tops) > 1 else tops[0]


register(
    LayerType(
        Signature("CTCGreedyDecoder", bottoms=(2, 3), tops=(1, 3), param="ctc_decoder_param", in_place=False),
        Traced(ctc_greedy_decoder),
        Gradient(exists=False, indices=Indices((1, 2))),
        docs=LayerDocs(
            origin="OpenVINO",
            restrictions="A sequence that begins with the labels wanted is not right, unless it ends with them.",
        ),
    )
)


def _blank(ctx: Context, scores: Any, *others: Any) -> int:
    """Check the bottoms, and return the number of the blank label."""
    require(
        len(scores.shape) == 3 and scores.shape[0] != 0 and scores.shape[2] != 0,
        f"needs scores with 3 axes (time, items, labels), of which none is empty, not shape {scores.shape}",
    )
    require(
        ctx.n_tops <= len(others) + 1,
        "has 3 tops, of which the third judges the labels of a third bottom; give one, or take 2 tops",
    )
    for i, other in enumerate(others, start=1):
        shape = tuple(other.shape)
        require(
            shape[:2] == tuple(scores.shape[:2]) and all(n == 1 for n in shape[2:]),
            f"bottom {i} must hold a number for each time step and item, {tuple(scores.shape[:2])}, not shape {shape}",
        )
    labels, blank = scores.shape[2], ctx.param.blank_index
    require(blank < labels, f"blank_index must be less than the {labels} labels, not {blank}")
    return blank if blank >= 0 else labels - 1


def _rows(x: jax.Array, scores: jax.Array) -> jax.Array:
    return promote(x).reshape(scores.shape[:2]).T


def _before_end(going_on: jax.Array, first: bool = False) -> jax.Array:
    """Return True in rows up to the first False; of the `first` number, whatever it is, on request."""
    if first:
        going_on = going_on.at[:, 0].set(True)
    return jnp.cumsum(~going_on, axis=1) == 0
