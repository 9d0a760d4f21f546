"""Cases of layers for sequences, and of layers that pass their bottoms through."""

from typing import Any

import numpy as np
from case import ROWS, layer


def draw_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Labels 0 .. 2, and blanks: 3."""
    return random.integers(0, 4, shape).astype(np.float32)


GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'
SAMPLERS: dict[str, Any] = {"b1": draw_label_sequences}

LAYER_CASES = [
    layer("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4)),
    layer("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4), (4, 2), name="clip"),
    layer("Lstm", f"lstm_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, 2, 4), name="ctpn"),
    layer(
        "CtcLoss",
        "ctc_loss_param { alphabet_size: 4 time_step: 6 blank_label: 3 }",
        (6, ROWS, 4),
        (ROWS, 3),
        samplers=SAMPLERS,
        classes=4,
    ),
    layer(
        "LabelsequenceAccuracy",
        "labelsequence_accuracy_param { blank_label: 3 }",
        (ROWS, 5, 4),
        (ROWS, 3),
        samplers=SAMPLERS,
        classes=4,
    ),
    layer("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }"),
    layer("Gather", "", (ROWS, 5), (ROWS,), tops=2),
    layer("Debug", "", (ROWS, 5)),
]
