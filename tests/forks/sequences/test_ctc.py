"""Tests of CTCGreedyDecoder, CtcLoss and LabelsequenceAccuracy."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded


def draw_continuation_indicators(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw indicators that are 1 at each step of a sequence except the first and those after its end."""
    time = np.arange(shape[0])[:, None]
    return ((time > 0) & (time < random.integers(1, shape[0] + 1, shape[1]))).astype(np.float32)


def draw_padded_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.integers(-1, 3, shape).astype(np.float32)


def draw_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw labels 0 to 2, and 3 for blanks."""
    return random.integers(0, 4, shape).astype(np.float32)


SAMPLERS: dict[str, Any] = {"b1": draw_label_sequences}

test_recorded = recorded("CTCGreedyDecoder", family="sequences")
test_properties = fork_properties(
    layer_case(
        "CTCGreedyDecoder",
        "",
        (6, BATCH, 4),
        (6, BATCH),
        (6, BATCH),
        tops=3,
        samplers={"b1": draw_continuation_indicators, "b2": draw_padded_label_sequences},
        classes=4,
    ),
    layer_case("CTCGreedyDecoder", "", (6, BATCH, 4), name="scores"),
    layer_case(
        "CTCGreedyDecoder", "", (6, BATCH, 4), (BATCH, 5, 1), samplers=SAMPLERS, classes=4, name="scores_and_labels"
    ),
    layer_case(
        "CtcLoss",
        "ctc_loss_param { alphabet_size: 4 time_step: 6 blank_label: 3 }",
        (6, BATCH, 4),
        (BATCH, 3),
        samplers=SAMPLERS,
        classes=4,
    ),
    layer_case(
        "LabelsequenceAccuracy",
        "labelsequence_accuracy_param { blank_label: 3 }",
        (BATCH, 5, 4),
        (BATCH, 3),
        samplers=SAMPLERS,
        classes=4,
    ),
)


Shape = tuple[int, ...]


def decode_greedily(best: np.ndarray, indicators: np.ndarray, blank: int, merges_repeats: bool) -> list[int]:
    labels: list[int] = []
    for t, label in enumerate(best):
        if t and not indicators[t]:
            break
        if label != blank and not (merges_repeats and t and best[t - 1] == label):
            labels.append(int(label))
    return labels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("text", "blank", "merges_repeats"), [("", 2, True), ("blank_index: 0", 0, True),
                                                     ("ctc_merge_repeated: false", 2, False)])  # fmt: skip
def test_ctc_greedy_decoder_equals_loops(text: str, blank: int, merges_repeats: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(7, 5, 3)).astype(np.float32)
    indicators = random.integers(0, 3, (7, 5)) > 0
    best = scores.argmax(2)
    sequences = [decode_greedily(best[:, i], indicators[:, i], blank, merges_repeats) for i in range(5)]
    targets = np.full((7, 5), -1)
    for i, labels in enumerate(sequences):
        targets[: len(labels), i] = labels
    targets[0, 0] = 5  # one is wrong
    result, score, accuracy = run_layer(
        "CTCGreedyDecoder", f"ctc_decoder_param {{ {text} }}", scores, indicators, targets, tops=3
    )
    assert result.shape == (5, 7, 1, 1)
    for i, labels in enumerate(sequences):
        np.testing.assert_array_equal(result[i, :, 0, 0], labels + [-1] * (7 - len(labels)))
        end_steps = [t for t in range(1, 7) if not indicators[t, i]]
        np.testing.assert_allclose(
            score[i, 0, 0, 0], -scores[: end_steps[0] if end_steps else 7, i].max(1).sum(), rtol=1e-5
        )
    np.testing.assert_allclose(accuracy, 0.8)
    np.testing.assert_allclose(
        run_layer("CTCGreedyDecoder", "", scores, indicators, targets, tops=2)[1].shape, (1,) * 4
    )
    assert run_layer("CTCGreedyDecoder", "", scores, indicators, tops=2)[1].shape == (5, 1, 1, 1)


def count_edits(a: list[int], b: list[int]) -> int:
    table = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
    return table[-1][-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("text", "blank"), [("", 0), ("blank_index: 2", 2), ("blank_index: -1", 3)])
def test_ctc_greedy_decoder_of_caffe_ocr_equals_loops(text: str, blank: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(7, 6, 4)).astype(np.float32)
    scores[:, 0, blank] += 20  # decoded to an empty sequence
    best = scores.argmax(2)
    sequences = [decode_greedily(best[:, i], np.ones(7), blank, True) for i in range(6)]
    labels = np.full((6, 8), -1)
    for i, sequence in enumerate(sequences):
        expected = random.integers(0, 4, random.integers(0, 8)) if i % 2 else [blank, *sequence]
        labels[i, : len(expected)] = expected
    labels[1, 5:] = [-1, 2, 2]  # what follows a negative label does not count
    error, num_right = 0.0, 0
    for sequence, row in zip(sequences, labels, strict=True):
        expected = [int(k) for k in itertools.takewhile(lambda k: k >= 0, row) if k != blank]
        if expected or sequence:
            distance = count_edits(expected, sequence)
            error += distance / max(len(expected), len(sequence))
            num_right += distance == 0
    param = f"ctc_decoder_param {{ {text} }}"
    (result,) = run_layer("CTCGreedyDecoder", param, scores)
    for i, sequence in enumerate(sequences):
        np.testing.assert_array_equal(result[i, :, 0, 0], sequence + [-1] * (7 - len(sequence)))
    (accuracies,) = run_layer("CTCGreedyDecoder", param, scores, labels[:, :, None, None])
    assert accuracies.shape == (1, 2, 1, 1)
    np.testing.assert_allclose(accuracies.ravel(), [1 - error / 6, num_right / 6], rtol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CTCGreedyDecoder", "", [(4, 2), (4, 2)], "3 axes"),
        ("CTCGreedyDecoder", "", [(0, 2, 3), (0, 2)], "none of size 0"),
        ("CTCGreedyDecoder", "", [(4, 2, 3), (3, 4)], "for each time step and item"),
        ("CTCGreedyDecoder", "ctc_decoder_param { blank_index: 3 }", [(4, 2, 3), (4, 2)], "less than the 3 labels"),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


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


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("CtcLoss", CTC_PARAM, [(4, 2, 3), (3, 5)], "for 2 items"),
        ("CtcLoss", CTC_PARAM, [(4, 2, 4), (2, 5)], "alphabet_size must be 4"),
        ("CtcLoss", CTC_PARAM, [(3, 2, 3), (2, 5)], "time_step must be from 1 to 3"),
        ("CtcLoss", "ctc_loss_param { alphabet_size: 3 time_step: 4 blank_label: 3 }", [(4, 2, 3), (2, 5)], "blank"),
        ("LabelsequenceAccuracy", "", [(4, 2), (4, 3)], "3 axes"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
