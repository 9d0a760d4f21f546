"""CTC losses by enumeration of all alignments; label sequence accuracy; continuation indicators."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text

CTC_PARAM = "ctc_loss_param { alphabet_size: 3 time_step: 4 blank_label: 2 }"


def collapse(alignment: tuple[int, ...], blank: int) -> list[int]:
    """Return the labels of an alignment, without repetitions and blanks."""
    return [label for label, _ in itertools.groupby(alignment) if label != blank]


def compute_sequence_probability(scores: np.ndarray, labels: list[int], blank: int) -> float:
    prob = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    alignments = itertools.product(range(scores.shape[1]), repeat=len(scores))
    return sum(np.prod([prob[t, k] for t, k in enumerate(a)]) for a in alignments if collapse(a, blank) == labels)


def compute_ctc_loss(text: str, scores: np.ndarray, labels: Any) -> tuple[Any, Any]:
    net = Net(net_text("CtcLoss", text, [scores.shape, np.shape(labels)]))

    def loss(x: Any) -> Any:
        return net.apply({}, {}, {"b0": x, "b1": jnp.asarray(labels, jnp.float32)})[0]["t0"]

    return jax.value_and_grad(loss)(jnp.asarray(scores, jnp.float32))


@pytest.mark.parametrize("labels", [[0, 1, 2], [1, 1, 2], [2, 0, 2], [2, 2, 2], [0, 1, 0]])
def test_ctc_loss_equals_the_sum_over_all_alignments(labels: list[int]) -> None:
    scores = np.random.default_rng(0).normal(size=(4, 1, 3))
    loss, diff = compute_ctc_loss(CTC_PARAM, scores, [labels])
    label_sequence = [k for k in labels if k != 2]
    np.testing.assert_allclose(loss, -np.log(compute_sequence_probability(scores[:, 0], label_sequence, 2)), rtol=1e-5)
    for t, k in itertools.product(range(4), range(3)):
        shifted_scores = scores.copy()
        shifted_scores[t, 0, k] += 1e-5
        log_prob, shifted_log_prob = (
            np.log(compute_sequence_probability(s[:, 0], label_sequence, 2)) for s in (scores, shifted_scores)
        )
        slope = (log_prob - shifted_log_prob) / 1e-5
        np.testing.assert_allclose(diff[t, 0, k], slope, atol=1e-4)


def test_ctc_loss_is_the_mean_over_items() -> None:
    scores = np.random.default_rng(1).normal(size=(5, 3, 3))
    labels = [[0, 1, 1, 2], [2, 2, 2, 0], [0, 0, 0, 0]]  # the last needs 7 steps, but 4 count: no alignment
    loss, diff = compute_ctc_loss(CTC_PARAM, scores, labels)
    item_results = [compute_ctc_loss(CTC_PARAM, scores[:, [i]], [labels[i]]) for i in range(3)]
    assert item_results[2][0] == 0
    assert not np.any(item_results[2][1])
    np.testing.assert_allclose(loss, sum(a[0] for a in item_results) / 3, rtol=1e-5)
    np.testing.assert_allclose(
        diff, np.concatenate([a[1] for a in item_results], axis=1), atol=1e-6
    )  # not divided by 3
    assert not np.any(diff[4])


def test_labelsequence_accuracy_collapses_sequences() -> None:
    best = np.array([[0, 0, 2, 1, 1], [0, 2, 0, 2, 2], [1, 1, 1, 1, 1], [2, 2, 2, 2, 2]])
    labels = [[0, 1, 2], [0, 2, 2], [2, 1, 2], [2, 2, 2]]
    text = net_text("LabelsequenceAccuracy", "labelsequence_accuracy_param { blank_label: 2 }", [(4, 5, 3), (4, 3)])
    inputs = {"b0": jnp.eye(3)[best], "b1": jnp.asarray(labels, jnp.float32)}
    assert Net(text).apply({}, {}, inputs)[0]["t0"] == 0.75


def test_continuation_indicator_is_0_in_the_first_row() -> None:
    text = net_text("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }", [])
    np.testing.assert_array_equal(Net(text).apply({}, {}, {})[0]["t0"], [[0, 0], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CtcLoss", CTC_PARAM, [(4, 2, 3), (3, 5)], "for 2 items"),
        ("CtcLoss", CTC_PARAM, [(4, 2, 4), (2, 5)], "alphabet_size must be 4"),
        ("CtcLoss", CTC_PARAM, [(3, 2, 3), (2, 5)], "time_step must be from 1 to 3"),
        ("CtcLoss", "ctc_loss_param { alphabet_size: 3 time_step: 4 blank_label: 3 }", [(4, 2, 3), (2, 5)], "blank"),
        ("LabelsequenceAccuracy", "", [(4, 2), (4, 3)], "3 axes"),
        ("ContinuationIndicator", "continuation_indicator_param { time_step: 3 }", [], "must be positive"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 2 }", [(8, 4), (2, 4)], r"shape \(4, 2\)"),
        ("Gather", "gather_param { axis: 1 }", [(8, 4)], "gather_param"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
