"""Tests of Lstm, LstmSimple and ContinuationIndicator."""

import numpy as np
import pytest

from caffejax.base.errors import GraphError
from caffejax.core.program.net import Net
from layer_nets import net_text, run_layer
from layer_suite import BATCH, fork_properties, layer_case, recorded

GAUSSIAN_FILLER = 'weight_filler { type: "gaussian" std: 1 }'

test_recorded = recorded("Lstm", family="sequences")
test_properties = fork_properties(
    layer_case("LstmSimple", 'lstm_simple_param { num_output: 3 weight_filler { type: "gaussian" } }', (8, 4)),
    layer_case(
        "Lstm",
        'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }',
        (4, BATCH, 5),
        (4, BATCH),
        name="recurrent",
    ),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4)),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 batch_size: 2 {GAUSSIAN_FILLER} }}", (8, 4), (4, 2), name="clip"),
    layer_case("Lstm", f"lstm_param {{ num_output: 3 {GAUSSIAN_FILLER} }}", (4, 2, 4), name="ctpn"),
    layer_case("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }"),
)


Shape = tuple[int, ...]


def test_mycaffe_lstm_equals_bvlc_lstm() -> None:
    x, cont = np.random.default_rng(0).normal(size=(4, 2, 5)), np.array([[0, 0], [1, 1], [1, 0], [1, 1]])
    text = 'recurrent_param { num_output: 3 weight_filler { type: "gaussian" } }'
    np.testing.assert_array_equal(run_layer("Lstm", text, x, cont)[0], run_layer("LSTM", text, x, cont)[0])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("LstmSimple", "lstm_simple_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        (
            "LstmSimple",
            "lstm_simple_param { num_output: 2 enable_clockwork_forgetgate_bias: true }",
            [(8, 4)],
            "enable_clockwork_forgetgate_bias",
        ),
    ],
)
def test_invalid_settings_are_refused(layer_type: str, text: str, shapes: list[Shape], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))


def test_continuation_indicator_is_0_in_the_first_row() -> None:
    text = net_text("ContinuationIndicator", "continuation_indicator_param { time_step: 3 batch_size: 2 }", [])
    np.testing.assert_array_equal(Net(text).apply({}, {}, {})[0]["t0"], [[0, 0], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    ("layer_type", "text", "shapes", "match"),
    [
        ("ContinuationIndicator", "continuation_indicator_param { time_step: 3 }", [], "must be positive"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 3 }", [(8, 4)], "batch_size 3 rows"),
        ("Lstm", "lstm_param { num_output: 2 batch_size: 2 }", [(8, 4), (2, 4)], r"shape \(4, 2\)"),
    ],
)
def test_further_invalid_settings_are_refused(
    layer_type: str, text: str, shapes: list[tuple[int, ...]], match: str
) -> None:
    with pytest.raises(GraphError, match=match):
        Net(net_text(layer_type, text, shapes))
