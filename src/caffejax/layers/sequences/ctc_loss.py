"""CtcLoss: how unlikely a sequence of labels is, over all ways to spread it out in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ...kernels.varying import vary_as
from .. import across
from ..context import Context
from ..dtypes import promote
from ..registry import register
from ..types import Gradient, Indices, LayerDocs, LayerType, Signature, Traced
from .compact import GAP, compacted

_NEVER = -1e30  # the logarithm of 0, but one that can be subtracted


@dataclass(frozen=True)
class Spread:
    """The states of an alignment: blank, label, blank, label .. blank, for each of N items; S of them.

    Attributes:
        log_prob: (T, N, S), of each state's label at each step.
        skips: (N, S), whether a state may follow on the one before the last.
        ends: (N, S), whether an item's alignment may end in a state.
        symbols: (N, S), each state's label.
    """

    log_prob: jax.Array
    skips: jax.Array
    ends: jax.Array
    symbols: jax.Array

    def forward(self) -> jax.Array:
        """Return the log-probability of all ways to each state at each step, that step's label included, (T, N, S)."""
        first = jnp.where(jnp.arange(self.skips.shape[1]) < 2, self.log_prob[0], _NEVER)

        def step(before: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            skipped = jnp.where(self.skips, _moved(before, 2), _NEVER)
            after = _sum(before, _moved(before, 1), skipped) + now
            return after, after

        rest = lax.scan(step, vary_as(first, self.skips), self.log_prob[1:])[1]
        return jnp.concatenate([first[None], rest])

    def backward(self) -> jax.Array:
        """Return that of all ways from each state at each step to an end, later labels only, (T, N, S)."""
        last = jnp.where(self.ends, 0, _NEVER) + 0 * self.log_prob[0]

        def step(after: jax.Array, later: jax.Array) -> tuple[jax.Array, jax.Array]:
            reached = after + later
            skipped = _moved(jnp.where(self.skips, reached, _NEVER), -2)
            before = _sum(reached, _moved(reached, -1), skipped)
            return before, before

        rest = lax.scan(step, vary_as(last, self.skips), self.log_prob[1:], reverse=True)[1]
        return jnp.concatenate([rest, last[None]])

    def total(self, forward: jax.Array) -> jax.Array:
        """Return the log-probability of each item's labels, (N,)."""
        return jax.nn.logsumexp(jnp.where(self.ends, forward[-1], _NEVER), axis=1)


def ctc_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over items of -log of the probability of their labels, (items, places), under scores (time, items, labels).

    Scores go through a softmax. Places with the blank label are left out. An item with more labels than steps to say
    them in counts 0. The gradient is, as in the fork, that of the sum and not of the mean.
    """
    spread, _ = _spread(ctx, scores, labels)
    total = spread.total(spread.forward())
    return -jnp.sum(jnp.where(total > _NEVER / 2, total, 0)) / scores.shape[1]


def ctc_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    spread, steps = _spread(ctx, scores, labels)
    forward = spread.forward()
    total = spread.total(forward)
    possible = total > _NEVER / 2
    share = jnp.exp(forward + spread.backward() - jnp.where(possible, total, 0)[:, None])
    of_label = spread.symbols[:, :, None] == jnp.arange(scores.shape[2])
    said = jnp.einsum("tns,nsc->tnc", share, of_label.astype(share.dtype))
    diff = jnp.where(possible[:, None], jax.nn.softmax(promote(scores[:steps]), axis=2) - said, 0)
    return dy * across.devices(ctx) * jnp.pad(diff, ((0, scores.shape[0] - steps), (0, 0), (0, 0))), None


def _labels(ctx: Context, scores: Any, labels: Any) -> int:
    return int(scores.shape[2])


register(
    LayerType(
        Signature("CtcLoss", bottoms=2, param="ctc_loss_param", loss=True),
        Traced(ctc_loss),
        Gradient(
            ctc_loss_backward,
            overrides_autodiff=True,
            indices=Indices((1,), _labels),
            exempt_from_force_backward=(1,),
            not_derivative="The gradient is that of the sum over items; the loss is their mean.",
        ),
        docs=LayerDocs(origin="warpctc-caffe"),
    )
)


def _spread(ctx: Context, scores: jax.Array, labels: jax.Array) -> tuple[Spread, int]:
    """Return the states of all items, and how many steps count."""
    p = ctx.param
    require(len(scores.shape) == 3, f"needs scores with 3 axes (time steps, items, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[1],
        f"needs labels (items, places) for {scores.shape[1]} items, not shape {labels.shape}",
    )
    require(
        p.alphabet_size == scores.shape[2],
        f"alphabet_size must be the {scores.shape[2]} labels of the scores {scores.shape}, not {p.alphabet_size}",
    )
    require(
        0 < p.time_step <= scores.shape[0],
        f"time_step must be from 1 to the {scores.shape[0]} steps of the scores, not {p.time_step}",
    )
    blank = p.blank_label
    require(0 <= blank < p.alphabet_size, f"blank_label must be below {p.alphabet_size}, not {blank}")
    given = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    spoken = compacted(given, given != blank)
    states = 2 * spoken.shape[1] + 1
    symbols = jnp.full((spoken.shape[0], states), blank).at[:, 1::2].set(jnp.where(spoken == GAP, blank, spoken))
    count = jnp.sum(spoken != GAP, axis=1)
    place = jnp.arange(states)
    log_prob = jax.nn.log_softmax(promote(scores[: p.time_step]), axis=2)
    return Spread(
        log_prob=jnp.take_along_axis(log_prob, symbols[None], axis=2),
        skips=(place % 2 == 1) & (symbols != jnp.roll(symbols, 2, axis=1)),
        ends=(place == 2 * count[:, None]) | (place == 2 * count[:, None] - 1),
        symbols=symbols,
    ), int(p.time_step)


def _moved(x: jax.Array, by: int) -> jax.Array:
    """Return states moved on, or back, with none where there were none."""
    widths = ((0, 0), (max(by, 0), max(-by, 0)))
    kept = jnp.pad(x, widths, constant_values=_NEVER)
    return kept[:, : x.shape[1]] if by > 0 else kept[:, -by:]


def _sum(*logs: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(logs), axis=0)
