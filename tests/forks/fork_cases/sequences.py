"""Cases of layers for sequences, and of layers that pass their bottoms through."""

from typing import Any

import numpy as np
from case import BATCH, layer_case


def draw_label_sequences(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw labels 0 to 2, and 3 for blanks."""
    return random.integers(0, 4, shape).astype(np.float32)


GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'
SAMPLERS: dict[str, Any] = {"b1": draw_label_sequences}

LAYER_CASES = [
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4)),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4), (4, 2), name="clip"),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, 2, 4), name="ctpn"),
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
    layer_case("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }"),
    layer_case("Gather", "", (BATCH, 5), (BATCH,), tops=2),
    layer_case("Debug", "", (BATCH, 5)),
]
