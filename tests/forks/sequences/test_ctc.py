"""Tests of CTCGreedyDecoder, CtcLoss and LabelsequenceAccuracy."""

from typing import Any

import numpy as np

from layer_suite import BATCH, fork_properties, layer_case


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
