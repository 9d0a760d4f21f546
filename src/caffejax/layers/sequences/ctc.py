"""CtcLoss, CTCGreedyDecoder and LabelsequenceAccuracy: label sequences without an alignment to time steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...errors import require
from ...kernels.vma import vary_as
from .. import cross_replica
from ..context import Context
from ..cross_replica import pmean
from ..dtype_policy import promote
from ..registry import define_layer
from ..types import Gradient, Indices, LayerDocs, Signature, Traced

GAP = -1


def drop_blanks(numbers: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the kept labels of each row (rows, positions) in their order, then padding (`GAP`)."""
    order = jnp.argsort(~mask, axis=1, stable=True)
    return jnp.take_along_axis(jnp.where(mask, numbers, GAP), order, axis=1)


_NEVER = -1e30  # the logarithm of 0; finite, so that differences are not NaN


@dataclass(frozen=True)
class Alignment:
    """The states of CTC alignments: blank, label, blank, label .. blank; S states for each of N items.

    Attributes:
        log_prob: (T, N, S), log-probability of the label of each state at each step.
        skips: (N, S), whether a state may be reached from two states before.
        ends: (N, S), whether an item's alignment may end in a state.
        symbols: (N, S), the label of each state.
    """

    log_prob: jax.Array
    skips: jax.Array
    ends: jax.Array
    symbols: jax.Array

    def forward(self) -> jax.Array:
        """Return the log-probabilities (T, N, S) of all paths to each state, including the label of the step."""
        first = jnp.where(jnp.arange(self.skips.shape[1]) < 2, self.log_prob[0], _NEVER)

        def step(before: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            skipped = jnp.where(self.skips, _shift_states(before, 2), _NEVER)
            after = _log_sum(before, _shift_states(before, 1), skipped) + now
            return after, after

        later = lax.scan(step, vary_as(first, self.skips), self.log_prob[1:])[1]
        return jnp.concatenate([first[None], later])

    def backward(self) -> jax.Array:
        """Return the log-probabilities (T, N, S) of all paths from each state to an end, labels of later steps only."""
        last = jnp.where(self.ends, 0, _NEVER) + 0 * self.log_prob[0]

        def step(after: jax.Array, later: jax.Array) -> tuple[jax.Array, jax.Array]:
            reached = after + later
            skipped = _shift_states(jnp.where(self.skips, reached, _NEVER), -2)
            before = _log_sum(reached, _shift_states(reached, -1), skipped)
            return before, before

        earlier = lax.scan(step, vary_as(last, self.skips), self.log_prob[1:], reverse=True)[1]
        return jnp.concatenate([earlier, last[None]])

    def total(self, forward: jax.Array) -> jax.Array:
        """Return the log-probability of each item's label sequence, (N,), from the result of `forward`."""
        return jax.nn.logsumexp(jnp.where(self.ends, forward[-1], _NEVER), axis=1)


def ctc_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean over items of -log(probability of the item's label sequence); a scalar.

    Bottoms: scores (time, items, labels), which go through a softmax, and label sequences (items, positions), where
    positions with the blank label are ignored. An item with more labels than steps adds 0. As in the fork, the gradient
    is the gradient of the sum over items, not of the mean.
    """
    spread, _ = _align(ctx, scores, labels)
    total = spread.total(spread.forward())
    return -jnp.sum(jnp.where(total > _NEVER / 2, total, 0)) / scores.shape[1]


def ctc_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    spread, steps = _align(ctx, scores, labels)
    forward = spread.forward()
    total = spread.total(forward)
    possible = total > _NEVER / 2
    posterior = jnp.exp(forward + spread.backward() - jnp.where(possible, total, 0)[:, None])
    of_label = spread.symbols[:, :, None] == jnp.arange(scores.shape[2])
    expected = jnp.einsum("tns,nsc->tnc", posterior, of_label.astype(posterior.dtype))
    diff = jnp.where(possible[:, None], jax.nn.softmax(promote(scores[:steps]), axis=2) - expected, 0)
    return dy * cross_replica.axis_size(ctx) * jnp.pad(diff, ((0, scores.shape[0] - steps), (0, 0), (0, 0))), None


def _labels(ctx: Context, scores: Any, labels: Any) -> int:
    return int(scores.shape[2])


define_layer(
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


def _align(ctx: Context, scores: jax.Array, labels: jax.Array) -> tuple[Alignment, int]:
    """Return the alignments of all items, and the number of steps that count."""
    p = ctx.param
    require(len(scores.shape) == 3, f"needs scores with 3 axes (time steps, items, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[1],
        f"needs labels (items, positions) for {scores.shape[1]} items, not shape {labels.shape}",
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
    numbers = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    spoken = drop_blanks(numbers, numbers != blank)
    states = 2 * spoken.shape[1] + 1
    symbols = jnp.full((spoken.shape[0], states), blank).at[:, 1::2].set(jnp.where(spoken == GAP, blank, spoken))
    count = jnp.sum(spoken != GAP, axis=1)
    index = jnp.arange(states)
    log_prob = jax.nn.log_softmax(promote(scores[: p.time_step]), axis=2)
    return Alignment(
        log_prob=jnp.take_along_axis(log_prob, symbols[None], axis=2),
        skips=(index % 2 == 1) & (symbols != jnp.roll(symbols, 2, axis=1)),
        ends=(index == 2 * count[:, None]) | (index == 2 * count[:, None] - 1),
        symbols=symbols,
    ), int(p.time_step)


def _shift_states(x: jax.Array, by: int) -> jax.Array:
    """Return states (N, S) shifted by `by` along the last axis; states shifted in have probability 0."""
    widths = ((0, 0), (max(by, 0), max(-by, 0)))
    padded = jnp.pad(x, widths, constant_values=_NEVER)
    return padded[:, : x.shape[1]] if by > 0 else padded[:, -by:]


def _log_sum(*logs: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(logs), axis=0)


def ctc_greedy_decoder(ctx: Context, scores: jax.Array, going_on: jax.Array, *targets: jax.Array) -> Any:
    """Best label of each step, without blanks and repetitions: (time, items, labels) to (items, time, 1, 1).

    Rows are padded with -1. Bottoms: scores (time, items, labels); indicators (time, items), which are 0 at the step
    after an item's last step; and optionally label sequences (time, items), which end at the first negative label.
    Further tops are minus the sum of the best scores, (items, 1, 1, 1), and, with a third bottom, the accuracy, (1, 1,
    1, 1). With three bottoms and two tops the second top is the accuracy. A negative blank_index means the last label.
    `ctc_merge_repeated: false` keeps repetitions.
    """
    blank = _blank(ctx, scores, going_on, *targets)
    x = promote(scores).transpose(1, 0, 2)
    best = jnp.argmax(x, axis=2).astype(jnp.int32)
    valid = _mask_before_end(_rows(going_on, scores) != 0, first=True)
    mask = valid & (best != blank)
    if ctx.param.ctc_merge_repeated:
        mask &= best != jnp.pad(best, ((0, 0), (1, 0)), constant_values=GAP)[:, :-1]
    decoded = drop_blanks(best, mask)
    tops = [decoded.astype(x.dtype)[:, :, None, None]]
    if ctx.n_tops == 3 or (ctx.n_tops == 2 and not targets):
        tops.append(-jnp.sum(jnp.where(valid, jnp.max(x, axis=2), 0), axis=1).reshape(-1, 1, 1, 1))
    for target in targets if ctx.n_tops > 1 else ():
        labels = _rows(target, scores)
        expected = jnp.where(_mask_before_end(labels >= 0), jnp.floor(labels + 0.5).astype(jnp.int32), GAP)
        right = pmean(ctx, jnp.sum(jnp.all(decoded == expected, axis=1)) / max(scores.shape[1], 1))
        tops.append(right.astype(x.dtype).reshape(1, 1, 1, 1))
    return tuple(tops) if len(tops) > 1 else tops[0]


define_layer(
    Signature("CTCGreedyDecoder", bottoms=(2, 3), tops=(1, 3), param="ctc_decoder_param", in_place=False),
    Traced(ctc_greedy_decoder),
    Gradient(exists=False, indices=Indices((1, 2))),
    docs=LayerDocs(
        origin="OpenVINO",
        restrictions="A sequence that begins with the expected labels and continues is wrong.",
    ),
)


def _blank(ctx: Context, scores: Any, *others: Any) -> int:
    """Validate the bottoms, and return the index of the blank label."""
    require(
        len(scores.shape) == 3 and scores.shape[0] != 0 and scores.shape[2] != 0,
        f"needs scores with 3 axes (time, items, labels), none of size 0, not shape {scores.shape}",
    )
    require(
        ctx.n_tops <= len(others) + 1,
        "has 3 tops, but the third compares with a third bottom; add a bottom of labels, or use 2 tops",
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


def _mask_before_end(going_on: jax.Array, first: bool = False) -> jax.Array:
    """Return the mask of entries before the first False in each row; with `first`, entry 0 counts as True."""
    if first:
        going_on = going_on.at[:, 0].set(True)
    return jnp.cumsum(~going_on, axis=1) == 0


def labelsequence_accuracy(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Fraction of items whose best labels, without repetitions and blanks, equal the label sequence; a scalar.

    Bottoms: scores (items, time, labels), and label sequences (items, positions), where positions with the blank label
    are ignored.
    """
    require(len(scores.shape) == 3, f"needs scores with 3 axes (items, time steps, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[0],
        f"needs labels (items, positions) for {scores.shape[0]} items, not shape {labels.shape}",
    )
    blank = ctx.param.blank_label
    best = jnp.argmax(scores, axis=2).astype(jnp.int32)
    before = jnp.pad(best, ((0, 0), (1, 0)), constant_values=blank)[:, :-1]
    decoded = drop_blanks(best, (best != before) & (best != blank))
    numbers = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    expected = drop_blanks(numbers, numbers != blank)
    length = max(decoded.shape[1], expected.shape[1])
    decoded, expected = (
        jnp.pad(x, ((0, 0), (0, length - x.shape[1])), constant_values=GAP) for x in (decoded, expected)
    )
    return jnp.mean(jnp.all(decoded == expected, axis=1).astype(jnp.float32))


define_layer(
    Signature("LabelsequenceAccuracy", bottoms=2, param="labelsequence_accuracy_param"),
    Traced(labelsequence_accuracy),
    Gradient(exists=False, indices=Indices((1,))),
    docs=LayerDocs(origin="warpctc-caffe"),
)
