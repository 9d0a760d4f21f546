"""CtcLoss, CTCGreedyDecoder and LabelsequenceAccuracy: label sequences without an alignment to time steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...base.errors import require
from ...core.layers import cross_replica
from ...core.layers.context import Context
from ...core.layers.cross_replica import pmean
from ...core.layers.declaration import register
from ...core.layers.dtype_policy import promote
from ...core.layers.loss_helpers import num_items, sum_rows
from ...core.layers.types import Indices
from ...core.ops.vma import vary_as
from ...core.schema.caffe_pb2 import CTCDecoderParameter, CtcLossParameter, LabelsequenceAccuracyParameter

PADDING = -1
_NO_PADDING = "It takes no rows of padding, because its items are along axis 1."


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
        can_skip: (N, S), whether a state can be reached from the state two positions before it.
        is_final: (N, S), whether an item's alignment can end in a state.
        symbols: (N, S), the label of each state.
    """

    log_prob: jax.Array
    can_skip: jax.Array
    is_final: jax.Array
    symbols: jax.Array

    def forward(self) -> jax.Array:
        """Return the forward variables of CTC, (T, N, S): log-probabilities of reaching each state at each step.

        The probability of the state's own step is included.
        """
        first_log_prob = jnp.where(jnp.arange(self.can_skip.shape[1]) < 2, self.log_prob[0], _LOG_ZERO)

        def step(previous: jax.Array, label_log_prob: jax.Array) -> tuple[jax.Array, jax.Array]:
            skip_log_prob = jnp.where(self.can_skip, _shift_states(previous, 2), _LOG_ZERO)
            current = _log_sum_exp(previous, _shift_states(previous, 1), skip_log_prob) + label_log_prob
            return current, current

        later_log_probs = lax.scan(step, vary_as(first_log_prob, self.can_skip), self.log_prob[1:])[1]
        return jnp.concatenate([first_log_prob[None], later_log_probs])

    def backward(self) -> jax.Array:
        """Return the backward variables of CTC, (T, N, S): log-probabilities of completing the labels from each state.

        The probability of the state's own step is not included.
        """
        last_log_prob = jnp.where(self.is_final, 0, _LOG_ZERO) + 0 * self.log_prob[0]

        def step(next_state_log_prob: jax.Array, label_log_prob: jax.Array) -> tuple[jax.Array, jax.Array]:
            next_log_prob = next_state_log_prob + label_log_prob
            skip_log_prob = _shift_states(jnp.where(self.can_skip, next_log_prob, _LOG_ZERO), -2)
            current = _log_sum_exp(next_log_prob, _shift_states(next_log_prob, -1), skip_log_prob)
            return current, current

        earlier_log_probs = lax.scan(step, vary_as(last_log_prob, self.can_skip), self.log_prob[1:], reverse=True)[1]
        return jnp.concatenate([earlier_log_probs, last_log_prob[None]])

    def log_likelihood(self, forward: jax.Array) -> jax.Array:
        """Return the log-probability of the label sequence of each item, (N,), from the result of `forward`."""
        return jax.nn.logsumexp(jnp.where(self.is_final, forward[-1], _LOG_ZERO), axis=1)


def ctc_loss_num_classes(scores: Any, labels: Any) -> int:
    return int(scores.shape[2])


@register(
    "CtcLoss",
    bottoms=2,
    param="ctc_loss_param",
    loss=True,
    overrides_autodiff=True,
    indices=Indices((1,), ctc_loss_num_classes),
    deviation="The gradient is the gradient of the sum over items; the loss is their mean.",
    origin="warpctc-caffe",
    restrictions=_NO_PADDING,
)
def ctc_loss(p: CtcLossParameter, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the mean over items of -log(probability of the item's label sequence) as a scalar.

    Bottoms: scores (time, items, labels), which go through a softmax, and label sequences (items, positions), where
    positions with the blank label are ignored. The loss of an item with more labels than steps is 0. As in the fork,
    the gradient is the gradient of the sum over items, not of the mean.
    """
    alignment, _ = _align(p, scores, labels)
    log_likelihood = alignment.log_likelihood(alignment.forward())
    losses = jnp.where(log_likelihood <= _LOG_ZERO / 2, 0, -log_likelihood)  # NaN stays NaN, as in the fork
    return jnp.sum(losses) / scores.shape[1]


@ctc_loss.backward
def ctc_loss_backward(
    p: CtcLossParameter, scores: jax.Array, labels: jax.Array, *, y: jax.Array, dy: jax.Array, ctx: Context
) -> tuple[jax.Array, None]:
    alignment, num_steps = _align(p, scores, labels)
    forward = alignment.forward()
    log_likelihood = alignment.log_likelihood(forward)
    is_possible = log_likelihood > _LOG_ZERO / 2
    posterior = jnp.exp(forward + alignment.backward() - jnp.where(is_possible, log_likelihood, 0)[:, None])
    is_label = alignment.symbols[:, :, None] == jnp.arange(scores.shape[2])
    label_posterior = jnp.einsum("tns,nsc->tnc", posterior, is_label.astype(posterior.dtype))
    diff = jnp.where(is_possible[:, None], jax.nn.softmax(promote(scores[:num_steps]), axis=2) - label_posterior, 0)
    return dy * cross_replica.axis_size(ctx) * jnp.pad(diff, ((0, scores.shape[0] - num_steps), (0, 0), (0, 0))), None


def _align(p: CtcLossParameter, scores: jax.Array, labels: jax.Array) -> tuple[Alignment, int]:
    """Return the alignments of all items, and the number of time steps to use (`time_step`)."""
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
    num_states = 2 * compact_labels.shape[1] + 1
    symbols = (
        jnp.full((compact_labels.shape[0], num_states), blank)
        .at[:, 1::2]
        .set(jnp.where(compact_labels == PADDING, blank, compact_labels))
    )
    num_labels = jnp.sum(compact_labels != PADDING, axis=1)
    state_index = jnp.arange(num_states)
    log_prob = jax.nn.log_softmax(promote(scores[: p.time_step]), axis=2)
    return Alignment(
        log_prob=jnp.take_along_axis(log_prob, symbols[None], axis=2),
        can_skip=(state_index % 2 == 1) & (symbols != jnp.roll(symbols, 2, axis=1)),
        is_final=(state_index == 2 * num_labels[:, None]) | (state_index == 2 * num_labels[:, None] - 1),
        symbols=symbols,
    ), int(p.time_step)


def _shift_states(x: jax.Array, offset: int) -> jax.Array:
    """Return log-probabilities of states, (N, S), shifted by `offset` along the last axis.

    New states at the edge have probability 0.
    """
    widths = ((0, 0), (max(offset, 0), max(-offset, 0)))
    padded = jnp.pad(x, widths, constant_values=_LOG_ZERO)
    return padded[:, : x.shape[1]] if offset > 0 else padded[:, -offset:]


def _log_sum_exp(*logs: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.stack(logs), axis=0)


@register(
    "CTCGreedyDecoder",
    bottoms=(1, 3),
    tops=(1, 3),
    param="ctc_decoder_param",
    in_place=False,
    differentiable=False,
    indices=Indices((1, 2)),
    origin="OpenVINO, caffe_ocr",
    restrictions=f"A sequence that continues after the expected labels counts as an error. {_NO_PADDING}",
)
def ctc_greedy_decoder(p: CTCDecoderParameter, scores: jax.Array, *others: jax.Array, ctx: Context) -> Any:
    """Decode the best label of each step, without blanks and repetitions: (time, items, labels) to (items, time, 1, 1).

    Rows are padded with -1. Bottoms: scores (time, items, labels); indicators (time, items), which are 0 at the step
    after an item's last step; and optionally label sequences (time, items), which end at the first negative label. The
    other tops are minus the sum of the best scores, (items, 1, 1, 1), and, with a third bottom, the accuracy, (1, 1, 1,
    1). With three bottoms and two tops, the second top is the accuracy. A negative blank_index selects the last
    label. `ctc_merge_repeated: false` keeps repetitions.

    caffe_ocr has no indicators, and its blank_index is 0 by default. With one bottom all steps count. With
    two bottoms of which the second is label sequences (items, positions), not (time, items), the only top is two
    accuracies, (1, 2, 1, 1): 1 minus the mean edit distance, each divided by the length of the longer sequence, and the
    fraction of items that are right and not empty. Labels end at the first negative one, and blanks are left out.
    """
    blank, has_labels_only = _blank_index(ctx, scores, *others), _has_labels_only(ctx, scores, *others)
    indicators, targets = (None, others) if has_labels_only else (others[0] if others else None, others[1:])
    x = promote(scores).transpose(1, 0, 2)
    best_labels = jnp.argmax(x, axis=2).astype(jnp.int32)
    if indicators is None:
        is_valid = jnp.ones(best_labels.shape, bool)
    else:
        is_valid = _mask_before_end(_to_item_rows(indicators, scores) != 0, keep_first=True)
    keeps_label = is_valid & (best_labels != blank)
    if p.ctc_merge_repeated:
        keeps_label &= best_labels != jnp.pad(best_labels, ((0, 0), (1, 0)), constant_values=PADDING)[:, :-1]
    decoded_labels = drop_blanks(best_labels, keeps_label)
    if has_labels_only:
        return _measure_accuracies(ctx, decoded_labels, targets[0], blank).astype(x.dtype)
    tops = [decoded_labels.astype(x.dtype)[:, :, None, None]]
    if ctx.num_tops == 3 or (ctx.num_tops == 2 and not targets):
        tops.append(-jnp.sum(jnp.where(is_valid, jnp.max(x, axis=2), 0), axis=1).reshape(-1, 1, 1, 1))
    for target in targets if ctx.num_tops > 1 else ():
        labels = _to_item_rows(target, scores)
        expected_labels = jnp.where(_mask_before_end(labels >= 0), jnp.floor(labels + 0.5).astype(jnp.int32), PADDING)
        accuracy = pmean(ctx, jnp.sum(jnp.all(decoded_labels == expected_labels, axis=1)) / max(scores.shape[1], 1))
        tops.append(accuracy.astype(x.dtype).reshape(1, 1, 1, 1))
    return tuple(tops) if len(tops) > 1 else tops[0]


def _has_labels_only(ctx: Context, scores: Any, *others: Any) -> bool:
    """Return whether the bottoms are scores and label sequences, as in caffe_ocr."""
    if len(others) != 1 or ctx.num_tops != 1:
        return False
    shape = tuple(others[0].shape)
    is_indicators = shape[:2] == tuple(scores.shape[:2]) and all(n == 1 for n in shape[2:])
    return not is_indicators and len(shape) >= 2 and shape[0] == scores.shape[1]


def _measure_accuracies(ctx: Context, decoded_labels: jax.Array, labels: jax.Array, blank: int) -> jax.Array:
    """Return caffe_ocr's accuracies of decoded labels (items, time) against label sequences (items, positions, ...)."""
    rows = promote(labels).reshape(*labels.shape[:2], -1)[:, :, 0]
    rounded = jnp.floor(rows + 0.5).astype(jnp.int32)
    expected_labels = drop_blanks(rounded, _mask_before_end(rows >= 0) & (rounded != blank))
    lengths = [jnp.sum(a != PADDING, axis=1) for a in (expected_labels, decoded_labels)]
    longest = jnp.maximum(*lengths)
    distance = _edit_distance(expected_labels, decoded_labels, *lengths)
    error = jnp.mean(distance / jnp.maximum(longest, 1))
    is_right = (distance == 0) & (longest > 0)
    return pmean(ctx, jnp.stack([1 - error, jnp.mean(is_right)])).reshape(1, 2, 1, 1)


def _edit_distance(a: jax.Array, b: jax.Array, a_lengths: jax.Array, b_lengths: jax.Array) -> jax.Array:
    """Return the edit distance of each row of `a` (rows, n) and of `b` (rows, m) up to their lengths, (rows,)."""
    columns = jnp.arange(b.shape[1] + 1)

    def step(previous: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
        changed = previous[:, :-1] + (label[:, None] != b)
        best = jnp.concatenate([previous[:, :1] + 1, jnp.minimum(changed, previous[:, 1:] + 1)], axis=1)
        current = columns + lax.cummin(best - columns, axis=1)  # the best of all numbers of insertions
        return current, current

    first = vary_as(jnp.broadcast_to(columns, (len(b), len(columns))), a, b)
    table = jnp.concatenate([first[None], lax.scan(step, first, a.T)[1]])
    return table[a_lengths, jnp.arange(len(b)), b_lengths]


def _blank_index(ctx: Context, scores: Any, *bottoms: Any) -> int:
    require(
        len(scores.shape) == 3 and scores.shape[0] != 0 and scores.shape[2] != 0,
        f"needs scores with 3 axes (time, items, labels), none of size 0, not shape {scores.shape}",
    )
    has_labels_only = _has_labels_only(ctx, scores, *bottoms)
    require(
        ctx.num_tops <= max(len(bottoms) + 1, 2),
        "has 3 tops, but the accuracy, the third top, needs a third bottom of labels; add it, or use 2 tops",
    )
    for i, bottom in enumerate(() if has_labels_only else bottoms, start=1):
        shape = tuple(bottom.shape)
        require(
            shape[:2] == tuple(scores.shape[:2]) and all(n == 1 for n in shape[2:]),
            f"bottom {i} must have a value for each time step and item, {tuple(scores.shape[:2])}, not shape {shape}",
        )
    num_labels, blank = scores.shape[2], ctx.param.blank_index
    if not ctx.param.HasField("blank_index") and (has_labels_only or not bottoms):
        return 0
    require(blank < num_labels, f"blank_index must be less than the {num_labels} labels, not {blank}")
    return blank if blank >= 0 else num_labels - 1


def _to_item_rows(x: jax.Array, scores: jax.Array) -> jax.Array:
    return promote(x).reshape(scores.shape[:2]).T


def _mask_before_end(is_continued: jax.Array, keep_first: bool = False) -> jax.Array:
    """Return the mask of entries before the first False in each row. With `keep_first`, entry 0 counts as True."""
    if keep_first:
        is_continued = is_continued.at[:, 0].set(True)
    return jnp.cumsum(~is_continued, axis=1) == 0


@register(
    "LabelsequenceAccuracy",
    bottoms=2,
    param="labelsequence_accuracy_param",
    differentiable=False,
    indices=Indices((1,)),
    counts_rows=True,
    origin="warpctc-caffe",
)
def labelsequence_accuracy(
    p: LabelsequenceAccuracyParameter, scores: jax.Array, labels: jax.Array, *, ctx: Context
) -> jax.Array:
    """Compute the fraction of items whose best labels equal the label sequence, as a scalar.

    Repetitions and blanks are removed from the best labels. Bottoms: scores (items, time, labels), and label sequences
    (items, positions), where positions with the blank label are ignored.
    """
    require(len(scores.shape) == 3, f"needs scores with 3 axes (items, time steps, labels), not shape {scores.shape}")
    require(
        len(labels.shape) >= 2 and labels.shape[0] == scores.shape[0],
        f"needs labels (items, positions) for {scores.shape[0]} items, not labels of shape {labels.shape}",
    )
    blank = p.blank_label
    best_labels = jnp.argmax(scores, axis=2).astype(jnp.int32)
    previous_labels = jnp.pad(best_labels, ((0, 0), (1, 0)), constant_values=blank)[:, :-1]
    decoded_labels = drop_blanks(best_labels, (best_labels != previous_labels) & (best_labels != blank))
    label_rows = labels.reshape(labels.shape[0], -1).astype(jnp.int32)
    expected_labels = drop_blanks(label_rows, label_rows != blank)
    length = max(decoded_labels.shape[1], expected_labels.shape[1])
    decoded_labels, expected_labels = (
        jnp.pad(x, ((0, 0), (0, length - x.shape[1])), constant_values=PADDING)
        for x in (decoded_labels, expected_labels)
    )
    is_correct = jnp.all(decoded_labels == expected_labels, axis=1).astype(jnp.float32)
    return sum_rows(ctx, is_correct) / num_items(ctx, is_correct.shape)
