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

PADDING = -1


def drop_blanks(labels: jax.Array, mask: jax.Array) -> jax.Array:
    """Move the labels that `mask` selects to the front of each row, in their order, and fill the rest with `PADDING`.

    The arguments and the result have shape (rows, positions).
    """
    order = jnp.argsort(~mask, axis=1, stable=True)
    return jnp.take_along_axis(jnp.where(mask, labels, PADDING), order, axis=1)


_LOG_ZERO = -1e30  # the logarithm of 0; finite, so that differences are not NaN


@dataclass(frozen=True)
class Alignment:
    """The states of the CTC alignments of N items. The S states of an item are blank, label, blank, label .. blank.

    Attributes:
        log_prob: (T, N, S), the log-probability of the label of each state at each step.
        skips: (N, S), whether a state can be reached from the state two positions before it.
        ends: (N, S), whether an item's alignment can end in a state.
        symbols: (N, S), the label of each state.
    """

    log_prob: jax.Array
    skips: jax.Array
    ends: jax.Array
    symbols: jax.Array

    def forward(self) -> jax.Array:
        """Return the log-probability of all paths that reach each state at each step, (T, N, S).

        The paths include the label of the step.
        """
        first = jnp.where(jnp.arange(self.skips.shape[1]) < 2, self.log_prob[0], _LOG_ZERO)

        def step(previous: jax.Array, label_log_prob: jax.Array) -> tuple[jax.Array, jax.Array]:
            skip_log_prob = jnp.where(self.skips, _shift_states(previous, 2), _LOG_ZERO)
            current = _log_sum(previous, _shift_states(previous, 1), skip_log_prob) + label_log_prob
            return current, current

        later = lax.scan(step, vary_as(first, self.skips), self.log_prob[1:])[1]
        return jnp.concatenate([first[None], later])

    def backward(self) -> jax.Array:
        """Return the log-probability of all paths from each state at each step to an end, (T, N, S).

        The paths include only the labels of later steps.
        """
        last = jnp.where(self.ends, 0, _LOG_ZERO) + 0 * self.log_prob[0]

        def step(following: jax.Array, later: jax.Array) -> tuple[jax.Array, jax.Array]:
            next_log_prob = following + later
            skip_log_prob = _shift_states(jnp.where(self.skips, next_log_prob, _LOG_ZERO), -2)
            current = _log_sum(next_log_prob, _shift_states(next_log_prob, -1), skip_log_prob)
            return current, current

        earlier = lax.scan(step, vary_as(last, self.skips), self.log_prob[1:], reverse=True)[1]
        return jnp.concatenate([earlier, last[None]])

    def total(self, forward: jax.Array) -> jax.Array:
        """Return the log-probability of the label sequence of each item, (N,), from the result of `forward`."""
        return jax.nn.logsumexp(jnp.where(self.ends, forward[-1], _LOG_ZERO), axis=1)


def ctc_loss(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the mean over items of -log(probability of the item's label sequence) as a scalar.

    Bottoms: scores (time, items, labels), which go through a softmax, and label sequences (items, positions), where
    positions with the blank label are ignored. The loss of an item with more labels than steps is 0. As in the fork,
    the gradient is the gradient of the sum over items, not of the mean.
    """
    alignment, _ = _align(ctx, scores, labels)
    total = alignment.total(alignment.forward())
    return -jnp.sum(jnp.where(total > _LOG_ZERO / 2, total, 0)) / scores.shape[1]


def ctc_loss_backward(
    ctx: Context, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array
) -> tuple[jax.Array, None]:
    alignment, steps = _align(ctx, scores, labels)
    forward = alignment.forward()
    total = alignment.total(forward)
    is_possible = total > _LOG_ZERO / 2
    posterior = jnp.exp(forward + alignment.backward() - jnp.where(is_possible, total, 0)[:, None])
    is_label = alignment.symbols[:, :, None] == jnp.arange(scores.shape[2])
    expected = jnp.einsum("tns,nsc->tnc", posterior, is_label.astype(posterior.dtype))
    diff = jnp.where(is_possible[:, None], jax.nn.softmax(promote(scores[:steps]), axis=2) - expected, 0)
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
        not_derivative="The gradient is the gradient of the sum over items; the loss is their mean.",
    ),
    docs=LayerDocs(origin="warpctc-caffe"),
)


def _align(ctx: Context, scores: jax.Array, labels: jax.Array) -> tuple[Alignment, int]:
    """Return the alignments of all items, and the number of steps that are used (`time_step`)."""
    p = ctx.param
    require(len(scores.shape) == 3, f"needs scores with 3 axes (time steps, items, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[1],
        f"needs labels (items, positions) for {scores.shape[1]} items, not labels of shape {labels.shape}",
    )
    require(
        p.alphabet_size == scores.shape[2],
        f"alphabet_size must be {scores.shape[2]}, the number of labels of the scores, not {p.alphabet_size}",
    )
    require(
        0 < p.time_step <= scores.shape[0],
        f"time_step must be from 1 to {scores.shape[0]}, the number of steps of the scores, not {p.time_step}",
    )
    blank = p.blank_label
    require(0 <= blank < p.alphabet_size, f"blank_label must be from 0 to {p.alphabet_size - 1}, not {blank}")
    label_rows = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    compact_labels = drop_blanks(label_rows, label_rows != blank)
    states = 2 * compact_labels.shape[1] + 1
    symbols = (
        jnp.full((compact_labels.shape[0], states), blank)
        .at[:, 1::2]
        .set(jnp.where(compact_labels == PADDING, blank, compact_labels))
    )
    count = jnp.sum(compact_labels != PADDING, axis=1)
    index = jnp.arange(states)
    log_prob = jax.nn.log_softmax(promote(scores[: p.time_step]), axis=2)
    return Alignment(
        log_prob=jnp.take_along_axis(log_prob, symbols[None], axis=2),
        skips=(index % 2 == 1) & (symbols != jnp.roll(symbols, 2, axis=1)),
        ends=(index == 2 * count[:, None]) | (index == 2 * count[:, None] - 1),
        symbols=symbols,
    ), int(p.time_step)


def _shift_states(x: jax.Array, by: int) -> jax.Array:
    """Return log-probabilities of states, (N, S), shifted by `by` along the last axis.

    New states at the edge have probability 0.
    """
    widths = ((0, 0), (max(by, 0), max(-by, 0)))
    padded = jnp.pad(x, widths, constant_values=_LOG_ZERO)
    return padded[:, : x.shape[1]] if by > 0 else padded[:, -by:]


def _log_sum(*logs: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(logs), axis=0)


def ctc_greedy_decoder(ctx: Context, scores: jax.Array, indicators: jax.Array, *targets: jax.Array) -> Any:
    """Decode the best label of each step, without blanks and repetitions: (time, items, labels) to (items, time, 1, 1).

    Rows are padded with -1. Bottoms: scores (time, items, labels); indicators (time, items), which are 0 at the step
    after an item's last step; and optionally label sequences (time, items), which end at the first negative label. The
    other tops are minus the sum of the best scores, (items, 1, 1, 1), and, with a third bottom, the accuracy, (1, 1, 1,
    1). With three bottoms and two tops, the second top is the accuracy. A negative blank_index selects the last
    label. `ctc_merge_repeated: false` keeps repetitions.
    """
    blank = _blank_index(ctx, scores, indicators, *targets)
    x = promote(scores).transpose(1, 0, 2)
    best = jnp.argmax(x, axis=2).astype(jnp.int32)
    valid = _mask_before_end(_rows(indicators, scores) != 0, keep_first=True)
    mask = valid & (best != blank)
    if ctx.param.ctc_merge_repeated:
        mask &= best != jnp.pad(best, ((0, 0), (1, 0)), constant_values=PADDING)[:, :-1]
    decoded = drop_blanks(best, mask)
    tops = [decoded.astype(x.dtype)[:, :, None, None]]
    if ctx.n_tops == 3 or (ctx.n_tops == 2 and not targets):
        tops.append(-jnp.sum(jnp.where(valid, jnp.max(x, axis=2), 0), axis=1).reshape(-1, 1, 1, 1))
    for target in targets if ctx.n_tops > 1 else ():
        labels = _rows(target, scores)
        expected = jnp.where(_mask_before_end(labels >= 0), jnp.floor(labels + 0.5).astype(jnp.int32), PADDING)
        accuracy = pmean(ctx, jnp.sum(jnp.all(decoded == expected, axis=1)) / max(scores.shape[1], 1))
        tops.append(accuracy.astype(x.dtype).reshape(1, 1, 1, 1))
    return tuple(tops) if len(tops) > 1 else tops[0]


define_layer(
    Signature("CTCGreedyDecoder", bottoms=(2, 3), tops=(1, 3), param="ctc_decoder_param", in_place=False),
    Traced(ctc_greedy_decoder),
    Gradient(exists=False, indices=Indices((1, 2))),
    docs=LayerDocs(
        origin="OpenVINO",
        restrictions="A sequence that continues after the expected labels counts as an error.",
    ),
)


def _blank_index(ctx: Context, scores: Any, *bottoms: Any) -> int:
    """Validate the bottoms, and return the index of the blank label."""
    require(
        len(scores.shape) == 3 and scores.shape[0] != 0 and scores.shape[2] != 0,
        f"needs scores with 3 axes (time, items, labels), none of size 0, not shape {scores.shape}",
    )
    require(
        ctx.n_tops <= len(bottoms) + 1,
        "has 3 tops, but the accuracy, the third top, needs a third bottom of labels; add it, or use 2 tops",
    )
    for i, bottom in enumerate(bottoms, start=1):
        shape = tuple(bottom.shape)
        require(
            shape[:2] == tuple(scores.shape[:2]) and all(n == 1 for n in shape[2:]),
            f"bottom {i} must have a value for each time step and item, {tuple(scores.shape[:2])}, not shape {shape}",
        )
    labels, blank = scores.shape[2], ctx.param.blank_index
    require(blank < labels, f"blank_index must be less than the {labels} labels, not {blank}")
    return blank if blank >= 0 else labels - 1


def _rows(x: jax.Array, scores: jax.Array) -> jax.Array:
    return promote(x).reshape(scores.shape[:2]).T


def _mask_before_end(continues: jax.Array, keep_first: bool = False) -> jax.Array:
    """Return the mask of entries before the first False in each row. With `keep_first`, entry 0 counts as True."""
    if keep_first:
        continues = continues.at[:, 0].set(True)
    return jnp.cumsum(~continues, axis=1) == 0


def labelsequence_accuracy(ctx: Context, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the fraction of items whose best labels equal the label sequence, as a scalar.

    Repetitions and blanks are removed from the best labels. Bottoms: scores (items, time, labels), and label sequences
    (items, positions), where positions with the blank label are ignored.
    """
    require(len(scores.shape) == 3, f"needs scores with 3 axes (items, time steps, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[0],
        f"needs labels (items, positions) for {scores.shape[0]} items, not labels of shape {labels.shape}",
    )
    blank = ctx.param.blank_label
    best = jnp.argmax(scores, axis=2).astype(jnp.int32)
    previous = jnp.pad(best, ((0, 0), (1, 0)), constant_values=blank)[:, :-1]
    decoded = drop_blanks(best, (best != previous) & (best != blank))
    label_rows = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    expected = drop_blanks(label_rows, label_rows != blank)
    length = max(decoded.shape[1], expected.shape[1])
    decoded, expected = (
        jnp.pad(x, ((0, 0), (0, length - x.shape[1])), constant_values=PADDING) for x in (decoded, expected)
    )
    return jnp.mean(jnp.all(decoded == expected, axis=1).astype(jnp.float32))


define_layer(
    Signature("LabelsequenceAccuracy", bottoms=2, param="labelsequence_accuracy_param"),
    Traced(labelsequence_accuracy),
    Gradient(exists=False, indices=Indices((1,))),
    docs=LayerDocs(origin="warpctc-caffe"),
)
