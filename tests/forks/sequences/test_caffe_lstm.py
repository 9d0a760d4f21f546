"""Tests of Lstm, LstmSimple and ContinuationIndicator."""

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
